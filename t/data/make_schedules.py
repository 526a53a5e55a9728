#!/usr/bin/python3
# make_schedules.py - factors of PyTorch's schedules over 200 steps
#
# Run in this folder: ./make_schedules.py > schedules.json
import json

import torch
from formula import rounded

O = torch.optim


def schedule(warmup, total, after):
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    parts = [after(optimizer, total - warmup)]
    if warmup:
        rise = O.lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup)
        parts.insert(0, rise)
    scheduler = O.lr_scheduler.SequentialLR(optimizer, parts, [warmup][:len(parts) - 1])
    factors = []
    for _ in range(200):
        factors.append(rounded(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return factors[::7]


L = O.lr_scheduler
SCHEDULES = {
    "constant": schedule(20, 200, lambda o, n: L.LambdaLR(o, lambda step: 1.0)),
    "linear": schedule(0, 200, lambda o, n: L.LinearLR(o, 1.0, 0.1, n)),
    "linear, warm-up": schedule(30, 200, lambda o, n: L.LinearLR(o, 1.0, 1e-9, n)),
    "cosine": schedule(0, 200, lambda o, n: L.CosineAnnealingLR(o, n)),
    "cosine, warm-up": schedule(20, 200, lambda o, n: L.CosineAnnealingLR(o, n, 0.1)),
}
print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in SCHEDULES.items()) + "\n}")
