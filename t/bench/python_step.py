"""python_step.py - the measurement of python_step"""
import json
import statistics
import sys
import tempfile

import numpy as np

import paceline as pl

STEPS = 2000


@pl.module
def net(g, hidden=128, classes=None):
    x = g.relu(g.linear("fc1", g.flatten(g.input("x")), hidden))
    x = g.linear("fc2", x, classes)
    g.output("logits", x)
    if g.stage != "predict":
        ignored = {"has_ignore": True, "ignore_index": -100}
        g.loss(g.cross_entropy(x, g.input("y"), **ignored))
        g.log("acc", g.accuracy(x, g.input("y"), **ignored))


def fit(module, folder):
    """-> ms a step, and the weights."""
    result = pl.fit(module, (x, y), max_steps=STEPS, max_epochs=-1, batch_size=64, progress=False,
                    default_root_dir=folder, accelerator={"name": "cpu", "threads": 1}, optimizer=pl.adamw(lr=1e-3),
                    enable_checkpointing=False)
    return 1000 * result.seconds / STEPS, {name: weight.copy() for name, weight in result.weights.items()}


rng = np.random.default_rng(1)
x = rng.normal(size=(4096, 28, 28)).astype(np.float32)
y = rng.integers(0, 10, 4096)
pairs = []
with tempfile.TemporaryDirectory() as folder:
    for k in range(int(sys.argv[1])):
        order = [net, pl.component("mlp", hidden=[128])]
        measured = {id(module): fit(module, folder) for module in (order if k % 2 else order[::-1])}
        (ours, mine), (theirs, others) = (measured[id(module)] for module in order)
        assert all((mine[name] == others[name]).all() for name in others), "the weights differ"
        pairs.append((ours, theirs, theirs / ours))
ours, theirs, ratio = (statistics.median(column) for column in zip(*pairs))
print(json.dumps({"name": "step, module of Python", "unit": "ms", "ours": round(ours, 4), "against": "the same in C",
                  "theirs": round(theirs, 4), "ratio": round(ratio, 3), "pairs": len(pairs), "bar": 0.98,
                  "holds": ratio >= 0.98}))
