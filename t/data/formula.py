# formula.py - the numbers that t/formula.c makes too, so that data files need only hold results
import math

import numpy as np


def wave(count, seed, low=-1.0, high=1.0):
    """count numbers between low and high that look random; float32 holds them exactly"""
    i = np.arange(count, dtype=np.float64)
    x = low + (high - low) * (np.sin(0.37 * i * i + 1.7 * i + seed) + 1) / 2
    return x.astype(np.float32).astype(np.float64)


def digest(values):
    """a tensor in three numbers: its norm and two projections"""
    v = np.asarray(values, dtype=np.float64).ravel()
    i = np.arange(v.size, dtype=np.float64)
    return [rounded(math.sqrt(float(v @ v))), rounded(float(v @ np.sin(0.9 * i + 0.2))),
            rounded(float(v @ np.cos(1.7 * i)))]


def rounded(x):
    return float("%.9g" % x)
