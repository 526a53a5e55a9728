#!/usr/bin/python3
# make_sync_batchnorm.py - what PyTorch's BatchNorm comes to with whole batches, which its SyncBatchNorm of any number of
# ranks is held to: losses and statistics of the module "known" of t/sync_batchnorm.c
#
# Run in this folder: ./make_sync_batchnorm.py > sync_batchnorm.json
import json

import numpy as np
import torch
import torch.nn.functional as F
from formula import rounded, wave

SAMPLES, BATCH, EPOCHS, RATE = 38, 12, 2, 0.5


def sample(i):
    y = i % 3
    return [np.float32(np.sin(y * 5 + k) + 0.5 * np.sin(i * 7 + k * 3)) for k in range(6)], y


x = torch.tensor(np.array([sample(i)[0] for i in range(SAMPLES)]), dtype=torch.float64)
y = torch.tensor([sample(i)[1] for i in range(SAMPLES)])
w1 = torch.tensor(wave(48, 1)).reshape(8, 6).requires_grad_()
w2 = torch.tensor(wave(24, 2)).reshape(3, 8).requires_grad_()
norm1 = torch.nn.BatchNorm1d(8, eps=1e-5, momentum=0.1).double()
norm2 = torch.nn.BatchNorm2d(2, eps=1e-3, momentum=0.3).double()
parameters = [w1, w2, *norm1.parameters(), *norm2.parameters()]
sgd = torch.optim.SGD(parameters, RATE)
losses = []
for epoch in range(EPOCHS):
    for k in range(0, SAMPLES, BATCH):
        h = norm1(x[k:k + BATCH] @ w1.T).relu()
        h = norm2(h.reshape(-1, 2, 2, 2)).reshape(-1, 8)
        loss = F.cross_entropy(h @ w2.T, y[k:k + BATCH])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(rounded(loss.item()))
state = {f"{name}.{key}": [rounded(v) for v in getattr(norm, key).tolist()]
         for name, norm in (("norm1", norm1), ("norm2", norm2))
         for key in ("running_mean", "running_var", "weight", "bias")}
print(json.dumps({"loss": losses, **state}, indent=1))
