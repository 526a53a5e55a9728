#!/usr/bin/env python3
"""train.py - trains on NumPy arrays, with a callback in Python, and predicts with the trained weights

It needs NumPy (package python3-numpy).  In the source tree, without installation, name the built library:

    PACELINE_LIBRARY=build/.libs/libpaceline.so.0 PACELINE_PLUGIN_PATH=build/examples/.libs python3 examples/python/train.py
"""
import sys
import tempfile

import numpy as np
import paceline

rng = np.random.default_rng(7)
x = rng.uniform(-1, 1, (2000, 2)).astype(np.float32)        # points of a square
y = ((x ** 2).sum(1) < 0.5).astype(np.int64)                # 1: inside a circle

class Enough(paceline.Callback):
    """Ends the run when the validation accuracy is high enough."""

    def on_validation_end(self, event, request):
        request.log("error", 1 - event.callback_metrics.get("val_acc", 0))
        if event.callback_metrics.get("val_acc", 0) > 0.97:
            request.stop, request.reason = True, b"good enough"

def show(progress):
    if progress["event"] == "validated":
        print(f"epoch {progress['epoch']}: val_acc {progress['metrics']['val_acc']:.3f}", file=sys.stderr)

with tempfile.TemporaryDirectory() as folder:
    run = {
        "module": {"name": "mlp", "hidden": [32]},
        "data": {"val_split": 0.1},
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "trainer": {"max_epochs": 100, "default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1}},
    }
    result = paceline.fit(run, {"x": x, "y": y}, data_info={"classes": 2}, callbacks=[Enough()], progress=show)
    print(result.status, result.reason, result.epoch, "epochs", {k: v.shape for k, v in result.weights.items()})
    logits = paceline.Model(result.run_dir)({"x": x})["logits"]
    print(f"acc {(logits.argmax(1) == y).mean():.3f}")
