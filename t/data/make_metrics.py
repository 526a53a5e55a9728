"""make_metrics.py - t/data/metrics.json: what scikit-learn and torchmetrics make of small data, for t/metric_values.c,
t/metrics_gathered.c and t/metrics_named.c

Needs scikit-learn (made with 1.9), torchmetrics (1.9) and numpy.  Run: python3 make_metrics.py > metrics.json
"""
import json

import numpy as np
import torch
from sklearn import metrics as m
from torchmetrics import functional as tm

rng = np.random.default_rng(7)
N, C, BINS = 61, 4, 16
y = rng.integers(0, C, N)
y[:3] = 1
logits = np.round(rng.normal(size=(N, C)) + 1.5 * np.eye(C)[y], 2)
logits[5, 2] = logits[5].max()                  # a tie
ignored = [4, 20, 60]
y_given = y.copy()
y_given[ignored] = -1
keep = [k for k in range(N) if k not in ignored]
yk, pk = y[keep], logits[keep].argmax(1)
top = sum((np.argsort(-logits[k], kind="stable")[:2] == y[k]).any() for k in keep) / len(keep)

scores = np.round(rng.random((N, C)) * 0.6 + 0.4 * np.eye(C)[y], 2).astype(np.float32)
binned = np.clip(np.floor(scores * np.float32(BINS - 1)), 0, BINS - 1)[keep]
hot = np.eye(C)[yk]
x = np.round(rng.normal(size=N) * 2 + 3, 2)
target = np.round(x + rng.normal(size=N), 2)

expected = {"acc": m.accuracy_score(yk, pk), "acc_top": top, "acc_classes": m.balanced_accuracy_score(yk, pk),
        "confusion": m.confusion_matrix(yk, pk, labels=range(C)).tolist(),
        "mse": m.mean_squared_error(target, x), "rmse": m.mean_squared_error(target, x) ** 0.5,
        "mae": m.mean_absolute_error(target, x), "r2": m.r2_score(target, x),
        "explained": m.explained_variance_score(target, x), "mape": m.mean_absolute_percentage_error(abs(target) + 1, x),
        "smape": float(np.mean(2 * abs(target - x) / (abs(target) + abs(x)))),
        "msle": m.mean_squared_log_error(abs(target), abs(x)),
        "mcc": m.matthews_corrcoef(yk, pk), "kappa": m.cohen_kappa_score(yk, pk)}
averages = {"macro": "macro", "micro": "micro", "weighted": "weighted", "classes": None}
for name, of in (("precision", m.precision_score), ("recall", m.recall_score), ("f1", m.f1_score), ("jaccard", m.jaccard_score)):
    for ours, theirs in averages.items():
        value = of(yk, pk, average=theirs, zero_division=0)
        expected[f"{name}_{ours}"] = value.tolist() if theirs is None else value
counts = m.multilabel_confusion_matrix(yk, pk, labels=range(C))
of_class = counts[:, 0, 0] / counts[:, 0].sum(1)
support = np.bincount(yk, minlength=C)
expected |= {"specificity_macro": of_class.mean(), "specificity_classes": of_class.tolist(),
             "specificity_weighted": (of_class * support).sum() / support.sum(),
             "specificity_micro": counts[:, 0, 0].sum() / counts[:, 0].sum()}
for name, of in (("auroc", m.roc_auc_score), ("ap", m.average_precision_score)):
    for ours, theirs in averages.items():
        value = of(hot, binned, average=theirs)
        expected[f"{name}_{ours}"] = value.tolist() if theirs is None else value
    expected[f"{name}_binary"] = of(yk == 2, binned[:, 2])
loss = [np.log(np.exp(logits[k]).sum()) - logits[k][y[k]] for k in keep]
expected["perplexity"] = float(np.exp(np.mean(loss)))
expected["bits"] = float(np.mean(loss) / np.log(2) / 1.25)


def number(value):
    return value.tolist() if value.ndim else value.item()


# ---- further metrics of classes, scores and numbers ----

