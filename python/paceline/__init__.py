"""Paceline for Python: a model is described once, and trained by the engine without Python

    import paceline as pl

    @pl.module
    def net(g, hidden=128, classes=10):
        x = g.relu(g.linear("fc1", g.flatten(g.input("x")), hidden))
        x = g.linear("fc2", x, classes)
        g.output("logits", x)
        g.loss(g.cross_entropy(x, g.input("y")))
        g.log("acc", g.accuracy(x, g.input("y")))

    result = pl.fit(net, data=(x_train, y_train), val=(x_val, y_val), optimizer=pl.adamw(lr=1e-3), max_epochs=5)

Optimizers, schedules, callbacks and loggers of the library are functions by their names: pl.adamw(lr=1e-3) is
pl.component("adamw", lr=1e-3).
"""
from __future__ import annotations

import itertools
from ctypes import sizeof
from typing import Any, Callable, List

from ._interface import constant, normal, pl_component_t, pl_option_t, uniform, zeros
from .data import PacelineWarning, Samples
from .graph import CustomMetric, Graph, Metric, Module, Node, metric, module
from .library import Error, lib as _lib
from .loop import Answer, Loop
from .run import Callback, Component, Model, Result, Run, Trainer, component, fit, save_weights
from .streams import Stream as stream

__all__ = ["Answer", "Callback", "Component", "CustomMetric", "Error", "Graph", "Loop", "Metric", "Model", "Module", "Node",
           "PacelineWarning",
           "Result", "Run", "Samples", "Trainer", "component", "constant", "fit", "metric", "module", "normal", "rank",
           "save_weights", "stream", "uniform", "zeros"]


def rank() -> int:
    """The index of this process among those that run this program: 0 is the one that prints and writes."""
    return _lib.pl_rank()


_ROLES = (b"optimizer", b"scheduler", b"averaging", b"callback", b"dataset", b"logger", b"sampler")


def _options_of(table: Any) -> str:
    """The options of a component, for a docstring."""
    address, lines = table.options, []
    while address:
        option = pl_option_t.from_address(address)
        if not option.name:
            break
        lines.append(f"    {option.name.decode()} [{(option.fallback or b'must be given').decode()}]: "
                     + option.help.decode())
        address += sizeof(pl_option_t)
    return "\n".join(lines)


def __getattr__(name: str) -> Callable[..., Component]:
    """Components of the library by name."""
    for role in _ROLES if not name.startswith("_") else ():
        address = _lib.pl_component_find(role, name.encode(), None)
        if not address:
            continue

        table = pl_component_t.from_address(address)

        def make(*values: Any, **options: Any) -> Component:
            if values:
                raise TypeError(f"{name}() takes its options by name: help(pl.{name}) shows them")
            return component(name, **options)
        make.__name__ = make.__qualname__ = name
        make.__doc__ = f"The {role.decode()} {name}: {(table.help or b'').decode()}.\n\n{_options_of(table)}"
        return make
    raise AttributeError(f"paceline has no {name}; pl.component(\"{name}\", …) names a component of a plug-in")


def __dir__() -> List[str]:
    names = list(__all__)
    for role in _ROLES:
        for k in itertools.count():
            address = _lib.pl_component_at(role, k)
            if not address:
                break
            names.append(pl_component_t.from_address(address).name.decode())
    return names
