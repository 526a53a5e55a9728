#!/usr/bin/env python3
"""PyTorch's milliseconds of a training step: the peer of t/bench/step, as a line of JSON.

    torch_peer.py step WORKLOAD [--threads N] [--reps N] [--seconds S] [--compile]

A step clears gradients, and does forward, backward and optimizer on data in memory, in float32.  Each workload has a model
of the same name, with as many parameters, in t/bench/workloads.c; both print how many.
"cores" is processor time over wall time: it must not exceed the threads.
"""
import argparse
import json
import os
import statistics
import sys
import time

GPT = {  # layers, heads, width, context, vocabulary, bias, shape of a batch
    "gpt-small": (4, 4, 128, 64, 65, False, (12, 64)),
    "gpt-char": (6, 6, 384, 256, 65, False, (8, 256)),
    "gpt2": (12, 12, 768, 1024, 50257, True, (4, 64)),
}
OTHERS = ("mlp", "cnn", "resnet18", "vit-tiny", "lstm", "llama", "table")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("command", choices=["step"])
parser.add_argument("workload", choices=[*GPT, *OTHERS])
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--reps", type=int, default=7, help="repetitions, of which the median counts")
parser.add_argument("--seconds", type=float, default=1, help="about how long a repetition is")
parser.add_argument("--compile", action="store_true", help="torch.compile() of model and loss")
args = parser.parse_args()

# The pools of the libraries read their size when they are loaded.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[library + "_NUM_THREADS"] = str(args.threads)

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, bias, causal, rotary=None):
        super().__init__()
        self.heads, self.causal, self.rotary = heads, causal, rotary
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def turn(self, x):
        """Rotary embedding of x [B, heads, T, d], with pairs i and i + d / 2."""
        cosine, sine = self.rotary
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat((-right, left), -1) * sine

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(C, 2))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads, bias, causal, gelu, epsilon):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.attention, self.gelu = Attention(width, heads, bias, causal), gelu
        self.up, self.down = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary, bias):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, bias, True, "tanh", 1e-5) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1])))))


class Vit(nn.Module):
    def __init__(self, width=192, heads=3, layers=12, patch=16, size=224, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.label = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros((size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, True, False, "none", 1e-6) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.label.expand(len(x), -1, -1), x), 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, hidden, rotary):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.attention = Attention(width, heads, False, True, rotary)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width=288, heads=6, layers=6, hidden=768, vocabulary=32000, context=256):
        super().__init__()
        d = width // heads
        angle = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        rotary = (angle.cos(), angle.sin())
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, hidden, rotary) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width, 1e-5), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x))))


class Residual(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


def resnet18(classes=10):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for into, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [Residual(into, out, out // into), Residual(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Lstm(nn.Module):
    def __init__(self, vocabulary=65, width=512, layers=2):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0])


class Table(nn.Module):
    def __init__(self, columns=20, categories=1000, width=16):
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(categories, width) for _ in range(columns))
        self.rest = nn.Sequential(nn.Linear(columns * width, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(),
                                  nn.Linear(100, 1))

    def forward(self, x):
        return self.rest(torch.cat([column(x[:, k]) for k, column in enumerate(self.columns)], 1))


def mlp():
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def tokens(shape, classes):
    return torch.randint(0, classes, shape), torch.randint(0, classes, shape)


def samples(shape, classes):
    return torch.rand(shape), torch.randint(0, classes, shape[:1])


def cells(shape, classes):
    return torch.randint(0, classes, shape), torch.randint(0, 2, (shape[0], 1)).float()


def cross_entropy(logits, y):
    return F.cross_entropy(logits.flatten(0, -2), y.flatten())


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1)


def workload(name):
    """-> model, optimizer, function that draws a batch, loss of logits and targets"""
    if name in GPT:
        *size, shape = GPT[name]
        model = Gpt(*size)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        return model, adamw, lambda: tokens(shape, size[4]), cross_entropy
    return {
        "mlp": lambda: (mlp(), lambda p: torch.optim.SGD(p, lr=0.01), lambda: samples((64, 784), 10), cross_entropy),
        "cnn": lambda: (cnn(), torch.optim.Adam, lambda: samples((64, 1, 28, 28), 10), cross_entropy),
        "resnet18": lambda: (resnet18(), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
                             lambda: samples((32, 3, 64, 64), 10), cross_entropy),
        "vit-tiny": lambda: (Vit(), adamw, lambda: samples((8, 3, 224, 224), 1000), cross_entropy),
        "lstm": lambda: (Lstm(), adamw, lambda: tokens((32, 64), 65), cross_entropy),
        "llama": lambda: (Llama(), adamw, lambda: tokens((4, 256), 32000), cross_entropy),
        "table": lambda: (Table(), adamw, lambda: cells((256, 20), 1000), F.binary_cross_entropy_with_logits),
    }[name]()


def main():
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, optimizer, draw, criterion = workload(args.workload)
    optimizer = optimizer(model.parameters())
    batches = [draw()]
    batches += [draw() for _ in range(7 if batches[0][0].numel() > 100000 else 99)]     # as t/bench/step

    def loss_of(x, y):
        return criterion(model(x), y)

    if args.compile:
        loss_of = torch.compile(loss_of)

    def run(steps):
        """-> milliseconds of a step"""
        began = time.perf_counter()
        for k in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss_of(*batches[k % len(batches)]).backward()
            optimizer.step()
        return (time.perf_counter() - began) / steps * 1e3

    run(2)
    steps = int(args.seconds * 1e3 / run(2)) + 1
    run(steps // 4 + 1)
    wall, processor = time.perf_counter(), time.process_time()
    ms = [run(steps) for _ in range(max(1, args.reps))]
    processor = time.process_time() - processor
    cores = processor / (time.perf_counter() - wall)
    print(json.dumps({"peer": "torch " + torch.__version__, "name": "step " + args.workload, "threads": args.threads,
                      "compiled": args.compile, "ms": statistics.median(ms), "min": min(ms), "max": max(ms),
                      "processor_ms": processor / len(ms) / steps * 1e3, "cores": round(cores, 2),
                      "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    sys.exit(main())
