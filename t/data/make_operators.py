#!/usr/bin/python3
# make_operators.py - what PyTorch computes for the cases of t/operator_cases.c: digests of y and of each gradient
#
# Run in this folder: ./make_operators.py > operators.json
import json

import numpy as np
import torch
import torch.nn.functional as F
from formula import digest, wave


def masked_attention(q, k, v, mask, causal):
    seen = (torch.tensor(mask) != 0)[:, None, None, :].expand(-1, -1, q.shape[2], -1)
    if causal:
        seen = seen & torch.ones(seen.shape[-2:], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def attention(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return scores.softmax(-1) @ v


def wide_attention(q, k, v, causal=False, window=0, kind=0, scale=None):
    B, H, T, S = *q.shape[:3], k.shape[2]
    i, j = torch.arange(T)[:, None], torch.arange(S)
    n = torch.arange(T * S, dtype=torch.float64)
    bias = (n * 7 % 11 / 8 - .5).reshape(T, S)
    seen = ((n.reshape(T, S) // S != 1) & (n.reshape(T, S) % 3 != 1)) if kind >= 3 else torch.ones(T, S).bool()
    seen = seen & (j <= i) if causal else seen
    seen = seen & ((i - j).abs() < window) if window else seen
    if kind == 2:
        bias = (torch.arange(B * S, dtype=torch.float64) * 7 % 11 / 8 - .5).reshape(B, 1, 1, S)
    elif kind == 4:
        bias = q.flatten()[:H * T * S].reshape(H, T, S)
    elif kind != 1:
        bias = torch.zeros(T, S)
    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT * (scale or q.shape[-1] ** -.5) + bias).masked_fill(~seen, -1e30)
    return scores.softmax(-1) * seen @ v


def info_nce(a, b, temperature=.1):
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / temperature
    own = torch.arange(len(a))
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def of_ranks(x, most):
    """The rows of the middle one of three ranks, where the others have zeros."""
    return torch.cat([x.new_zeros(most, *x.shape[1:]), x,
                      x.new_zeros(2 * most - len(x), *x.shape[1:])])


def rotary(x, base, first, interleaved):
    T, d = x.shape[-2:]
    angle = (torch.arange(T)[:, None] + first) * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    if interleaved:
        pair = torch.view_as_complex(x.reshape(*x.shape[:-1], d // 2, 2)) * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(pair).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def rotary_attention(q, k, v, causal=False, base=10000, first=0, interleaved=False, kind=0):
    B, H, T, S = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    seen = torch.ones(B, 1, T, S, dtype=torch.bool)
    if kind == 1:
        seen = seen & (torch.arange(B * S) % 3 != 1).reshape(B, 1, 1, S)
    if causal:
        seen = seen.tril()
    bias = q.flatten()[:S] if kind == 2 else torch.zeros(S)
    q, k = rotary(q, base, first, interleaved), rotary(k, base, 0, interleaved)
    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))
    return (q @ k.mT * q.shape[-1] ** -.5 + bias).masked_fill(~seen, -torch.inf).softmax(-1) @ v


def self_attention(x, causal=True, first=0):
    B, T, C = x.shape[0], x.shape[1], x.shape[2] // 3
    parts = [part.reshape(B, T, 2, C // 2).transpose(1, 2) for part in x.split(C, 2)]
    q, k, v = (parts[(i - first) % 3] for i in range(3))
    return attention(q, k, v, causal).transpose(1, 2).reshape(B, T, C)


def parts(x, n, dim):
    y = 1
    for part in x.chunk(n, dim):
        y = y * part
    return y


def recurrent(name, shape, units, gru=False, layers=1, both=False, states=False, bias=True, last=False, lengths=None):
    B, T, I = shape
    cell = (torch.nn.GRU if gru else torch.nn.LSTM)(I, units, layers, bias, True, 0, both).double()
    names = [n for n, _ in cell.named_parameters()]
    count = (1 if gru else 2) if states else 0
    state = (layers * (2 if both else 1), B, units)

    def function(x, *rest):
        first, weights = rest[:count], dict(zip(names, rest[count:]))
        if lengths:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, rest[-1], True, False)
        y, end = torch.func.functional_call(cell, weights, (x, first[0] if gru else first) if states else (x,))
        if lengths:
            y = torch.nn.utils.rnn.pad_packed_sequence(y, True, total_length=T)[0]
        return torch.cat([t.flatten() for t in (y, *((end,) if gru else end))]) if last else y

    return name, function, [shape] + [state] * count + [tuple(p.shape) for p in cell.parameters()], -1, 1, lengths


def ctc(name, shape, labels, low, high, short=False, total=False, zero=False):
    B, T, C = shape
    steps = [T - (k % 3 if short else 0) for k in range(B)]
    counts = [k % (labels + 1) if short else labels for k in range(B)]
    if zero:
        steps[-1] = 1
    sizes = torch.tensor(steps), torch.tensor(counts)

    def function(a, i):
        return F.ctc_loss(a.log_softmax(-1).transpose(0, 1), i, *sizes, C - 1, "sum" if total else "mean", zero)

    return name, function, [shape], low, high, ((B, labels), C - 1, None)


def batch_norm(x, weight, bias, mean, var):
    return F.batch_norm(x, mean, var, weight, bias, training=True, momentum=M[0], eps=1e-5)


def frame(x, w):
    x = F.pad(F.conv2d(x, w, padding=1), (2, 1, 1, 0, 0, 1), value=.5)
    return F.interpolate(x, (7, 11), mode="bilinear").relu()


CONSTANT = "sign", "sign, zeros", "floor", "ceil", "round", "round, ties"  # without a gradient
M = [0.1]
MASKS = [[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]], [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]
CLASS = torch.tensor([.5, 2, 0, 1, 1, 3.25], dtype=torch.float64)
ROW = torch.tensor([1, .25, 4, 1, 0, 2, 2, 1.5], dtype=torch.float64)
MSE = torch.tensor([2, 0, .5], dtype=torch.float64)


def both_weights(a, i):
    """each row counts CLASS[target] * ROW[row]; those ignored, nothing"""
    w = torch.where(i >= 0, CLASS[i.clamp(min=0)] * ROW, torch.zeros_like(ROW))
    return (F.cross_entropy(a, i, reduction="none", ignore_index=-1) * w).sum() / w.sum()


def both_bce_weights(a, b):
    w = torch.tensor([1, .25, 0, 2], dtype=torch.float64)
    p = torch.tensor([2, .5, 1, 3], dtype=torch.float64)
    return F.binary_cross_entropy_with_logits(a, b.sigmoid(), w, reduction="sum", pos_weight=p) / (3 * w.sum())


def kl(a, b):
    """targets below 0.25 are 0"""
    t = b.softmax(-1)
    return F.kl_div(a.log_softmax(-1), torch.where(t < .25, torch.zeros_like(t), t), reduction="batchmean")


def compared(a, i):
    return torch.cat([i == 2, 2 < i, i > torch.arange(5), i >= 1.5, i <= a * 3, (i != 0) & (i != 3),
                      torch.where(i != 0, a, i.double()), i != i], 1).detach()


def limited(a, low, high):
    """what pl_cast() defines where PyTorch does not"""
    return a.trunc().clamp(low, high).detach()


def added(a, b, i, axis):
    return a.scatter_add(axis, i, b)


def first(a, k, axis):
    """topk() takes any of equal ones"""
    return a.sort(dim=axis, descending=True, stable=True).values.narrow(axis, 0, k)


def sorted_at(a, axis, descending):
    return a.log().detach().sort(dim=axis, descending=descending, stable=True).indices.double()


C = [  # name, function, shapes, low, high, indices (shape, classes, ignored)
    ("add", torch.add, [(3, 5), (3, 5)]),
    ("add, a row to each", torch.add, [(2, 3, 5), (5,)]),
    ("add, a column and a row", torch.add, [(4, 1), (1, 6)]),
    ("add, a scalar", torch.add, [(), (2, 3)]),
    ("add, five axes", torch.add, [(2, 1, 2, 1, 3), (2, 3, 1, 2, 1)]),
    ("add, long", torch.add, [(3, 1031), (1031,)]),
    ("sub", torch.sub, [(3, 5), (3, 5)]),
    ("sub, broadcast", torch.sub, [(5,), (2, 3, 1)]),
    ("mul", torch.mul, [(7,), (7,)]),
    ("mul, broadcast", torch.mul, [(3, 1, 2), (4, 1)]),
    ("mul by itself", lambda a: a * a, [(3, 4)]),
    ("div", torch.div, [(3, 5), (3, 5)], .5, 2),
    ("div, broadcast", torch.div, [(1, 5), (4, 1)], .5, 2),
    ("minimum", torch.minimum, [(3, 5), (3, 5)]),
    ("minimum, with a scalar", torch.minimum, [(9,), ()]),
    ("minimum, ties", torch.minimum, [(9, 4), (4,)], "ties"),
    ("maximum", torch.maximum, [(3, 5), (3, 5)]),
    ("maximum, broadcast", torch.maximum, [(3, 1, 2), (4, 1)]),
    ("maximum, ties", torch.maximum, [(9, 4), (4,)], "ties"),
    ("pow", torch.pow, [(3, 37), (3, 37)], .25, 4),
    ("pow, broadcast", torch.pow, [(3, 5), (5,)], .25, 4),
    ("equal", torch.eq, [(3, 37), (3, 37)], "ties"),
    ("not_equal", torch.ne, [(3, 37), (37,)], "ties"),
    ("less", torch.lt, [(3, 37), (3, 37)], "ties"),
    ("less_equal", torch.le, [(3, 37), (3, 37)], "ties"),
    ("greater", torch.gt, [(3, 37), ()], "ties"),
    ("greater_equal", torch.ge, [(3, 37), (3, 37)], "ties"),
    ("logical_and", torch.logical_and, [(3, 37), (3, 37)], "ties"),
    ("logical_or", torch.logical_or, [(3, 37), (3, 37)], "ties"),
    ("logical_not", torch.logical_not, [(3, 37)], "ties"),
    ("where", lambda a, b, c: torch.where(a > 0, b, c), [(3, 37), (3, 37), (3, 37)]),
    ("where, broadcast", lambda a, b, c: torch.where(a > 0, b, c), [(4, 1), (6,), (2, 1, 6)]),
    ("detach", lambda a: (a * a).detach(), [(3, 5)]),
    ("abs", torch.abs, [(3, 37)]),
    ("square", torch.square, [(3, 37)]),
    ("reciprocal", torch.reciprocal, [(3, 37)], .5, 4),
    ("rsqrt", torch.rsqrt, [(3, 37)], .25, 8),
    ("floor", torch.floor, [(3, 37)], -6, 6),
    ("ceil", torch.ceil, [(3, 37)], -6, 6),
    ("round", torch.round, [(3, 37)], -6, 6),
    ("round, ties", torch.round, [(3, 37)], "ties"),
    ("sin", torch.sin, [(3, 37)], -20, 20),
    ("cos", torch.cos, [(3, 37)], -20, 20),
    ("erf", torch.erf, [(3, 37)], -3, 3),
    ("log1p", torch.log1p, [(3, 37)], -.5, 4),
    ("expm1", torch.expm1, [(3, 37)], -4, 4),
    ("softplus", lambda a: F.softplus(a, threshold=100), [(3, 37)], -20, 20),
    ("silu", F.silu, [(3, 37)], -6, 6),
    ("mish", F.mish, [(3, 37)], -6, 25),
    ("hardsigmoid", F.hardsigmoid, [(3, 37)], -5, 5),
    ("hardswish", F.hardswish, [(3, 37)], -5, 5),
    ("leaky_relu", lambda a: F.leaky_relu(a, .1), [(3, 37)]),
    ("elu", lambda a: F.elu(a, 1.5), [(3, 37)], -4, 4),
    ("clamp", lambda a: a.clamp(-.5, 1), [(3, 37)], -3, 3),
    ("pl_cast, bfloat16", lambda a: a.to(torch.bfloat16).double(), [(3, 37)], "ties"),
    ("pl_cast, float16", lambda a: a.to(torch.float16).double(), [(3, 37)], "ties"),
    ("pl_cast, int32", lambda a: (a * 8).to(torch.int32).double(), [(3, 37)], "ties"),
    ("pl_cast, int32, too large", lambda a: limited(a * 2.**33, -2.**31, 2.**31 - 1), [(3, 37)], "ties"),
    ("pl_cast, int64", lambda a: (a * 2.**40).to(torch.int64).double(), [(1031,)], "ties"),
    ("pl_cast, int64, too large", lambda a: limited(a * 2.**70, -2.**63, 2.**63), [(3, 37)], "ties"),
    ("pl_cast, uint8", lambda a: limited(a * 256, 0, 255), [(3, 37)], "ties"),
    ("pl_cast of indices", lambda a, i: i.double() * a, [(4, 5)], -1, 1, ((4, 5), 7, None)),
    ("pl_cast of indices, int64", lambda a, i: (i * .5).to(torch.int64) * a, [(4, 5)], -1, 1, ((4, 5), 7, None)),
    ("pl_bool", lambda a, i: a.bool() + 10. * i.bool(), [(4, 5)], "ties", 1, ((4, 5), 3, None)),
    ("compare whole numbers", compared, [(4, 5)], "ties", 1, ((4, 5), 5, None)),
    ("compare whole numbers, int32", compared, [(4, 5)], "ties", 1, ((4, 5), 5, None)),
    ("compare whole numbers, large", lambda a, i: torch.cat([i == 2**24, 2**24 < i], 1).double(), [(4, 5)], -1, 1,
     ((4, 5), 5, 16777217)),
    ("a field of float64", lambda a, i: (i + .25) * a + i, [(4, 5)], -1, 1, ((4, 5), 5, None)),
    ("gather", lambda a, i: a.gather(1, i), [(4, 5, 3)], -1, 1, ((4, 2, 3), 5, None)),
    ("gather, one of each row", lambda a, i: a.gather(1, i), [(6, 7)], -1, 1, ((6, 1), 7, None)),
    ("gather, fewer columns", lambda a, i: a.gather(0, i), [(5, 6)], -1, 1, ((3, 4), 5, None)),
    ("gather, long", lambda a, i: a.gather(0, i), [(40, 33)], -1, 1, ((70, 33), 40, None)),
    ("take", lambda a, i: a.index_select(1, i), [(3, 5, 2)], -1, 1, ((4,), 5, None)),
    ("take, rows", lambda a, i: a[i], [(5, 3, 2)], -1, 1, ((2, 3), 5, None)),
    ("take, indices of two axes", lambda a, i: a[:, i], [(3, 7)], -1, 1, ((2, 3), 7, None)),
    ("take, of indices", lambda a, i: i[:, i] * a, [(3, 3, 4)], -1, 1, ((3, 4), 4, None)),
    ("scatter_add", lambda a, b, i: added(a, b, i, 1), [(4, 5), (4, 3)], -1, 1, ((4, 3), 5, None)),
    ("scatter_add, fewer columns", lambda a, b, i: added(a, b, i, 0), [(5, 4, 2), (7, 3, 1)], -1, 1,
     ((7, 3, 1), 5, None)),
    ("scatter_add, one axis", lambda a, b, i: added(a, b, i, 0), [(40,), (2100,)], -1, 1, ((2100,), 37, None)),
    ("one_hot", lambda a, i: F.one_hot(i, 5) * a, [(3, 4, 5)], -1, 1, ((3, 4), 5, None)),
    ("cumsum", lambda a: a.cumsum(-1), [(3, 37)]),
    ("cumsum, first axis", lambda a: a.cumsum(0), [(7, 3, 5)]),
    ("cumsum, the middle", lambda a: a.cumsum(1), [(2, 5, 70)]),
    ("cumsum, long", lambda a: a.cumsum(1), [(2, 1031)]),
    ("sort", lambda a: a.sort(-1).values, [(3, 37)]),
    ("sort, descending", lambda a: a.sort(0, True).values, [(11, 5)]),
    ("sort, the middle", lambda a: a.sort(1).values, [(2, 5, 3)]),
    ("sort, long, ties", lambda a: a.sort(dim=1, stable=True).values, [(2, 2100)], "ties"),
    ("sort, ties and NaN", lambda a: sorted_at(a, 1, False), [(3, 70)], "ties"),
    ("sort, ties and NaN, descending", lambda a: sorted_at(a, 0, True), [(70, 2)], "ties"),
    ("top_k", lambda a: a.topk(3, 1).values, [(4, 9)]),
    ("top_k, few of many, ties", lambda a: first(a, 5, 1), [(2, 2100)], "ties"),
    ("top_k, forty of many, ties", lambda a: first(a, 40, 0), [(700, 2)], "ties"),
    ("top_k, ties", lambda a: a.detach().sort(dim=1, descending=True, stable=True).indices[:, :4].double(), [(3, 70)], "ties"),
    ("min", lambda a: a.min(-1).values, [(3, 5)]),
    ("min, the middle kept", lambda a: a.min(1, keepdim=True).values, [(2, 5, 3)]),
    ("argmin", lambda a: a.argmin(1).double(), [(3, 5)]),
    ("neg", torch.neg, [(3, 5)]),
    ("scale", lambda a: a * -1.25, [(3, 5)]),
    ("exp", torch.exp, [(3, 5)], -4, 4),
    ("log", torch.log, [(3, 5)], .25, 8),
    ("sqrt", torch.sqrt, [(3, 5)], .25, 8),
    ("sign", torch.sign, [(3, 37)]),
    ("sign, zeros", torch.sign, [(3, 7)], "ties"),
    ("relu", torch.relu, [(3, 37)]),
    ("gelu", F.gelu, [(3, 37)], -6, 6),
    ("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), [(3, 37)], -6, 6),
    ("sigmoid", torch.sigmoid, [(3, 37)], -6, 6),
    ("tanh", torch.tanh, [(3, 37)], -6, 6),
    ("a chain", lambda a, b: F.gelu(a + b) * a, [(4, 33), (33,)]),
    ("sum, all", torch.sum, [(3, 5)]),
    ("sum, the first axis", lambda a: a.sum(0), [(3, 5)]),
    ("sum, the last axis kept", lambda a: a.sum(-1, keepdim=True), [(3, 5)]),
    ("sum, two outer axes", lambda a: a.sum((0, 2)), [(2, 3, 4)]),
    ("sum, the middle", lambda a: a.sum(1), [(2, 3, 4)]),
    ("sum, long columns", lambda a: a.sum(0), [(70, 33)]),
    ("mean", lambda a: a.mean((1, 2), keepdim=True), [(2, 3, 4)]),
    ("var", torch.var, [(3, 5)]),
    ("var, two axes, biased", lambda a: a.var((0, 2), correction=0), [(2, 3, 4)]),
    ("logsumexp", lambda a: a.logsumexp(-1), [(3, 37)], -50, 150),
    ("logsumexp, the middle kept", lambda a: a.logsumexp(1, keepdim=True), [(2, 5, 3)]),
    ("log_softmax", lambda a: a.log_softmax(-1), [(3, 37)], -5, 5),
    ("log_softmax, first axis", lambda a: a.log_softmax(0), [(5, 4)]),
    ("max, last axis", lambda a: a.max(-1).values, [(3, 5)]),
    ("max, first axis kept", lambda a: a.max(0, keepdim=True).values, [(3, 5)]),
    ("max, the middle", lambda a: a.max(1).values, [(2, 5, 3)]),
    ("broadcast", lambda a: a.expand(2, 3, 4), [(3, 1)]),
    ("broadcast, a scalar", lambda a: a.expand(2, 3), [()]),
    ("reshape", lambda a: a.reshape(6, 4), [(2, 3, 4)]),
    ("reshape, one size to be found", lambda a: a.reshape(-1, 3), [(2, 3, 4)]),
    ("permute, transposed", lambda a: a.t(), [(3, 5)]),
    ("permute 0 2 1", lambda a: a.permute(0, 2, 1), [(2, 3, 4)]),
    ("permute 1 0 2", lambda a: a.permute(1, 0, 2), [(2, 3, 4)]),
    ("permute 1 2 0", lambda a: a.permute(1, 2, 0), [(2, 3, 4)]),
    ("permute 2 0 1", lambda a: a.permute(2, 0, 1), [(2, 3, 4)]),
    ("permute 2 1 0", lambda a: a.permute(2, 1, 0), [(2, 3, 4)]),
    ("permute 0 2 1 3", lambda a: a.permute(0, 2, 1, 3), [(2, 3, 4, 5)]),
    ("permute 3 1 0 2", lambda a: a.permute(3, 1, 0, 2), [(2, 3, 4, 5)]),
    ("slice, rows", lambda a: a[1:4], [(5, 3)]),
    ("slice, columns", lambda a: a[:, 2:5], [(3, 5)]),
    ("slice, the middle", lambda a: a[:, 0:2], [(2, 5, 3)]),
    ("slice, all parts", lambda a: parts(a, 2, 1), [(3, 8)]),
    ("slice, three parts", lambda a: parts(a, 3, -1), [(2, 3, 6)]),
    ("slice, every second", lambda a: a[:, ::2], [(3, 5, 2)]),
    ("slice, every third, some left", lambda a: a[:, 1:8:3], [(3, 9)]),
    ("slice, backwards", lambda a: a.flip(0), [(3, 5)]),
    ("slice, backwards in steps", lambda a: a[:, 1:6:2].flip(1), [(2, 7)]),
    ("slice, six axes", lambda a: a[:, :, :, 1:3], [(2, 1, 3, 4, 2, 2)]),
    ("permute, six axes", lambda a: a.permute(3, 5, 1, 0, 2, 4), [(2, 3, 2, 4, 1, 3)]),
    ("flip", lambda a: a.flip(0, 1, 2), [(2, 3, 4)]),
    ("flip, two axes", lambda a: a.flip(0, -1), [(2, 3, 4)]),
    ("roll", lambda a: a.roll(2, 1), [(2, 5)]),
    ("roll, back", lambda a: a.roll(-5, 0), [(4, 3)]),
    ("stack", lambda *a: torch.stack(a), [(2, 4)] * 3),
    ("stack, last axis", lambda *a: torch.stack(a, -1), [(2, 4)] * 3),
    ("split", lambda a: torch.cat([a.split([1, 4, 2], 1)[k] for k in (2, 0, 1)], 1), [(3, 7)]),
    ("repeat", lambda a: a.repeat(2, 1, 3), [(2, 3, 4)]),
    ("repeat, six axes", lambda a: a.repeat(1, 5, 2, 2), [(2, 1, 2, 3)]),
    ("pad", lambda a: F.pad(a, (2, 3, 1, 0), value=-.5), [(3, 4)]),
    ("pad, one side", lambda a: F.pad(a, (0, 0, 0, 2)), [(3, 4)]),
    ("pad_reflect", lambda a: F.pad(a[None, None], (0, 4, 3, 1), "reflect")[0, 0], [(4, 5)]),
    ("pad and interpolate, images", frame, [(2, 2, 4, 5), (3, 2, 3, 3)]),
    ("tril", torch.tril, [(2, 4, 5)]),
    ("tril, above", lambda a: a.tril(2), [(4, 5)]),
    ("triu", torch.triu, [(5, 4)]),
    ("triu, below", lambda a: a.triu(-2), [(2, 5, 4)]),
    ("interpolate, nearest", lambda a: F.interpolate(a, (7, 3)), [(2, 3, 4, 5)]),
    ("interpolate, larger", lambda a: F.interpolate(a, (8, 13), mode="bilinear"), [(2, 3, 4, 5)]),
    ("interpolate, smaller", lambda a: F.interpolate(a, (4, 3), mode="bilinear"), [(2, 1, 9, 7)]),
    ("interpolate, one axis", lambda a: F.interpolate(a, 12, mode="linear"), [(2, 3, 5)]),
    ("interpolate, a size of 1", lambda a: F.interpolate(a, (3, 1), mode="bilinear"), [(2, 1, 1, 6)]),
    ("pixel_shuffle", lambda a: F.pixel_shuffle(a, 2), [(2, 8, 3, 2)]),
    ("pixel_unshuffle", lambda a: F.pixel_unshuffle(a, 3), [(2, 2, 6, 3)]),
    *((f"einsum, {e}", lambda a, b, e=e: torch.einsum(e, a, b), shapes) for e, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bji,bjk->ibk", (2, 4, 3), (1, 4, 5)),
        ("i,j->ij", (3,), (4,)), ("bi,bi->b", (3, 4), (3, 4)), ("bij,jk", (2, 3, 4), (4, 5)),
        ("abij,bkj->aibk", (2, 3, 4, 5), (3, 2, 5)), ("ij,jk->k", (3, 4), (4, 5)), ("bi, bi -> bi", (3, 1), (3, 4)),
        ("bhqd,bhkd->bhqk", (2, 1, 4, 3), (1, 2, 5, 3)), ("abcde,eadf", (2, 3, 2, 2, 3), (3, 2, 2, 4)),
        ("ij,ij->", (3, 1), (3, 4)), ("xaby,xzbc->zcaby", (2, 3, 4, 2), (2, 3, 1, 2)))),
    ("constant tensors", lambda a: a[[4, 0, 2, 2]] * torch.tensor([[.5], [-1], [2], [3]]), [(5, 3)]),
    ("arange", lambda a: a * torch.arange(-1, .5, .25), [(3, 6)]),
    ("add, six axes", torch.add, [(2, 1, 2, 1, 3, 2), (3, 1, 2, 1, 2)]),
    ("sum, six axes", lambda a: a.sum((1, -2)), [(2, 3, 2, 2, 3, 2)]),
    ("softmax, six axes", lambda a: a.softmax(-1), [(2, 1, 2, 3, 1, 5)]),
    ("matmul, six axes", lambda a, b: a @ b, [(2, 1, 2, 1, 3, 4), (1, 2, 1, 2, 4, 2)]),
    ("concat, six axes", lambda a, b: torch.cat([a, b], 3), [(1, 2, 1, 2, 1, 3), (1, 2, 1, 4, 1, 3)]),
    ("concat, forty", lambda a: torch.stack([a[i * 7 % 40] for i in range(40)]), [(40, 3)]),
    ("concat", lambda a, b: torch.cat([a, b], 0), [(2, 3), (4, 3)]),
    ("concat, columns", lambda a, b, c: torch.cat([a, b, c], 1), [(2, 3), (2, 1), (2, 4)]),
    ("range", lambda a: a[:5], [(7, 3)]),
    ("matmul", lambda a, b: a @ b, [(3, 4), (4, 5)]),
    ("matmul, a transposed", lambda a, b: a.mT @ b, [(4, 3), (4, 5)]),
    ("matmul, b transposed", lambda a, b: a @ b.mT, [(3, 4), (5, 4)]),
    ("matmul, both transposed", lambda a, b: a.mT @ b.mT, [(4, 3), (5, 4)]),
    ("matmul, batch", lambda a, b: a @ b, [(2, 3, 4), (2, 4, 5)]),
    ("matmul, batch, a transposed", lambda a, b: a.mT @ b, [(2, 4, 3), (2, 4, 5)]),
    ("matmul, batch, b transposed", lambda a, b: a @ b.mT, [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("matmul, batch, both transposed", lambda a, b: a.mT @ b.mT, [(2, 4, 3), (2, 5, 4)]),
    ("matmul, b for all", lambda a, b: a @ b, [(2, 3, 4), (4, 5)]),
    ("matmul, b for all, transposed", lambda a, b: a @ b.mT, [(2, 3, 4), (5, 4)]),
    ("matmul, a for all", lambda a, b: a @ b, [(3, 4), (2, 4, 5)]),
    ("matmul, a transposed, b for all", lambda a, b: a.mT @ b, [(2, 4, 3), (4, 5)]),
    ("matmul, broadcast both ways", lambda a, b: a @ b, [(2, 1, 3, 4), (1, 3, 4, 2)]),
    ("linear", F.linear, [(3, 4), (5, 4), (5,)]),
    ("linear without bias", F.linear, [(3, 4), (5, 4)]),
    ("linear, one row", F.linear, [(1, 7), (2, 7), (2,)]),
    ("linear, ragged", F.linear, [(17, 33), (19, 33), (19,)]),
    ("linear, a bias for all heads", lambda x, w, b: F.linear(x, w).reshape(2, 3, 2, 4) + b, [(6, 4), (8, 4), (4,)]),
    ("linear, twice with its bias", lambda x, w, b: F.linear(x, w, b) + F.linear(x.tanh(), w, b),
     [(8, 4), (5, 4), (5,)]),
    ("linear, twice, one bias", lambda x, w, b: F.linear(x, w) + F.linear(x.tanh(), w) + b, [(8, 4), (5, 4), (5,)]),
    ("conv2d", F.conv2d, [(2, 3, 5, 6), (4, 3, 3, 3), (4,)]),
    ("conv2d, padding", lambda *a: F.conv2d(*a, padding=1), [(2, 3, 5, 6), (4, 3, 3, 3), (4,)]),
    ("conv2d, stride", lambda *a: F.conv2d(*a, stride=2, padding=1), [(2, 2, 7, 6), (3, 2, 3, 3), (3,)]),
    ("conv2d, stride, rest left over", lambda *a: F.conv2d(*a, stride=3), [(1, 2, 8, 8), (3, 2, 3, 3)]),
    ("conv2d, kernel 1", F.conv2d, [(2, 3, 4, 4), (5, 3, 1, 1)]),
    ("conv2d, sixteen channels", lambda *a: F.conv2d(*a, padding=1), [(1, 16, 4, 4), (16, 16, 3, 3), (16,)]),
    ("conv2d, rectangles", lambda *a: F.conv2d(*a, stride=(2, 1), padding=(0, 2)), [(2, 3, 7, 6), (4, 3, 2, 5), (4,)]),
    ("conv2d, dilation", lambda *a: F.conv2d(*a, padding=(2, 1), dilation=(2, 3)), [(1, 2, 9, 8), (3, 2, 3, 3)]),
    ("conv2d, same", lambda *a: F.conv2d(*a, padding="same"), [(2, 2, 5, 6), (3, 2, 2, 4), (3,)]),
    ("conv2d, groups", lambda *a: F.conv2d(*a, padding=1, groups=2), [(2, 4, 5, 5), (6, 2, 3, 3), (6,)]),
    ("conv2d, groups of many", lambda *a: F.conv2d(*a, groups=2), [(1, 20, 4, 3), (24, 10, 2, 2)]),
    ("conv2d, depthwise", lambda *a: F.conv2d(*a, stride=2, padding=1, groups=17),
     [(2, 17, 6, 5), (17, 1, 3, 3), (17,)]),
    ("conv2d, depthwise, two filters", lambda *a: F.conv2d(*a, padding=1, groups=16), [(1, 16, 5, 5), (32, 1, 3, 3)]),
    ("conv1d", lambda *a: F.conv1d(*a, stride=2, padding=2, dilation=2), [(2, 3, 11), (4, 3, 5), (4,)]),
    ("conv1d, depthwise, same", lambda *a: F.conv1d(*a, padding="same", groups=5), [(2, 5, 7), (5, 1, 4), (5,)]),
    ("conv3d", lambda *a: F.conv3d(*a, stride=(1, 2, 1), padding=(1, 1, 0)), [(1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (3,)]),
    ("conv3d, groups, dilation", lambda *a: F.conv3d(*a, padding=(1, 1, 2), dilation=(2, 1, 2), groups=2),
     [(1, 4, 5, 4, 5), (4, 2, 2, 2, 3)]),
    ("conv_transpose", lambda *a: F.conv_transpose2d(*a, stride=2, padding=1, output_padding=1),
     [(2, 3, 4, 5), (3, 4, 3, 3)]),
    ("conv_transpose, rectangles, dilation",
     lambda *a: F.conv_transpose2d(*a, stride=(1, 2), padding=(0, 1), output_padding=(0, 1), dilation=(3, 2)),
     [(2, 3, 4, 3), (3, 2, 2, 3)]),
    ("conv_transpose, groups", lambda *a: F.conv_transpose2d(*a, stride=2, padding=1, groups=2),
     [(1, 4, 4, 4), (4, 3, 4, 4)]),
    ("conv_transpose, one axis", lambda *a: F.conv_transpose1d(*a, stride=3, output_padding=1),
     [(2, 3, 5), (3, 2, 4)]),
    ("conv_transpose, three axes",
     lambda *a: F.conv_transpose3d(*a, stride=(2, 1, 2), padding=(1, 1, 0), output_padding=(1, 0, 1)),
     [(1, 2, 3, 2, 3), (2, 3, 2, 3, 2)]),
    ("layer conv_transpose",
     lambda *a: F.conv_transpose2d(*a, stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2),
     [(2, 4, 3, 4), (4, 3, 3, 2), (6,)]),
    ("layer conv_transpose, one axis",
     lambda *a: F.conv_transpose1d(*a, stride=3, padding=1, output_padding=2, dilation=2), [(2, 3, 5), (3, 2, 4), (2,)]),
    ("layer conv_transpose, three axes",
     lambda *a: F.conv_transpose3d(*a, stride=(2, 1, 2), output_padding=(1, 0, 1)),
     [(1, 2, 3, 2, 3), (2, 3, 2, 3, 2), (3,)]),
    ("max_pool, rectangles", lambda a: F.max_pool2d(a, (3, 2), (2, 1), (1, 0)), [(2, 3, 7, 6)]),
    ("max_pool, dilation, ceil", lambda a: F.max_pool2d(a, 3, 3, 1, 2, ceil_mode=True), [(1, 2, 9, 8)]),
    ("max_pool, ceil, x smaller than a window",
     lambda a: F.max_pool2d(a, (4, 2), 3, dilation=(1, 2), ceil_mode=True), [(1, 2, 3, 4)]),
    ("max_pool, one axis", lambda a: F.max_pool1d(a, 2), [(2, 3, 9)]),
    ("max_pool, three axes", lambda a: F.max_pool3d(a, (2, 3, 2), (1, 2, 2), 1), [(1, 17, 4, 5, 4)]),
    ("avg_pool", lambda a: F.avg_pool2d(a, 3, 2, 1), [(2, 3, 7, 6)]),
    ("avg_pool, ceil, rectangles", lambda a: F.avg_pool2d(a, (2, 3), (3, 2), 1, ceil_mode=True), [(1, 17, 8, 7)]),
    ("avg_pool, ceil, x smaller than a window", lambda a: F.avg_pool2d(a, (4, 5), 3, ceil_mode=True), [(1, 3, 2, 4)]),
    ("avg_pool, padding does not count",
     lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False), [(1, 2, 8, 7)]),
    ("avg_pool, one axis", lambda a: F.avg_pool1d(a, 4, 2, 2), [(2, 3, 9)]),
    ("avg_pool, three axes", lambda a: F.avg_pool3d(a, (2, 3, 2), (1, 2, 2), 1), [(1, 3, 4, 5, 4)]),
    ("adaptive_max_pool", lambda a: F.adaptive_max_pool2d(a, (3, 4)), [(2, 3, 7, 5)]),
    ("adaptive_avg_pool", lambda a: F.adaptive_avg_pool2d(a, (3, 2)), [(2, 17, 7, 5)]),
    ("adaptive_avg_pool, more than x", lambda a: F.adaptive_avg_pool2d(a, (6, 3)), [(1, 3, 4, 6)]),
    ("adaptive_avg_pool, all of x", lambda a: F.adaptive_avg_pool3d(a, 1), [(2, 3, 4, 5, 3)]),
    ("max_pool2d", lambda a: F.max_pool2d(a, 2), [(2, 3, 4, 6)]),
    ("max_pool2d, overlapping, padding", lambda a: F.max_pool2d(a, 3, 2, 1), [(1, 2, 5, 6)]),
    ("max_pool2d, rest left over", lambda a: F.max_pool2d(a, 2), [(1, 2, 5, 7)]),
    ("max_pool2d, ties", lambda a: F.max_pool2d(a, 2), [(1, 2, 6, 6)], "ties"),
    ("attention", lambda q, k, v: attention(q, k, v, False), [(2, 2, 5, 4)] * 3),
    ("attention, causal", lambda q, k, v: attention(q, k, v, True), [(2, 2, 5, 4)] * 3),
    ("attention, mask", lambda *x: masked_attention(*x, MASKS[0], False), [(2, 2, 5, 4)] * 3),
    ("attention, mask, causal", lambda *x: masked_attention(*x, MASKS[0], True), [(2, 2, 5, 8)] * 3),
    ("attention, mask, queries that see no key", lambda *x: masked_attention(*x, MASKS[1], False), [(2, 2, 5, 4)] * 3),
    ("attention, mask, causal, queries that see no key", lambda *x: masked_attention(*x, MASKS[1], True),
     [(2, 2, 5, 4)] * 3),
    ("attention, more keys", F.scaled_dot_product_attention, [(2, 2, 3, 4), (2, 2, 7, 4), (2, 2, 7, 4)]),
    ("attention, more keys, causal", lambda *x: F.scaled_dot_product_attention(*x, is_causal=True),
     [(2, 2, 3, 4), (2, 2, 7, 4), (2, 2, 7, 4)]),
    ("attention, more queries, causal", lambda *x: F.scaled_dot_product_attention(*x, is_causal=True, scale=.75),
     [(2, 2, 7, 4), (2, 2, 3, 4), (2, 2, 3, 4)]),
    ("attention, grouped queries", lambda *x: wide_attention(*x, True), [(2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)]),
    ("attention, one head for all queries", wide_attention, [(2, 3, 4, 4), (2, 1, 6, 4), (2, 1, 6, 4)]),
    ("attention, window", lambda *x: wide_attention(*x, True, 5), [(1, 2, 40, 4)] * 3),
    ("attention, window both ways, more queries", lambda *x: wide_attention(*x, False, 3),
     [(1, 2, 21, 4), (1, 2, 9, 4), (1, 2, 9, 4)]),
    ("attention, bias", lambda *x: wide_attention(*x, kind=1, scale=.3), [(2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4)]),
    ("attention, bias of keys, causal", lambda *x: wide_attention(*x, True, kind=2),
     [(2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4)]),
    ("attention, any mask", lambda *x: wide_attention(*x, kind=3), [(2, 2, 4, 4), (2, 2, 6, 4), (2, 2, 6, 4)]),
    ("attention, trained bias, any mask", lambda *x: wide_attention(*x, kind=4),
     [(2, 2, 4, 4), (2, 2, 6, 4), (2, 2, 6, 4)]),
    ("rotary", lambda a: rotary(a, 10000, 0, False), [(2, 2, 5, 6)]),
    ("rotary, interleaved, later", lambda a: rotary(a, 100, 3, True), [(2, 7, 8)]),
    ("attention, rotary", lambda *x: rotary_attention(*x, True), [(2, 2, 5, 6)] * 3),
    ("attention, rotary, interleaved, grouped queries, later",
     lambda *x: rotary_attention(*x, base=100, first=3, interleaved=True), [(1, 4, 3, 8), (1, 2, 6, 8), (1, 2, 6, 8)]),
    ("attention, rotary, mask", lambda *x: rotary_attention(*x, True, kind=1), [(2, 2, 5, 4)] * 3),
    ("attention, rotary, trained bias", lambda *x: rotary_attention(*x, first=2, kind=2),
     [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)]),
    ("attention, rotary, width 16", lambda *x: rotary_attention(*x, True, 500), [(1, 2, 37, 16)] * 3),
    ("attention, one token", lambda q, k, v: attention(q, k, v, True), [(1, 1, 1, 3)] * 3),
    ("attention, ragged", lambda q, k, v: attention(q, k, v, True), [(1, 1, 19, 8)] * 3),
    ("attention, heads cut out", self_attention, [(2, 5, 24)]),
    ("attention, keys cut out first", lambda x: self_attention(x, False, 1), [(2, 7, 48)]),
    ("softmax", lambda a: a.softmax(-1), [(3, 5)], -4, 4),
    ("softmax, three axes", lambda a: a.softmax(-1), [(2, 3, 17)], -4, 4),
    ("layer_norm", lambda a, w, b: F.layer_norm(a, w.shape, w, b), [(3, 5), (5,), (5,)]),
    ("layer_norm, three axes", lambda a, w, b: F.layer_norm(a, w.shape, w, b), [(2, 3, 33), (33,), (33,)]),
    ("layer_norm, no weights", lambda a: F.layer_norm(a, a.shape[1:]) ** 2, [(6, 35)]),
    ("rms_norm", lambda a, w: F.rms_norm(a, w.shape, w, 1e-5), [(4, 37), (37,)]),
    ("rms_norm, no weights", lambda a: F.rms_norm(a, a.shape[1:], eps=1e-5) ** 2, [(3, 18)]),
    ("group_norm", lambda a, w, b: F.group_norm(a, 2, w, b), [(3, 6, 4, 5), (6,), (6,)]),
    ("group_norm, no space", lambda a, w, b: F.group_norm(a, 3, w, b), [(5, 6), (6,), (6,)]),
    ("group_norm, one group", lambda a, w, b: F.group_norm(a, 1, w, b), [(2, 3, 37), (3,), (3,)]),
    ("group_norm, large", lambda a, w, b: F.group_norm(a, 2, w, b), [(2, 4, 2300), (4,), (4,)]),
    ("instance_norm", lambda a: F.instance_norm(a) ** 2, [(2, 3, 4, 5)]),
    ("instance_norm, affine", lambda a, w, b: F.instance_norm(a, weight=w, bias=b), [(2, 3, 9), (3,), (3,)]),
    ("layer layer_norm, two axes", lambda a, w, b: F.layer_norm(a, w.shape, w, b) ** 2, [(3, 2, 5), (2, 5), (2, 5)]),
    ("layer layer_norm, all axes but one, no bias", lambda a, w: F.layer_norm(a, w.shape, w, eps=1e-2) ** 2,
     [(2, 3, 2, 4), (3, 2, 4)]),
    ("layer rms_norm, small numbers, no weight", lambda a: F.rms_norm(a, (7,), eps=2**-23) ** 2, [(4, 7)], -.1, .1),
    ("layer rms_norm, two axes", lambda a, w: F.rms_norm(a, w.shape, w, 1e-3) ** 2, [(3, 2, 5), (2, 5)]),
    ("layer group_norm", lambda a, w, b: F.group_norm(a, 3, w, b) ** 2, [(2, 6, 2, 3), (6,), (6,)]),
    ("layer group_norm, no weight", lambda a: F.group_norm(a, 2, eps=1e-3) ** 2, [(2, 4, 5)]),
    ("layer instance_norm", lambda a, w, b: F.instance_norm(a, weight=w, bias=b) ** 2, [(2, 3, 2, 4), (3,), (3,)]),
    ("layer instance_norm, no weight", lambda a: F.instance_norm(a) ** 2, [(2, 3, 7)]),
    ("batch_norm", batch_norm, [(6, 3), (3,), (3,)], "statistics", .1),
    ("batch_norm, images", batch_norm, [(3, 2, 3, 4), (2,), (2,)], "statistics", .25),
    ("batch_norm, of all ranks", batch_norm, [(6, 3), (3,), (3,)], "statistics", .1),
    ("batch_norm, images, of all ranks", batch_norm, [(3, 2, 3, 4), (2,), (2,)],
     "statistics", .25),
    recurrent("lstm", (3, 5, 4), 6),
    recurrent("lstm, lengths, last state", (3, 5, 4), 6, last=True, lengths=((3,), 6, None)),
    recurrent("lstm, both directions, lengths", (3, 5, 3), 4, both=True, last=True, lengths=((3,), 6, None)),
    recurrent("lstm, two layers, first state", (2, 3, 5), 3, layers=2, both=True, states=True, last=True),
    recurrent("lstm, both directions, lengths, first state", (3, 5, 2), 5, both=True, states=True, last=True,
              lengths=((3,), 6, None)),
    recurrent("lstm, no bias, one step", (4, 1, 3), 2, bias=False),
    recurrent("lstm, 35 units", (9, 3, 2), 35),
    recurrent("gru", (3, 5, 4), 6, gru=True),
    recurrent("gru, lengths, last state", (3, 5, 4), 6, gru=True, last=True, lengths=((3,), 6, None)),
    recurrent("gru, both directions, lengths", (3, 5, 3), 4, gru=True, both=True, last=True, lengths=((3,), 6, None)),
    recurrent("gru, two layers, first state", (2, 3, 5), 3, gru=True, layers=2, both=True, states=True, last=True),
    recurrent("gru, both directions, lengths, first state", (3, 5, 2), 5, gru=True, both=True, states=True, last=True,
              lengths=((3,), 6, None)),
    recurrent("gru, no bias, one step", (4, 1, 3), 2, gru=True, bias=False),
    recurrent("gru, 35 units", (9, 3, 2), 35, gru=True),
    ("embedding", lambda a, i: F.embedding(i, a), [(5, 3)], -1, 1, ((7,), 5, None)),
    ("embedding, tokens", lambda a, i: F.embedding(i, a), [(4, 6)], -1, 1, ((2, 3), 4, None)),
    ("embedding, int32", lambda a, i: F.embedding(i, a), [(4, 6)], -1, 1, ((2, 3), 4, None)),
    ("l1", F.l1_loss, [(3, 4), (3, 4)]),
    ("huber", lambda a, b: F.huber_loss(a, b, delta=.75), [(3, 37), (3, 37)]),
    ("bce_with_logits", lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), [(3, 4), (3, 4)], -30, 30),
    ("bce_with_logits, both weights", both_bce_weights, [(3, 4), (3, 4)], -5, 5),
    ("soft_cross_entropy", lambda a, b: F.cross_entropy(a.flatten(0, 1), b.softmax(-1).flatten(0, 1)),
     [(2, 3, 5), (2, 3, 5)], -4, 4),
    ("add_losses", lambda a, b: F.cross_entropy(a.flatten(0, 1), b.softmax(-1).flatten(0, 1)) + F.mse_loss(a, b) / 2,
     [(2, 3, 5), (2, 3, 5)], -4, 4),
    ("kl", kl, [(6, 3), (6, 3)], -2, 2),
    ("cosine_embedding", lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, -1, 1, -1]), .1),
     [(5, 7), (5, 7)]),
    ("info_nce", info_nce, [(5, 7), (5, 7)]),
    ("info_nce, of three ranks", info_nce, [(5, 7), (5, 7)]),
    ("info_nce, a parameter as temperature", lambda a, b, t: info_nce(a, b, t.exp()), [(4, 3), (4, 3), ()]),
    ("all_gather", lambda a: of_ranks(a * a.tanh(), 4), [(4, 3)]),
    ("all_gather, smaller batch, images", lambda a: of_ranks(a * a.tanh(), 8), [(4, 2, 8)]),
    ("all_reduce, sum", lambda a: a.tanh() ** 2, [(3, 5)]),
    ("all_reduce, mean", lambda a: a.tanh() ** 2 / 2, [(37,)]),
    ("triplet", lambda a, b, c: F.triplet_margin_loss(a, b, c, 2), [(5, 7), (5, 7), (5, 7)]),
    ctc("ctc", (3, 6, 5), 2, -3, 3),
    ctc("ctc, repeated labels, sum", (4, 9, 3), 4, -2, 2, total=True),
    ctc("ctc, lengths", (5, 8, 6), 3, -3, 3, short=True),
    ctc("ctc, lengths, too few steps", (4, 7, 4), 3, -1, 1, short=True, total=True, zero=True),
    ctc("ctc, many states", (2, 40, 7), 17, -2, 2),
    ("cross_entropy", lambda a, i: F.cross_entropy(a, i, reduction="sum"), [(6, 5)], -3, 3, ((6,), 5, None)),
    ("cross_entropy, tokens", lambda a, i: F.cross_entropy(a.flatten(0, 1), i.flatten(), reduction="sum"),
     [(2, 3, 17)], -1, 1, ((2, 3), 17, None)),
    ("cross_entropy, some ignored", lambda a, i: F.cross_entropy(a, i, reduction="sum", ignore_index=-1),
     [(7, 4)], -1, 1, ((7,), 4, -1)),
    ("cross_entropy, int32, some ignored",
     lambda a, i: F.cross_entropy(a, i, reduction="sum", ignore_index=-1), [(7, 4)], -1, 1, ((7,), 4, -1)),
    ("cross_entropy, class weights", lambda a, i: F.cross_entropy(a, i, weight=CLASS[:6]), [(8, 6)], -1, 1,
     ((8,), 6, None)),
    ("cross_entropy, row weights", lambda a, i: (F.cross_entropy(a.flatten(0, 1), i.flatten(), reduction="none")
                                                 * ROW).sum() / ROW.sum(), [(2, 4, 5)], -1, 1, ((2, 4), 5, None)),
    ("cross_entropy, both weights, some ignored", both_weights, [(8, 6)], -1, 1, ((8,), 6, -1)),
    ("cross_entropy, int32, both weights, some ignored", both_weights, [(8, 6)], -1, 1, ((8,), 6, -1)),
    ("cross_entropy, smoothed", lambda a, i: F.cross_entropy(a, i, label_smoothing=.1), [(8, 5)], -1, 1,
     ((8,), 5, None)),
    ("cross_entropy, smoothed, four at a time", lambda a, i: F.cross_entropy(a, i, label_smoothing=.25), [(8, 12)],
     -1, 1, ((8,), 12, None)),
    ("cross_entropy, smoothed, class weights, some ignored",
     lambda a, i: F.cross_entropy(a, i, weight=CLASS, ignore_index=-1, label_smoothing=.3), [(8, 6)], -1, 1,
     ((8,), 6, -1)),
    ("nll", F.nll_loss, [(8, 5)], -3, 1, ((8,), 5, None)),
    ("nll, class weights, some ignored", lambda a, i: F.nll_loss(a, i, weight=CLASS, ignore_index=-1), [(8, 6)], -3, 1,
     ((8,), 6, -1)),
    ("mse", lambda a, b: F.mse_loss(a, b, reduction="sum"), [(3, 4), (3, 4)]),
    ("mse, weights", lambda a, b: (((a - b) ** 2).mean(1) * MSE).sum() / MSE.sum(), [(3, 4), (3, 4)]),
]


def tensor(shape, place, low=-1.0, high=1.0, ties=False):
    """the tensor that is number `place` of its region"""
    data = wave(int(np.prod(shape)), 1 + place, low, high)
    if ties:
        data = np.rint(2 * data) / 2
    return torch.tensor(data).reshape(shape)


def indices(shape, classes, ignored):
    n = int(np.prod(shape))
    values = [ignored if ignored is not None and i % 3 == 1 else (i * i + 1) % classes for i in range(n)]
    return torch.tensor(values).reshape(shape)


def result(name, function, shapes, low=-1.0, high=1.0, index=None):
    ties = low == "ties"
    statistics = low == "statistics"
    if statistics:
        M[0] = high
    if ties or statistics:
        low, high = -1.0, 1.0
    tensors = [tensor(s, k, *((low, high) if k == 0 or not statistics else (-1, 1)), ties).requires_grad_()
               for k, s in enumerate(shapes)]
    state = [tensor(shapes[1], 0), tensor(shapes[1], 1, .5, 2)] if statistics else []
    y = function(*tensors, *state, *([indices(*index)] if index else []))
    if name in CONSTANT or not y.requires_grad:
        return {"y": digest(y.detach()), "gradients": []}
    dy = tensor(y.shape, len(state), ties=ties)
    y.backward(dy)
    return {"y": digest(y.detach()),
            "gradients": [digest(torch.zeros_like(t) if t.grad is None else t.grad) for t in tensors],
            **({"state": [digest(s) for s in state]} if statistics else {})}


print("{\n" + ",\n".join(json.dumps(c[0]) + ": " + json.dumps(result(*c)) for c in C) + "\n}")
