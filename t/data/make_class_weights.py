#!/usr/bin/python3
# make_class_weights.py - small trainings of examples/mlp.c and examples/cnn.c with weighted classes, as PyTorch does
# them in float64
#
# Run in this folder: writes class_weights.json, the loss of each step, of each epoch and the weights at the end, and
# mlp.safetensors and cnn.safetensors, the weights at the beginning.  t/class_weights.c trains the same.
import json
import math
import struct

import numpy as np
import torch
import torch.nn.functional as F
from formula import rounded, wave
from torch import nn

SAMPLES, BATCH, EPOCHS, RATE = 13, 5, 3, 0.5


class Mlp(nn.Module):
    shape = (6,)

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class Cnn(nn.Module):
    shape = (1, 6, 6)

    def __init__(self):
        super().__init__()
        self.conv1, self.fc1, self.fc2 = nn.Conv2d(1, 2, 3), nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def begin(model):
    with torch.no_grad():
        for k, (_, p) in enumerate(sorted(model.named_parameters())):
            p.copy_(torch.tensor(wave(p.numel(), k)).view(p.shape))
    return model


def train(model, classes, weighs):
    model = begin(model().double())
    x = torch.tensor(wave(SAMPLES * math.prod(model.shape), 7)).view(SAMPLES, *model.shape)
    y = torch.tensor([(i * i + i // 3) % 3 for i in range(SAMPLES)])
    counts = torch.tensor([(i % 4) / 2 if weighs else 1.0 for i in range(SAMPLES)], dtype=torch.float64)
    classes = torch.tensor(classes, dtype=torch.float64) if classes else None
    one = torch.ones(3, dtype=torch.float64) if classes is None else classes
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    steps, epochs = [], []
    for _ in range(EPOCHS):
        total = count = 0.0
        for at in range(0, SAMPLES, BATCH):
            some = slice(at, at + BATCH)
            each = F.cross_entropy(model(x[some]), y[some], weight=classes, reduction="none")
            loss, weight = (each * counts[some]).sum(), (one[y[some]] * counts[some]).sum()
            optimizer.zero_grad()
            (loss / weight).backward()
            optimizer.step()
            steps.append(rounded((loss / weight).item()))
            total, count = total + loss.item(), count + weight.item()
        epochs.append(rounded(total / count))
    return {"steps": steps, "epochs": epochs,
            "weights": {name: [rounded(v) for v in p.flatten().tolist()] for name, p in model.named_parameters()}}


def save(model, path):
    header, data = {}, b""
    for name, p in begin(model()).named_parameters():
        one = p.detach().numpy().astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [len(data), len(data) + len(one)]}
        data += one
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


results = []
for name, model in ("mlp", Mlp), ("cnn", Cnn):
    save(model, name + ".safetensors")
    for classes in [], [1, 2.5, 0.25], [0, 1, 3]:
        for weighs in False, True:
            results.append({"module": name, "class_weights": classes, "weighs": weighs,
                            **train(model, classes, weighs)})
with open("class_weights.json", "w") as file:
    file.write("[\n" + ",\n".join(json.dumps(r) for r in results) + "\n]\n")