as_tensor = lambda values, dtype=torch.float64: torch.tensor(np.asarray(values), dtype=dtype)
t_y, t_logits = as_tensor(yk, torch.int64), as_tensor(logits[keep])
for ours, theirs in averages.items():
    o = {"num_classes": C, "average": theirs}
    expected[f"fbeta_{ours}"] = number(tm.classification.multiclass_fbeta_score(t_logits, t_y, beta=2.0, **o))
    expected[f"hamming_{ours}"] = number(tm.classification.multiclass_hamming_distance(t_logits, t_y, **o))
more = {}
more["pearson"] = number(tm.pearson_corrcoef(as_tensor(x), as_tensor(target)))
more["concordance"] = tm.concordance_corrcoef(as_tensor(x), as_tensor(target)).item()
more["ece"] = number(tm.classification.multiclass_calibration_error(t_logits.softmax(1), t_y, C, n_bins=15))
t_two, t_is = as_tensor(scores[keep][:, 2]), as_tensor(yk == 2, torch.int64)
more["ece_binary"] = number(tm.classification.binary_calibration_error(t_two, t_is, n_bins=7))
more["ece_flat"] = more["ece_binary"]


def curve(kind, columns, x, y, bins=BINS):
    """Points from the highest threshold, without those that repeat the one before."""
    axes = ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    all_points = []
    for one_x, one_y, at in zip(x, y, columns):
        points = [[0.0, 0.0 if kind == "roc" else 1.0, 1.0]]
        for k in reversed(range(bins)):
            if (at == k).any():
                points.append([round(float(one_x[k]), 6), round(float(one_y[k]), 6), round(k / (bins - 1), 6)])
        all_points.append(points)
    return {"curve": kind, "x": axes[0], "y": axes[1], "points": all_points}


of_bins, thresholds = torch.tensor(binned / (BINS - 1)), torch.arange(BINS) / (BINS - 1) - 1e-6
o = {"thresholds": thresholds, "average": None}
fpr, tpr, _ = tm.classification.multiclass_roc(of_bins, t_y, C, **o)
more["roc"] = curve("roc", binned.T, fpr.flip(1), tpr.flip(1))
precision, recall, _ = tm.classification.multiclass_precision_recall_curve(of_bins, t_y, C, **o)
more["pr"] = curve("pr", binned.T, recall, precision)
fpr, tpr, _ = tm.classification.binary_roc(of_bins[:, 2], t_is, thresholds=thresholds)
more["roc_binary"] = curve("roc", [binned[:, 2]], [fpr.flip(0)], [tpr.flip(0)])

# ---- labels ----

L = 3
is_label = rng.integers(0, 2, (N, L))
label_logits = np.round(rng.normal(size=(N, L)) * 2 + 2 * is_label - 1, 2)
label_logits[label_logits == 0] = 0.01
labels_given = is_label.copy()
labels_given[7, 1] = labels_given[33, 0] = labels_given[60, :] = -1
label_scores = np.clip(np.round(0.25 + 0.5 * is_label + rng.normal(size=(N, L)) * 0.2, 2), 0, 1).astype(np.float32)
label_bins = torch.tensor(np.clip(np.floor(label_scores * np.float32(BINS - 1)), 0, BINS - 1) / (BINS - 1))
t_labels, t_said = as_tensor(labels_given, torch.int64), as_tensor(label_logits).sigmoid()
of = tm.classification
labels = {"acc": (((label_logits > 0) == is_label) & (labels_given >= 0)).sum() / (labels_given >= 0).sum(),
          "confusion": number(of.multilabel_confusion_matrix(t_said, t_labels, L, ignore_index=-1)),
          "mcc": number(of.multilabel_matthews_corrcoef(t_said, t_labels, L, ignore_index=-1)),
          "f1_binary": number(of.binary_f1_score(t_said[:, 0], t_labels[:, 0], ignore_index=-1)),
          "kappa_binary": number(of.binary_cohen_kappa(t_said[:, 0], t_labels[:, 0], ignore_index=-1)),
          "confusion_binary": number(of.binary_confusion_matrix(t_said[:, 0], t_labels[:, 0], ignore_index=-1)),
          "auroc_binary": number(of.binary_auroc(label_bins[:, 0], t_labels[:, 0], ignore_index=-1))}
