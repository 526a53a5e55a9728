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

from typing import Any, Callable, List

from ._interface import constant, normal, uniform, zeros
from .data import PacelineWarning, Samples
from .graph import Graph, Metric, Module, Node, module
from .library import Error, lib as _lib
from .run import Callback, Component, Model, Result, Run, Trainer, component, fit, save_weights

__all__ = ["Callback", "Component", "Error", "Graph", "Metric", "Model", "Module", "Node", "PacelineWarning", "Result",
           "Run", "Samples", "Trainer", "component", "constant", "fit", "module", "normal", "save_weights", "uniform",
           "zeros"]
_ROLES = (b"optimizer", b"scheduler", b"averaging", b"callback", b"logger")


def __getattr__(name: str) -> Callable[..., Component]:
    """Components of the library by name."""
    if name.startswith("_") or not any(_lib.pl_component_find(role, name.encode(), None) for role in _ROLES):
        raise AttributeError(f"paceline has no {name}; pl.component(\"{name}\", …) names a component of a plug-in")

    def make(**options: Any) -> Component:
        return component(name, **options)
    make.__name__, make.__doc__ = name, f"The component {name}, with its options of `paceline list {name}`."
    return make


def __dir__() -> List[str]:
    return __all__ + ["adamw", "sgd", "adam"]
