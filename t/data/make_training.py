#!/usr/bin/python3
# make_training.py - small trainings as PyTorch does them in float64: losses of twenty steps, gradients of the first
#
# Run in this folder: ./make_training.py > training.json.  t/training.c trains the same models from the same formulas.
import json
import math

import torch
import torch.nn.functional as F
from formula import digest, rounded, wave
from optimizers import Lion, Muon
from torch import nn

STEPS = 20


class Mlp(nn.Module):
    data = ("samples", (16, 20), 5)

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(20, 24), nn.Linear(24, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x)))))


class Cnn(nn.Module):
    data = ("samples", (6, 1, 10, 10), 4)

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3)
        self.fc1, self.fc2 = nn.Linear(6 * 3 * 3, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BatchNormCnn(nn.Module):
    data = ("samples", (6, 2, 9, 9), 4)

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 5, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(5)
        self.fc1, self.bn2 = nn.Linear(5 * 5 * 5, 12), nn.BatchNorm1d(12)
        self.fc2 = nn.Linear(12, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc2(torch.tanh(self.bn2(self.fc1(x.flatten(1)))))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def attention(self, x):
        B, T, C = x.shape
        q, k, v = (p.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for p in self.attn["c_attn"](x).split(C, 2))
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(C // self.heads)
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        return self.attn["c_proj"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    data = ("tokens", (3, 8), 11)

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 16), nn.Embedding(10, 16)
        self.h = nn.ModuleList([Block(16, 2) for _ in range(2)])
        self.ln_f = nn.LayerNorm(16)

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


def fill(model):
    """weights by formula: matrices by their inputs, the rest around 1 (norms) or 0 (biases)"""
    with torch.no_grad():
        for k, (name, p) in enumerate(sorted(model.named_parameters())):
            bound = 1 / math.sqrt(p[0].numel()) if p.dim() > 1 else 0.1
            centre = 1.0 if p.dim() == 1 and name.endswith("weight") else 0.0
            p.copy_(torch.tensor(wave(p.numel(), k, centre - bound, centre + bound)).view(p.shape))


def batch(model, step):
    kind, shape, classes = model.data
    n = math.prod(shape)
    if kind == "samples":
        x = torch.tensor(wave(n, 100 + step)).view(shape)
        return x, torch.tensor([(3 * i + step * step) % classes for i in range(shape[0])])
    x = torch.tensor([(i * i + step) % classes for i in range(n)]).view(shape)
    y = [-1 if i % 7 == 3 else (i * i + 2 * i + 1 + step) % classes for i in range(n)]
    return x, torch.tensor(y).view(shape)


def train(model, optimizer, clip):
    model = model.double()
    fill(model)
    optimizer = optimizer(model.parameters())
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        x, y = batch(model, step)
        logits = model(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {name: digest(p.grad) for name, p in model.named_parameters()}
        norms.append(rounded(nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf).item()))
        optimizer.step()
        losses.append(rounded(loss.item()))
    state = {name: digest(s) for name, s in model.named_buffers() if s.dim()}
    return {"losses": losses, "norms": norms, "gradients": gradients, "state": state}


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)


def amsgrad(parameters):
    return torch.optim.Adam(parameters, lr=3e-3, amsgrad=True, weight_decay=0.01)


def adagrad(parameters):
    return torch.optim.Adagrad(parameters, lr=0.02)


def rmsprop(parameters):
    return torch.optim.RMSprop(parameters, lr=2e-3, alpha=0.9, eps=1e-4, momentum=0.5, centered=True)


def lion(parameters):
    return Lion(parameters, lr=2**-10, weight_decay=0.1)


def muon(parameters):
    return Muon(parameters, lr=2**-6, adam_lr=3e-3, weight_decay=0.1)


RUNS = {"mlp": Mlp, "cnn": Cnn, "cnn with batch norm": BatchNormCnn, "gpt": Gpt}
if __name__ == "__main__":
    print("{\n" + ",\n".join(
        json.dumps(f"{name}, {optimizer.__name__}") + ": " + json.dumps(train(make(), optimizer, clip))
        for name, make, optimizer, clip in
        [(name, make, o, clip) for name, make in RUNS.items() for o, clip in ((sgd, 0), (adamw, 0.25))]
        + [("mlp", Mlp, o, 0) for o in (amsgrad, adagrad, rmsprop, lion)]
        + [("cnn", Cnn, muon, 0), ("gpt", Gpt, muon, 0.25)]) + "\n}")