for name, f, with_these in (("acc", of.multilabel_accuracy, {}), ("precision", of.multilabel_precision, {}),
                      ("recall", of.multilabel_recall, {}), ("f1", of.multilabel_f1_score, {}),
                      ("fbeta", of.multilabel_fbeta_score, {"beta": 0.5}), ("jaccard", of.multilabel_jaccard_index, {}),
                      ("specificity", of.multilabel_specificity, {}), ("hamming", of.multilabel_hamming_distance, {}),
                      ("auroc", of.multilabel_auroc, {}), ("ap", of.multilabel_average_precision, {})):
    for ours, theirs in averages.items():
        said = label_bins if name in ("auroc", "ap") else t_said
        labels[f"{name}_{ours}"] = number(f(said, t_labels, num_labels=L, average=theirs, ignore_index=-1, **with_these))
fpr, tpr, _ = of.binary_roc(label_bins.ravel(), t_labels.ravel(), thresholds=thresholds, ignore_index=-1)
counted = label_bins[t_labels >= 0].numpy() * (BINS - 1)
labels["roc_micro"] = curve("roc", [np.round(counted)], [fpr.flip(0)], [tpr.flip(0)])

# ---- gathered values ----

from torchmetrics.functional import text  # noqa: E402

W = 6
query = (np.arange(N) * 5 + 3) % 7
score = np.round(rng.permutation(N) / N + 0.001, 4)
relevance = (rng.random(N) < 0.3 + 0.3 * score).astype(float)
relevance[query == 6] = 0
reference = rng.integers(1, 9, (N, W))
predicted = np.where(rng.random((N, W)) < 0.8, reference, rng.integers(1, 9, (N, W)))
predicted[::3] = np.roll(predicted[::3], 1, axis=1)
reference[::4, 5] = predicted[::5, 4:] = 0      # padding
spoken = lambda rows: [" ".join(f"w{t}" for t in row if t) for row in rows]
by_query = {"relevance": torch.tensor(relevance), "score": torch.tensor(score)}


def queries_mean(of, **more):
    values = []
    for one in range(7):
        rel, found = (by_query[k][torch.tensor(query == one)] for k in ("relevance", "score"))
        values.append(float(of(found, rel.bool(), **more)) if rel.any() else 0.0)
    return float(np.mean(values))


r = tm.retrieval
of_gathered = {"spearman": number(tm.spearman_corrcoef(as_tensor(np.round(x)), as_tensor(target))),
               "precision": queries_mean(r.retrieval_precision, top_k=3),
               "recall": queries_mean(r.retrieval_recall, top_k=3),
               "mrr": queries_mean(r.retrieval_reciprocal_rank), "map": queries_mean(r.retrieval_average_precision),
               "ndcg": queries_mean(r.retrieval_normalized_dcg, top_k=5),
               "bleu": number(text.bleu_score(spoken(predicted), [[one] for one in spoken(reference)]).double()),
               **{f"rouge_{one.lower()}": number(text.rouge_score(spoken(predicted), spoken(reference), rouge_keys=f"rouge{one}")
                                                 [f"rouge{one}_fmeasure"].double()) for one in "12L"},
               "wer": number(text.word_error_rate(spoken(predicted), spoken(reference)).double())}
gathered = {"rounded": np.round(x).tolist(), "query": query.tolist(), "score": score.tolist(), "relevance": relevance.tolist(),
            "predicted": predicted.ravel().tolist(), "reference": reference.ravel().tolist(), "expected": of_gathered}

# ---- metrics by name: the names of a run file with their values ----


def bin_of(values, bins):
    """The bins of scores in float32, none of which is near an edge."""
    at = values.to(torch.float32) * (bins - 1)
    assert ((at - at.round()).abs() > 1e-4).all()
    return at.floor().clamp(0, bins - 1).double()


def curves(name, at, hits, bins):
    """The curve of each column of bins, with the samples that are not ignored."""
    f = {"roc": of.binary_roc, "pr_curve": of.binary_precision_recall_curve}[name]
    kept = [(one[hit >= 0], hit[hit >= 0]) for one, hit in zip(at.T, hits.T)]
    x, y = zip(*(reversed(f(one / (bins - 1), hit, thresholds=torch.arange(bins) / (bins - 1) - 1e-6)[:2])
                 for one, hit in kept))
    if name == "roc":
        x, y = [one.flip(0) for one in y], [one.flip(0) for one in x]
    return curve("roc" if name == "roc" else "pr", [one for one, _ in kept], x, y, bins)


