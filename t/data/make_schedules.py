#!/usr/bin/python3
# make_schedules.py - factors of PyTorch's schedules over 200 steps: torch.optim.lr_scheduler of version 1.13
#
# A warm-up is a LinearLR before the schedule, joined by SequentialLR.  Where PyTorch has no such schedule, its parts
# are joined.  Runs of equal factors are one pair [factor, how many].
#
# Run in this folder: ./make_schedules.py > schedules.json
import json
import math
import warnings

import torch
from formula import rounded
from torch.optim.swa_utils import SWALR

warnings.simplefilter("ignore")
O, L = torch.optim, torch.optim.lr_scheduler
STEPS = 200


def factors(make):
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    for step in range(STEPS):
        yield rounded(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def momenta(make=None, **options):
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    scheduler = make(optimizer) if make else L.OneCycleLR(optimizer, 1.0, STEPS, **options)
    for step in range(STEPS):
        yield rounded(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step()


def swa(before, start, **options):
    """the rate of the schedule up to a step and then of SWALR, as Lightning's StochasticWeightAveraging"""
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = before(optimizer)
    for step in range(STEPS):
        if step == start:
            scheduler = SWALR(optimizer, **options)
        yield rounded(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


def joined(*parts):
    """(schedule, steps) one after the other"""
    def make(optimizer):
        ends = [sum(n for _, n in parts[:k + 1]) for k in range(len(parts) - 1)]
        return L.SequentialLR(optimizer, [part(optimizer) for part, _ in parts], ends)
    return make


def rise(steps):
    return lambda o: L.LinearLR(o, 1 / (steps + 1), 1.0, steps), steps


def packed(values):
    runs = []
    for v in values:
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    return [v if n == 1 else [v, n] for v, n in runs]


def plateau(figures, **options):
    optimizer = O.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = L.ReduceLROnPlateau(optimizer, **options)
    for figure in figures:
        scheduler.step(figure)
        yield rounded(optimizer.param_groups[0]["lr"])


def figure(k):
    return rounded(1 + math.exp(-k / 20) + 0.1 * math.sin(0.37 * k * k))


def flat(o):
    return L.LambdaLR(o, lambda step: 1.0)


SCHEDULES = {
    "constant": factors(joined(rise(20), (flat, 180))),
    "linear": factors(lambda o: L.LinearLR(o, 1.0, 0.1, 200)),
    "linear, warm-up": factors(joined(rise(30), (lambda o: L.LinearLR(o, 1.0, 1e-9, 170), 170))),
    "cosine": factors(lambda o: L.CosineAnnealingLR(o, 200)),
    "cosine, warm-up": factors(joined(rise(20), (lambda o: L.CosineAnnealingLR(o, 180, 0.1), 180))),
    "polynomial": factors(lambda o: L.PolynomialLR(o, 200, 2.5)),
    "polynomial, warm-up": factors(joined(rise(50), (lambda o: L.PolynomialLR(o, 150), 150))),
    "step": factors(lambda o: L.StepLR(o, 30, 0.5)),
    "step, warm-up": factors(joined(rise(20), (lambda o: L.StepLR(o, 30), 180))),
    "multi_step": factors(lambda o: L.MultiStepLR(o, [10, 70, 71, 150], 0.3)),
    "exponential": factors(lambda o: L.ExponentialLR(o, 0.97)),
    "cosine_restarts": factors(lambda o: L.CosineAnnealingWarmRestarts(o, 30, 1, 0.1)),
    "cosine_restarts, longer": factors(lambda o: L.CosineAnnealingWarmRestarts(o, 10, 2)),
    "one_cycle": factors(lambda o: L.OneCycleLR(o, 1.0, STEPS, cycle_momentum=False)),
    "one_cycle, linear": factors(lambda o: L.OneCycleLR(o, 1.0, STEPS, pct_start=0.45, anneal_strategy="linear",
                                                        div_factor=10, final_div_factor=100, cycle_momentum=False)),
    "one_cycle, three phases": factors(lambda o: L.OneCycleLR(o, 1.0, STEPS, three_phase=True,
                                                              cycle_momentum=False)),
    "one_cycle, momentum": momenta(),
    "one_cycle, momentum, linear": momenta(pct_start=0.45, anneal_strategy="linear", base_momentum=0.5,
                                           max_momentum=0.75),
    "one_cycle, momentum, three phases": momenta(three_phase=True),
    "swa": swa(flat, 160, swa_lr=0.05),
    "swa, cosine before it": swa(lambda o: L.CosineAnnealingLR(o, 200), 100, swa_lr=0.75, anneal_epochs=30),
    "swa, linear": swa(lambda o: L.CosineAnnealingLR(o, 200), 100, swa_lr=0.75, anneal_epochs=30,
                       anneal_strategy="linear"),
    "swa, at once": swa(flat, 160, swa_lr=2.0, anneal_epochs=0),
    "warmup_stable_decay": factors(joined(rise(20), (flat, 130), (lambda o: L.LinearLR(o, 1.0, 0.1, 50), 50))),
    "warmup_stable_decay, cosine": factors(joined((flat, 150), (lambda o: L.CosineAnnealingLR(o, 50), 50))),
    "warmup_stable_decay, sqrt": factors(joined(
        (flat, 160), (lambda o: L.LambdaLR(o, lambda k: 1 - math.sqrt(k / 40)), 40))),
    "ramp": factors(lambda o: L.LinearLR(o, 0.25, 0.75, 80)),
    "ramp, constant": factors(joined((lambda o: L.ConstantLR(o, 0.3, 1000), 50), (flat, 150))),
    "ramp, cosine": factors(lambda o: L.LambdaLR(o, lambda k: 1 - 0.5 * (1 + math.cos(math.pi * min(k, 150) / 150)) / 2)),
    "sequential": factors(joined(rise(30), (lambda o: L.CosineAnnealingLR(o, 100, 0.1), 100),
                                 (lambda o: L.StepLR(o, 15, 0.5), 70))),
    "sequential, nested": factors(joined(
        (lambda o: L.ExponentialLR(o, 0.95), 40), (lambda o: L.PolynomialLR(o, 60, 2.0), 60),
        (lambda o: L.CosineAnnealingWarmRestarts(o, 10, 2), 100))),
    "sequential, momentum": momenta(joined((lambda o: L.ExponentialLR(o, 0.97), 50),
                                           (lambda o: L.OneCycleLR(o, 1.0, 100), 100), (flat, 50))),
    "chained": factors(lambda o: L.ChainedScheduler([L.LinearLR(o, 0.1, 1.0, 40), L.ExponentialLR(o, 0.98),
                                                     L.StepLR(o, 60, 0.5)])),
    "chained, multi_step": factors(lambda o: L.ChainedScheduler([L.MultiStepLR(o, [50, 120], 0.3),
                                                               L.PolynomialLR(o, 200, 1.0)])),
    "metrics": [figure(k) for k in range(STEPS)],
    "reduce_on_plateau": plateau(map(figure, range(STEPS)), factor=0.5, patience=5),
    "reduce_on_plateau, more is better": plateau(map(figure, range(STEPS)), mode="max", factor=0.9, patience=2),
    "reduce_on_plateau, max": plateau((-figure(k) for k in range(STEPS)), mode="max", factor=0.7, patience=3,
                                      threshold=0.01, threshold_mode="abs", cooldown=4, min_lr=0.05),
}
print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(packed(v)) for k, v in SCHEDULES.items()) + "\n}")
