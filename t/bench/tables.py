"""What `paceline init` and `fit` learn of tables, beside gradient boosting; see t/bench/tables."""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import pandas
from sklearn import datasets, ensemble, model_selection
from sklearn.feature_extraction.text import TfidfVectorizer

SEEDS = int(os.environ.get("SEEDS", 5))


def own_tables():
    """(name, frame, target) of the tables that scikit-learn has with it; classes by name."""
    for name in "iris", "wine", "breast_cancer", "diabetes":
        data = getattr(datasets, "load_" + name)(as_frame=True)
        frame = data.frame.copy()
        if hasattr(data, "target_names"):
            frame["target"] = [data.target_names[k] for k in frame["target"]]
        yield name, frame, "target"


def given_table(argument):
    path, target = argument.rsplit(":", 1)
    header = None if target.isdigit() else 0
    frame = pandas.read_csv(path, header=header, sep=None, engine="python")
    if header is None:
        frame.columns = ["column%d" % k for k in frame.columns]
        target = "column" + target
    return os.path.basename(path), frame.dropna(subset=[target]), target


def score(truth, predicted, classes):
    if classes:
        return float(numpy.mean([str(a) == str(b) for a, b in zip(truth, predicted)]))
    truth, predicted = numpy.asarray(truth, float), numpy.asarray(predicted, float)
    return float(1 - ((truth - predicted) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())


def words_of(texts, train):
    """Columns of the thousand most frequent words, weighed by those of the part that trains."""
    texts = texts.fillna("").astype(str)
    weigh = TfidfVectorizer(max_features=1000).fit(texts[:train])
    return pandas.DataFrame(weigh.transform(texts).toarray(), index=texts.index, columns=weigh.get_feature_names_out())


def boosting(train, test, target, classes):
    kind = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
    both = pandas.concat([train, test]).drop(columns=target)
    for name in both:
        if not pandas.api.types.is_numeric_dtype(both[name]):
            both[name] = both[name].astype("category")
            if len(both[name].cat.categories) > 255:
                words = words_of(both[name].astype(object), len(train)).add_prefix(name + ": ")
                both = pandas.concat([both.drop(columns=name), words], axis=1)
    model = kind(categorical_features="from_dtype", random_state=0)
    model.fit(both[: len(train)], train[target])
    return score(test[target], model.predict(both[len(train) :]), classes)


def ours(train, test, target, seed):
    """The predictions for `test`, and the epochs trained."""
    with tempfile.TemporaryDirectory() as folder:
        def run(*arguments):
            made = subprocess.run([os.environ["PACELINE"], *arguments], cwd=folder, text=True, capture_output=True)
            if made.returncode:
                sys.exit(f"paceline {' '.join(arguments)}: {made.stderr}{made.stdout[-2000:]}")
            return made.stdout

        train.to_csv(folder + "/train.csv", index=False)
        test.drop(columns=target).to_csv(folder + "/test.csv", index=False)
        run("init", "train.csv", "--target", target)
        run("fit", "train.json", "--set", f"trainer.seed={seed}")
        return run("predict", "train.json", "--set", "data.path=test.csv", "--checkpoint", "runs/latest").split("\n")[:-1]


for name, frame, target in map(given_table, sys.argv[1:]) if sys.argv[1:] else own_tables():
    classes = not pandas.api.types.is_float_dtype(frame[target]) and frame[target].nunique() <= 10
    mine, theirs = [], []
    for seed in range(SEEDS):
        train, test = model_selection.train_test_split(
            frame, test_size=0.2, random_state=seed, stratify=frame[target] if classes else None)
        mine.append(score(test[target], ours(train, test, target, seed), classes))
        theirs.append(boosting(train, test, target, classes))
    figures = {"name": f"{name}, paceline init", "unit": "share right" if classes else "R2",
               "value": round(float(numpy.mean(mine)), 4), "deviation": round(float(numpy.std(mine)), 4)}
    figures["gradient boosting"] = round(float(numpy.mean(theirs)), 4)
    print(json.dumps(figures), flush=True)