def named_of(task, said, truth, hits, o):
    """said: probabilities; hits [N, columns]: whether a sample is of a class, -1: ignored"""
    f = lambda name, **more: number(getattr(of, f"{task}_{name}")(said, truth, **o, **more))
    binned = lambda name, bins, average="macro": number(getattr(of, f"{task}_{name}")(
        bin_of(said, bins) / (bins - 1), truth, average=average, **o))
    return {"balanced_acc": f("accuracy", average="macro"), "precision": f("precision", average="macro"),
            "precision micro": f("precision", average="micro"), "recall": f("recall", average="macro"),
            "recall classes": f("recall", average=None), "f1": f("f1_score", average="macro"),
            "f1 weighted": f("f1_score", average="weighted"), "fbeta": f("fbeta_score", beta=1.0, average="macro"),
            "fbeta 2 weighted": f("fbeta_score", beta=2.0, average="weighted"),
            "specificity": f("specificity", average="macro"),
            "specificity weighted": f("specificity", average="weighted"),
            "jaccard": f("jaccard_index", average="macro"), "jaccard micro": f("jaccard_index", average="micro"),
            "hamming": f("hamming_distance", average="macro"), "hamming classes": f("hamming_distance", average=None),
            "mcc": f("matthews_corrcoef"), "confusion": f("confusion_matrix"),
            "auroc": binned("auroc", 200), "auroc weighted 20": binned("auroc", 20, "weighted"),
            "average_precision": binned("average_precision", 200),
            "average_precision 30 classes": binned("average_precision", 30, None),
            "roc 12": curves("roc", bin_of(said, 12), hits, 12),
            "pr_curve 12": curves("pr_curve", bin_of(said, 12), hits, 12)}


said = t_logits.float().softmax(1)
named_classes = named_of("multiclass", said, t_y, torch.tensor(hot, dtype=torch.int64), {"num_classes": C})
ece_10 = number(of.multiclass_calibration_error(t_logits.softmax(1), t_y, C, n_bins=10))
named_classes |= {"acc": expected["acc"], "acc 2": top, "kappa": number(of.multiclass_cohen_kappa(said, t_y, C)),
                  "calibration_error": more["ece"], "calibration_error 10": ece_10,
                  "perplexity": expected["perplexity"]}
said = torch.tensor(label_logits).float().sigmoid()
named_labels = named_of("multilabel", said, t_labels, t_labels, {"num_labels": L, "ignore_index": -1})
named_labels |= {"acc": labels["acc"],
                 "kappa": number(of.binary_cohen_kappa(said.ravel(), t_labels.ravel(), ignore_index=-1))}
one, other = as_tensor(abs(x)), as_tensor(abs(target) + 1)          # both above 0, as msle needs
named_values = {"mse": tm.mean_squared_error(one, other), "rmse": tm.mean_squared_error(one, other, squared=False),
                "mae": tm.mean_absolute_error(one, other), "r2": tm.r2_score(one, other),
                "explained_variance": tm.explained_variance(one, other), "spearman": tm.spearman_corrcoef(one, other),
                "pearson": tm.pearson_corrcoef(one, other), "concordance": tm.concordance_corrcoef(one, other),
                "mape": tm.mean_absolute_percentage_error(one, other),
                "smape": tm.symmetric_mean_absolute_percentage_error(one, other),
                "msle": tm.mean_squared_log_error(one, other)}
named = {"classes": named_classes, "labels": named_labels, "values": {k: v.item() for k, v in named_values.items()}}

print(json.dumps({"bins": BINS, "classes": C, "y": y_given.tolist(), "logits": logits.ravel().tolist(),
                  "scores": [round(float(s), 2) for s in scores.ravel()], "x": x.tolist(),
                  "target": target.tolist(), "labels": labels_given.ravel().tolist(),
                  "label_logits": label_logits.ravel().tolist(),
                  "label_scores": [round(float(s), 2) for s in label_scores.ravel()],
                  "expected": expected, "more": more, "of_labels": labels,
                  "gathered": gathered, "named": named}))
