#!/usr/bin/python3
# make_numerics.py - what PyTorch computes in float64 from float32 numbers that cost float32 its digits, for t/cpu.c
#
# Run in this folder: ./make_numerics.py > numerics.json
import json

import numpy as np
import torch
import torch.nn.functional as F
from formula import wave


def numbers(shape, low, high, place=1):
    data = wave(int(np.prod(shape)), place, low, high).astype(np.float32)
    return torch.tensor(data.astype(np.float64)).reshape(shape)


def attention(q, k, v, mask=None, causal=False):
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool)
    if causal:
        seen = seen.tril()
    if mask is not None:
        seen = seen & (torch.tensor(mask) != 0)[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def batch_norm(x, weight, bias, mean, var):
    return F.batch_norm(x, mean, var, weight, bias, training=True, momentum=.1, eps=1e-5)


def batch_norm_given(x, weight, bias, mean, var):
    return F.batch_norm(x, mean, var, weight, bias, training=False, eps=1e-5)


def constant(rows, *values):
    return torch.tensor(np.tile(np.float32(values).astype(np.float64), (rows, 1)))


def result(case, function, params, tolerance, dy=None, index=None, state=None):
    """params: name -> tensor, state likewise; both in the order of the function's arguments"""
    params = {name: t.requires_grad_() for name, t in params.items()}
    state = state or {}
    start = {name: t.tolist() for name, t in state.items()}
    targets = [] if index is None else [torch.tensor(index)]
    y = function(*params.values(), *state.values(), *targets)
    out = {"case": case, "tolerance": tolerance, "shapes": [list(t.shape) for t in params.values()],
           "values": {n: t.detach().flatten().tolist() for n, t in params.items()} | start}
    if index is not None:
        out["index"] = index
    if dy is not None:
        out["values"]["dy"] = dy.flatten().tolist()
        y.backward(dy)
        out["gradients"] = {n: t.grad.flatten().tolist() for n, t in params.items()}
        out["state"] = {n: t.tolist() for n, t in state.items()}
    out["y"] = y.detach().flatten().tolist()
    return out


HEADS = (2, 2, 5, 4)
MASK = [[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]]


def qkv(shape, size):
    return {"a": numbers(shape, -size, size, 1), "b": numbers(shape, -size, size, 2), "c": numbers(shape, -1, 1, 3)}


def hidden_are_large():
    """keys that the mask hides have the largest scores by far"""
    tensors = qkv(HEADS, 2)
    for batch, row in enumerate(MASK):
        for key, seen in enumerate(row):
            if not seen:
                tensors["b"][batch, :, key] *= 1 << 20
    return tensors


def loss(x, i):
    return F.cross_entropy(x, i, reduction="sum")


one = torch.tensor(1.0, dtype=torch.float64)
statistics = {"bn.running_mean": [0., 1, 2], "bn.running_var": [1., .5, 2]}


def norm(x):
    return {"a": x, "bn.weight": numbers((3,), .5, 2), "bn.bias": numbers((3,), -1, 1)}


def kept(values=None):
    return {n: torch.tensor(v, dtype=torch.float64) for n, v in (values or statistics).items()}


RESULTS = {
    "cross entropy of logits near 1e5": result(
        "cross_entropy", loss, {"a": numbers((6, 5), 99998, 100002)}, 1e-6, one, [1, 2, 0, 0, 2, 4]),
    "cross entropy of logits up to 1e5": result(
        "cross_entropy", loss, {"a": numbers((6, 5), -1e5, 1e5)}, 1e-6, one, [1, 2, 0, 0, 2, 4]),
    "cross entropy of equal logits of 3e38": result(
        "cross_entropy", loss, {"a": constant(2, 3e38, 3e38, 3e38)}, 1e-6, one, [1, 2]),
    "cross entropy of one class": result(
        "cross_entropy", loss, {"a": constant(2, 77.7)}, 0, one, [0, 0]),
    "softmax of numbers near 1e5": result(
        "softmax", lambda x: x.softmax(-1), {"a": numbers((3, 5), 99998, 100002)}, 1e-6, numbers((3, 5), -1, 1)),
    "attention with scores of hundreds": result(
        "attention", attention, qkv(HEADS, 16), 4e-5, numbers(HEADS, -1, 1, 4)),
    "attention with scores of hundreds, causal": result(
        "attention, causal", lambda *x: attention(*x, causal=True), qkv(HEADS, 16), 4e-5, numbers(HEADS, -1, 1, 4)),
    "attention to one key": result(
        "attention", attention, qkv((2, 1, 1, 3), 30), 0, numbers((2, 1, 1, 3), -1, 1, 4)),
    "attention beside hidden keys with scores of a million": result(
        "attention, mask", lambda *x: attention(*x, mask=MASK), hidden_are_large(), 1e-6, numbers(HEADS, -1, 1, 4)),
    "batch norm of constant channels": result(
        "batch_norm", batch_norm, norm(constant(21, 1e4, .1, -3e6)), 1e-6, numbers((21, 3), -1, 1), state=kept()),
    "batch norm of constant pictures": result(
        "batch_norm, images", lambda x, w, b, *s: F.batch_norm(x, *s, w, b, training=True, momentum=.25, eps=1e-5),
        norm(constant(2 * 35, 1e4, .1, -3e6).reshape(2, 7, 5, 3).permute(0, 3, 1, 2).contiguous()), 1e-6,
        numbers((2, 3, 7, 5), -1, 1), state=kept()),
    "batch norm of constant channels, when validating": result(
        "batch_norm, when validating", batch_norm_given, norm(constant(21, 1e4, .1, -3e6)), 1e-6,
        state=kept({"bn.running_mean": [1e4, np.float64(np.float32(.1)), -3e6], "bn.running_var": [0., 0, 0]})),
    "layer norm of constant rows": result(
        "layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        {"a": constant(19, 1e4, .1, -3e6).T.contiguous(), "b": numbers((19,), .5, 2), "c": numbers((19,), -1, 1)},
        1e-6, numbers((3, 19), -1, 1)),
}
print("{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in RESULTS.items()) + "\n}")
