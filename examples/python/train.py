"""train.py - a model of Python, trained by the engine on NumPy arrays: points inside a circle

    pip install .                        in the tree; then
    python3 examples/python/train.py
"""
import tempfile

import numpy as np
import paceline as pl


@pl.module
def net(g, hidden=32, classes=None):
    """x [batch, 2], y [batch]: logits [batch, classes]."""
    x = g.relu(g.linear("fc1", g.input("x"), hidden))
    x = g.linear("fc2", x, classes)
    g.output("logits", x)
    g.loss(g.cross_entropy(x, g.input("y")))
    g.log("acc", g.accuracy(x, g.input("y")))


rng = np.random.default_rng(7)
x = rng.uniform(-1, 1, (2000, 2)).astype(np.float32)
y = ((x ** 2).sum(1) < 0.5).astype(np.int64)

with tempfile.TemporaryDirectory() as folder:
    result = pl.fit(net, data=(x[200:], y[200:]), val=(x[:200], y[:200]), optimizer=pl.adamw(lr=1e-2), max_epochs=20,
                    default_root_dir=folder)
    print(f"val_acc {result.metrics['val_acc']:.3f} after {result.global_step} steps")
    print(f"acc {(result.predict(x).argmax(1) == y).mean():.3f}")
