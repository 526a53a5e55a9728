#!/usr/bin/python3
# make_optimizers.py - 200 steps of PyTorch's optimizers on a small bowl, shaken by gradients by formula
#
# Run in this folder: ./make_optimizers.py > optimizers.json
import json

import torch
from formula import digest, wave
from optimizers import Lion, Muon
from torch import nn
from torch.optim.swa_utils import AveragedModel

SHAPES = {"w1": (3, 4), "b1": (5,), "b2": (2,), "w2": (2, 3, 2), "w3": (6, 2, 1, 2)}
STEPS = 200


def steps(make, clip=0.0, average=None, when=None, schedule=None, values=None):
    """where 200 steps end; with a function for torch's AveragedModel, where their average does; values: of each step,
    as factors on those of the groups"""
    tensors = [torch.tensor(wave(int(torch.Size(s).numel()), k)).view(s).requires_grad_()
               for k, s in enumerate(SHAPES.values())]
    optimizer = make(tensors)
    scheduler = schedule(optimizer) if schedule else None
    averaged = AveragedModel(nn.ParameterList(tensors), avg_fn=average) if when else None
    first = [dict(group) for group in optimizer.param_groups]
    for step in range(STEPS):
        for group, own in zip(optimizer.param_groups, first):
            for name, factor in (values or {}).items():
                if name == "beta1":
                    group["betas"] = own["betas"][0] * factor(step), own["betas"][1]
                else:
                    group[name] = own[name] * factor(step)
        for k, t in enumerate(tensors):
            t.grad = torch.tensor(wave(t.numel(), 10 * step + k)).view(t.shape) / 8 + t.detach() / 4
        if clip:
            torch.nn.utils.clip_grad_norm_(tensors, clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
        if when and when(step):
            averaged.update_parameters(nn.ParameterList(tensors))
    return [digest(t.detach()) for t in (averaged.parameters() if when else tensors)]


def groups(tensors, decay):
    return [{"params": [t for t in tensors if t.dim() > 1], "weight_decay": decay},
            {"params": [t for t in tensors if t.dim() < 2], "weight_decay": 0}]


def ramp(start, end, length):
    return lambda step: start + (end - start) * min(step / length, 1)


# A momentum that rises, and a weight decay that falls: "ramp"
MOMENTUM, BETA1 = ({name: ramp(0.25, 1, 100)} for name in ("momentum", "beta1"))
DECAY = {"weight_decay": ramp(2, 0.5, 150)}
O = torch.optim
OPTIMIZERS = {
    "sgd": steps(lambda p: O.SGD(p, lr=0.1)),
    "sgd, momentum": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.9)),
    "sgd, dampening": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.9, dampening=0.25)),
    "sgd, nesterov, decay": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1)),
    "sgd, decay of matrices only": steps(lambda p: O.SGD(groups(p, 0.1), lr=0.1)),
    "sgd, clipped": steps(lambda p: O.SGD(p, lr=0.1), 0.125),
    "adam": steps(lambda p: O.Adam(p, lr=0.01)),
    "adam, decay": steps(lambda p: O.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
    "adam, amsgrad": steps(lambda p: O.Adam(p, lr=0.01, betas=(0.8, 0.9), amsgrad=True)),
    "adamw": steps(lambda p: O.AdamW(p, lr=0.01, weight_decay=0.1)),
    "adamw, decay of matrices only": steps(lambda p: O.AdamW(groups(p, 0.1), lr=0.01, betas=(0.9, 0.99))),
    "adamw, groups": steps(lambda p: O.AdamW([
        {"params": p[:1], "lr": 0.02, "betas": (0.5, 0.999)}, {"params": p[1:2], "weight_decay": 0},
        {"params": p[2:4], "weight_decay": 0.2, "betas": (0.9, 0.9)}, {"params": p[4:]}], lr=0.01, weight_decay=0.1)),
    "sgd, groups": steps(lambda p: O.SGD([{"params": [p[0], p[3], p[4]], "momentum": 0.9}, {"params": [p[1]]},
                                          {"params": [p[2]], "lr": 0}], lr=0.1)),
    "adamw, amsgrad": steps(lambda p: O.AdamW(p, lr=0.01, betas=(0.9, 0.9), amsgrad=True)),
    "adagrad": steps(lambda p: O.Adagrad(p, lr=0.1)),
    "adagrad, all": steps(lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.01, weight_decay=0.1,
                                              initial_accumulator_value=0.5, eps=1e-6)),
    "rmsprop": steps(lambda p: O.RMSprop(p, lr=0.01)),
    "rmsprop, momentum": steps(lambda p: O.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.8, weight_decay=0.1)),
    "rmsprop, centered": steps(lambda p: O.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3, centered=True)),
    "rmsprop, centered, momentum": steps(lambda p: O.RMSprop(p, lr=0.01, momentum=0.8, eps=1e-2, centered=True)),
    "radam": steps(lambda p: O.RAdam(p, lr=0.01)),
    "radam, decay": steps(lambda p: O.RAdam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
    "radam, decoupled": steps(lambda p: O.RAdam(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1,
                                                decoupled_weight_decay=True)),
    "radam, one_cycle": steps(lambda p: O.RAdam(p, lr=0.01),
                              schedule=lambda o: O.lr_scheduler.OneCycleLR(o, 0.01, STEPS)),
    "nadam": steps(lambda p: O.NAdam(p, lr=0.01)),
    "nadam, decay": steps(lambda p: O.NAdam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1,
                                            momentum_decay=0.01)),
    "nadam, decoupled": steps(lambda p: O.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
    "adamax": steps(lambda p: O.Adamax(p, lr=0.01)),
    "adamax, decay": steps(lambda p: O.Adamax(p, lr=0.01, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
    "adamax, one_cycle": steps(lambda p: O.Adamax(p, lr=0.01),
                               schedule=lambda o: O.lr_scheduler.OneCycleLR(o, 0.01, STEPS)),
    "adafactor": steps(lambda p: O.Adafactor(p, lr=0.01, eps=(2**-23, 1e-3))),
    "adafactor, all": steps(lambda p: O.Adafactor(p, lr=0.1, beta2_decay=-0.5, eps=(0.015625, 0.5), d=2,
                                                  weight_decay=0.1)),
    "lion": steps(lambda p: Lion(p, lr=2**-7)),
    "lion, decay": steps(lambda p: Lion(p, lr=2**-7, betas=(0.8, 0.95), weight_decay=0.1)),
    "muon": steps(lambda p: Muon(p, lr=2**-6)),
    "muon, all": steps(lambda p: Muon(p, lr=2**-5, momentum=0.9, nesterov=False, rounds=3, weight_decay=0.1,
                                      adam_lr=0.01)),
    "sgd, ema": steps(lambda p: O.SGD(p, lr=0.1), 0, lambda a, p, n: 0.96875 * a + 0.03125 * p, lambda step: True),
    "sgd, ema, warm-up": steps(lambda p: O.SGD(p, lr=0.1), 0,
                               lambda a, p, n: p + min(0.96875, (1 + n) / (10 + n)) * (a - p),
                               lambda step: step >= 20 and step % 4 == 0),
    "sgd, swa": steps(lambda p: O.SGD(p, lr=0.1), 0, None, lambda step: step >= 100 and step % 20 == 19),
    "sgd, one_cycle": steps(lambda p: O.SGD(p, lr=0.1), schedule=lambda o: O.lr_scheduler.OneCycleLR(o, 0.1, STEPS)),
    "adam, one_cycle": steps(lambda p: O.Adam(p, lr=0.01),
                             schedule=lambda o: O.lr_scheduler.OneCycleLR(o, 0.01, STEPS)),
    "adamw, one_cycle": steps(lambda p: O.AdamW(p, lr=0.01, weight_decay=0.1),
                              schedule=lambda o: O.lr_scheduler.OneCycleLR(o, 0.01, STEPS)),
    "rmsprop, one_cycle": steps(lambda p: O.RMSprop(p, lr=0.01), schedule=lambda o: O.lr_scheduler.OneCycleLR(
        o, 0.01, STEPS, three_phase=True, base_momentum=0.5)),
    "sgd, scheduled": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), values=MOMENTUM | DECAY),
    "sgd, nesterov, scheduled": steps(lambda p: O.SGD(p, lr=0.1, momentum=0.8, nesterov=True), values=MOMENTUM),
    "sgd, groups, scheduled": steps(lambda p: O.SGD([
        {"params": [p[0], p[3], p[4]], "momentum": 0.9}, {"params": [p[1]], "weight_decay": 0.2},
        {"params": [p[2]]}], lr=0.1, momentum=0.5), values=MOMENTUM | DECAY),
    "adam, scheduled": steps(lambda p: O.Adam(p, lr=0.01, weight_decay=0.1), values=BETA1 | DECAY),
    "adamw, scheduled": steps(lambda p: O.AdamW(p, lr=0.01, weight_decay=0.1), values=BETA1 | DECAY),
    "adamw, matrices, scheduled": steps(lambda p: O.AdamW(groups(p, 0.1), lr=0.01), values=DECAY),
    "adamax, scheduled": steps(lambda p: O.Adamax(p, lr=0.01, weight_decay=0.1), values=BETA1 | DECAY),
    "radam, scheduled": steps(lambda p: O.RAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
                              values=BETA1 | DECAY),
    "rmsprop, scheduled": steps(lambda p: O.RMSprop(p, lr=0.01, momentum=0.8, weight_decay=0.1),
                                values=MOMENTUM | DECAY),
    "lion, scheduled": steps(lambda p: Lion(p, lr=2**-7, weight_decay=0.1), values=BETA1 | DECAY),
    "adagrad, scheduled": steps(lambda p: O.Adagrad(p, lr=0.1, weight_decay=0.1), values=DECAY),
    "nadam, scheduled": steps(lambda p: O.NAdam(p, lr=0.01, weight_decay=0.1), values=DECAY),
    "adafactor, scheduled": steps(lambda p: O.Adafactor(p, lr=0.01, eps=(2**-23, 1e-3), weight_decay=0.1),
                                  values=DECAY),
    "muon, scheduled": steps(lambda p: Muon(p, lr=2**-6, weight_decay=0.1), values=MOMENTUM | DECAY),
    "muon, as adam": steps(lambda p: Muon(p, adam_lr=0.01, least=99)),
}
print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in OPTIMIZERS.items()) + "\n}")
