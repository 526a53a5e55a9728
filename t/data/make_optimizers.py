#!/usr/bin/python3
# make_optimizers.py - five steps of PyTorch's optimizers on gradients by formula, and its schedules over 200 steps
#
# Run in this folder: ./make_optimizers.py > optimizers.json
import json

import torch
from formula import digest, rounded, wave

SHAPES = {"w1": (3, 4), "b1": (5,), "b2": (2,), "w2": (2, 3, 2)}


def steps(make, clip=0.0):
    tensors = [torch.tensor(wave(int(torch.Size(s).numel()), k)).view(s).requires_grad_()
               for k, s in enumerate(SHAPES.values())]
    optimizer = make(tensors)
    for step in range(5):
        for k, t in enumerate(tensors):
            t.grad = torch.tensor(wave(t.numel(), 10 * step + k)).view(t.shape) / 8
        if clip:
            torch.nn.utils.clip_grad_norm_(tensors, clip)
        optimizer.step()
    return [digest(t.detach()) for t in tensors]


def groups(tensors, decay):
    return [{"params": [t for t in tensors if t.dim() > 1], "weight_decay": decay},
            {"params": [t for t in tensors if t.dim() < 2], "weight_decay": 0}]


O = torch.optim
OPTIMIZERS = {
    "sgd": steps(lambda p: O.SGD(p, lr=0.1)),
    "sgd, momentum": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.9)),
    "sgd, nesterov, decay": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1)),
    "sgd, decay of matrices only": steps(lambda p: O.SGD(groups(p, 0.1), lr=0.1)),
    "sgd, clipped": steps(lambda p: O.SGD(p, lr=0.1), 0.125),
    "adam": steps(lambda p: O.Adam(p, lr=0.01)),
    "adam, decay": steps(lambda p: O.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
    "adamw": steps(lambda p: O.AdamW(p, lr=0.01, weight_decay=0.1)),
    "adamw, decay of matrices only": steps(lambda p: O.AdamW(groups(p, 0.1), lr=0.01, betas=(0.9, 0.99))),
}


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
print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in {**OPTIMIZERS, **SCHEDULES}.items()) + "\n}")
