#!/usr/bin/python3
# make_halves.py - what PyTorch rounds to bfloat16 and float16, and its losses under autocast to bfloat16
#
# Run in this folder: ./make_halves.py > halves.json.  "rounding" is [float32, bfloat16, float16] by their bits;
# "trainings" are those of make_training.py, whose operators autocast puts into the same classes as we do.
import json
import random
import struct

import torch
import torch.nn.functional as F
from formula import rounded
from make_training import RUNS, STEPS, adamw, batch, fill, sgd
from torch import nn

SPECIAL = [0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x7f800000, 0x7f7fffff, 0x7fc00000, 0x7f800001,
           0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,  # ties of bfloat16
           0x3f801000, 0x3f803000, 0x3f800fff, 0x3f801001,  # ties of float16
           0x477fe000, 0x477fefff, 0x477ff000, 0x47800000,  # where float16 becomes infinite
           0x38800000, 0x387fffff, 0x387fe000, 0x387ff000, 0x38000000,  # where its subnormals begin
           0x33800000, 0x33000000, 0x33000001, 0x33c00000, 0x34200000, 0x32ffffff,  # and where they end
           0x7f7f7fff, 0x7f7f8000, 0x00008000, 0x00018000, 0x00007fff]


def bits_as(x, half):
    return x.to(half).view(torch.int16).item() & 0xffff


def rounding():
    random.seed(1)
    some = [random.getrandbits(31) for _ in range(60)]
    some += [random.randrange(0x33000000, 0x47900000) for _ in range(120)]  # what float16 has
    rows = []
    for bits in SPECIAL + some:
        for b in (bits, bits | 0x80000000):
            x = torch.tensor(struct.unpack("<f", struct.pack("<I", b))[0])
            if b & 0x7f800000 != 0x7f800000 or not b & 0x7fffff:
                rows.append([b, bits_as(x, torch.bfloat16), bits_as(x, torch.float16)])
    return rows


def train(model, optimizer, clip):
    fill(model)
    optimizer = optimizer(model.parameters())
    losses = []
    for step in range(STEPS):
        x, y = batch(model, step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x.float() if x.is_floating_point() else x)
        loss = F.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), y.reshape(-1), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(rounded(loss.item()))
    return losses


trainings = {f"{name}, {optimizer.__name__}": train(RUNS[name](), optimizer, clip)
             for name in ("mlp", "cnn", "gpt") for optimizer, clip in ((sgd, 0), (adamw, 0.25))}
print("{\n\"rounding\": [\n" + ",\n".join(map(json.dumps, rounding())) + "],\n\"trainings\": {\n" + ",\n".join(
    json.dumps(name) + ": " + json.dumps(losses) for name, losses in trainings.items()) + "\n}}")
