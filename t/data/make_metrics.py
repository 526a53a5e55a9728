"""make_metrics.py - t/data/metrics.json: what scikit-learn makes of small data, for t/metrics.c

Needs scikit-learn (made with 1.9) and numpy.  Run: python3 make_metrics.py > metrics.json
"""
import json

import numpy as np
from sklearn import metrics as m

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
print(json.dumps({"bins": BINS, "classes": C, "y": y_given.tolist(), "logits": logits.ravel().tolist(),
                  "scores": [round(float(s), 2) for s in scores.ravel()], "x": x.tolist(),
                  "target": target.tolist(), "expected": expected}))
