"""graph.py - modules: functions that describe a graph once, which is then a record of calls

The library checks each call as it is recorded, so that a mistake is an exception at its line, and knows the shapes.
The record is the option "calls" of the module "graph": no Python runs in training.
"""
from __future__ import annotations

import ctypes
import difflib
import functools
import inspect
import json
import re
import sys
import traceback
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _interface as interface
from .interactive import place_of
from .library import Error, call, lib, text_of

# Where an array of whole numbers stays one; elsewhere it becomes float32.
WHOLE = {"indices", "targets", "input_lengths", "lengths", "target_lengths"}
# Functions of NumPy whose names are not those of the graph; g.log() logs a metric.
UFUNCS = {"subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow", "absolute": "abs", "negative": "neg",
          "rint": "round", "log": "log_of", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
          "invert": "logical_not"}
COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
CONSTANT_MAX = 8 << 20                                  # bytes of an array in a module
STAGES = ("train", "validate", "test", "predict")
DTYPES = {"float32": interface.PL_F32, "float64": interface.PL_F64, "int32": interface.PL_I32,
          "int64": interface.PL_I64, "uint8": interface.PL_U8}
_result_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(interface.pl_gathered_t), ctypes.c_int, ctypes.c_double,
                            ctypes.POINTER(ctypes.c_double), ctypes.POINTER(interface.pl_error_t))
Fields = Mapping[str, Tuple[str, Sequence[int]]]        # {"x": ("float32", (28, 28))}, without the batch


class BatchSize(int):
    """The size of an axis that depends on the number of samples in a batch: -1, as reshape() takes it."""

    def __new__(cls) -> "BatchSize":
        return super().__new__(cls, -1)

    def _unknown(self, *_: Any) -> Any:
        raise TypeError("this size depends on the batch, so the graph cannot compute with it: pass it to reshape() "
                        "unchanged, or use mean() and sum()")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __truediv__ = __mod__ = _unknown
    __rfloordiv__ = __rtruediv__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown

    def __repr__(self) -> str:
        return "batch"


class Metric:
    """A loss or metric of a graph: sums over samples or tokens, and how they become a value.

    Losses have +, - and factors: g.loss(a + 0.1 * b) is the mean of a and a tenth of the mean of b.
    """

    def __init__(self, graph: "Graph", number: int, factor: float = 1.0) -> None:
        self.graph, self._number, self.factor = graph, number, factor

    @property
    def number(self) -> int:
        """Of the call that makes it."""
        if self.factor != 1:
            one = Metric(self.graph, self._number)
            self._number, self.factor = self.graph.add_losses(one, one, self.factor - 1)._number, 1.0
        return self._number

    def _plus(self, other: Any, factor: float) -> "Metric":
        if not isinstance(other, Metric):
            raise TypeError(f"a loss and {type(other).__name__} are not added: a loss is a sum over samples and its weight; "
                            "make a loss of the other values, g.pair(sum, weight)")
        return self.graph.add_losses(self, Metric(self.graph, other._number), factor * other.factor)

    def __add__(self, other: Any) -> "Metric": return self._plus(other, 1.0)
    def __sub__(self, other: Any) -> "Metric": return self._plus(other, -1.0)

    def __radd__(self, other: Any) -> "Metric":             # sum(losses) begins with 0
        return self if isinstance(other, (int, float)) and other == 0 else self._plus(other, 1.0)

    def __mul__(self, factor: Any) -> "Metric":
        if not isinstance(factor, (int, float)):
            raise TypeError(f"a loss has a number as factor, not {type(factor).__name__}: multiply the values of the "
                            "samples, as nodes, and pass their sum and their number: g.loss(g.pair(sum, weight))")
        return Metric(self.graph, self._number, self.factor * factor)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> "Metric": return self * (1 / factor if isinstance(factor, (int, float)) else factor)
    def __neg__(self) -> "Metric": return self * -1.0


class CustomMetric:
    """A function of the states of a metric at the end of a pass: made by @metric, for g.custom_metric().

    A state is an array of float64: [elements] of a sum, maximum or minimum, [samples] or [samples, columns] of gathered
    rows, in no certain order; all states that are gathered have one order. The function returns a number, and nan for
    none. It runs at the end of a pass, on the thread of the rank.
    """
    _registered: Dict[str, "CustomMetric"] = {}             # the library borrows their tables

    def __init__(self, function: Callable[..., float]) -> None:
        functools.update_wrapper(self, function)            # type: ignore[arg-type]
        self.function, self.name = function, function.__name__.strip("_<>").replace("_", "-")
        known = self._registered.get(self.name)
        if known:                                           # a cell of a notebook that runs again
            known.function = function
            return
        self._result = _result_t(self._call)
        self._table = interface.pl_metric_ops_t(name=self.name.encode(), help=b"of Python", size=1)
        self._table.result = ctypes.cast(self._result, ctypes.c_void_p)
        rows = (interface.pl_registration_t * 2)((b"metric", ctypes.addressof(self._table)), (None, None))
        call(lib.pl_register, rows)
        self._registered[self.name] = self

    def _call(self, states: Any, count: int, _parameter: float, value: Any, err: Any) -> int:
        try:
            arrays = []
            for state in states[:count]:
                memory = (ctypes.c_double * state.count).from_address(state.value) if state.count else ()
                rows = np.array(memory, np.float64)
                arrays.append(rows.reshape(-1, state.columns) if state.columns > 1 else rows)
            answer = np.asarray(self.function(*arrays), np.float64)
            value[0] = answer.item() if answer.size == 1 else float(answer)     # of sums [1], a number each
            return 0
        except BaseException as raised:                     # it cannot pass through C
            code = getattr(inspect.unwrap(self.function), "__code__", None)
            at = place_of(code.co_filename, code.co_firstlineno) if code else "no line"     # arguments, or the result
            trace = raised.__traceback__.tb_next if raised.__traceback__ else None
            while trace:
                at = place_of(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
                trace = trace.tb_next                       # to the line that raised it
            err.contents.code = interface.PL_EUSER
            err.contents.text = f"{at}: metric {self.name}: {type(raised).__name__}: {raised}".encode()[:500]
            return interface.PL_EUSER


def metrics_of_python(module: Mapping[str, Any]) -> List[str]:
    """The names of functions @metric in a record, which only this program has."""
    calls = module.get("calls", [])
    calls = [each for stage in calls.values() for each in stage] if isinstance(calls, dict) else calls
    names = {arguments["name"] for function, arguments, *_ in calls if function == "custom_metric"}
    return sorted(names & set(CustomMetric._registered))


def metric(function: Callable[..., float]) -> CustomMetric:
    """Makes a metric of a function of states, for g.custom_metric():

        @pl.metric
        def worst(errors):
            return errors.max()

        g.log("worst", g.custom_metric(worst, [(g.abs(x - y), "max")]))
    """
    return CustomMetric(function)


class Node:
    """A value of a graph. shape: a tuple; sizes that depend on the batch are -1. dtype: "float32", "int32", …"""

    def __init__(self, graph: "Graph", number: int, shape: Sequence[int], dtype: str) -> None:
        self.graph, self.number, self.dtype = graph, number, dtype
        self.shape = tuple(BatchSize() if size < 0 else size for size in shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Node({self.dtype} {list(self.shape)})"

    def __bool__(self) -> bool:
        raise TypeError("a node has no value while the graph is described: use g.where(condition, a, b) in place of if")

    def __len__(self) -> int:
        raise TypeError("use x.shape[0]; it is unknown if it is the batch")

    def __iter__(self) -> Any:
        raise TypeError("a node cannot be iterated: use x[:, k]")

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> "Node":
        """np.exp(x) is g.exp(x), and array + x is g.add(array, x)."""
        function = getattr(self.graph, UFUNCS.get(ufunc.__name__, ufunc.__name__), None)
        if not function or method != "__call__" or more:
            raise TypeError(f"np.{ufunc.__name__}() cannot compute with a node: write it with functions of the graph, "
                            "which help(pl.Graph) lists")
        if ufunc is np.multiply:                            # a number is a factor
            return inputs[1] * inputs[0] if isinstance(inputs[1], Node) else inputs[0] * inputs[1]
        return function(*inputs)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a node has no value while the graph is described: NumPy's functions cannot compute with it, "
                        "those of the graph can")

    def __add__(self, y: Any) -> "Node": return self.graph.add(self, y)
    def __radd__(self, y: Any) -> "Node": return self.graph.add(y, self)
    def __sub__(self, y: Any) -> "Node": return self.graph.sub(self, y)
    def __rsub__(self, y: Any) -> "Node": return self.graph.sub(y, self)
    def __mul__(self, y: Any) -> "Node":
        return self.graph.scale(self, float(y)) if isinstance(y, (int, float)) else self.graph.mul(self, y)
    def __rmul__(self, y: Any) -> "Node": return self * y
    def __truediv__(self, y: Any) -> "Node": return self.graph.div(self, y)
    def __rtruediv__(self, y: Any) -> "Node": return self.graph.div(y, self)
    def __pow__(self, y: Any) -> "Node":
        return self.graph.square(self) if isinstance(y, (int, float)) and y == 2 else self.graph.pow(self, y)
    def __rpow__(self, y: Any) -> "Node": return self.graph.pow(y, self)
    def __matmul__(self, y: Any) -> "Node": return self.graph.matmul(self, y)
    def __rmatmul__(self, y: Any) -> "Node": return self.graph.matmul(y, self)
    def __neg__(self) -> "Node": return self.graph.neg(self)
    def __abs__(self) -> "Node": return self.graph.abs(self)
    def __eq__(self, y: Any) -> "Node": return self.graph.equal(self, y)                 # type: ignore[override]
    def __ne__(self, y: Any) -> "Node": return self.graph.not_equal(self, y)             # type: ignore[override]
    def __lt__(self, y: Any) -> "Node": return self.graph.less(self, y)
    def __le__(self, y: Any) -> "Node": return self.graph.less_equal(self, y)
    def __gt__(self, y: Any) -> "Node": return self.graph.greater(self, y)
    def __ge__(self, y: Any) -> "Node": return self.graph.greater_equal(self, y)
    def __and__(self, y: Any) -> "Node": return self.graph.logical_and(self, y)
    def __or__(self, y: Any) -> "Node": return self.graph.logical_or(self, y)
    def __invert__(self) -> "Node": return self.graph.logical_not(self)

    def reshape(self, *shape: Any) -> "Node":
        """The same elements in another shape; one size may be -1."""
        return self.graph.reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def permute(self, *order: int) -> "Node":
        """Axis i of the result is axis order[i]."""
        return self.graph.permute(self, order)

    def sum(self, axes: Any = (), keep: bool = False) -> "Node":
        """The sum over axes; all of them without an argument."""
        return self.graph.sum(self, axes, keep)

    def mean(self, axes: Any = (), keep: bool = False) -> "Node":
        """The mean over axes; all of them without an argument."""
        return self.graph.mean(self, axes, keep)

    def __getitem__(self, index: Any) -> "Node":
        """Slices as of NumPy: x[:, 1:], x[..., 0], x[:, None]. The axis of the batch has ':'."""
        index = index if isinstance(index, tuple) else (index,)
        given = sum(k is not None and k is not Ellipsis for k in index)
        if given > self.ndim:
            raise IndexError(f"{given} indices for {self!r}")
        x, shape, axis = self, [], 0                        # shape: of the result
        for k in index:
            if k is None:
                shape.append(1)
            elif k is Ellipsis:
                rest = self.ndim - given
                shape += self.shape[axis:axis + rest]
                axis += rest
            else:
                x, size = x._cut(axis, k)
                shape += [] if size is None else [size]
                axis += 1
        shape += self.shape[axis:]
        return x if len(shape) == self.ndim and None not in index else self.graph.reshape(x, shape)

    def _cut(self, axis: int, k: Any) -> Tuple["Node", Optional[int]]:
        """A slice along an axis, and its size; None: the axis goes."""
        size = self.shape[axis]
        if isinstance(k, slice) and k == slice(None):
            return self, size
        if isinstance(size, BatchSize):
            raise IndexError(f"axis {axis} of {self!r} depends on the batch: it can only have ':'")
        if isinstance(k, slice):
            start, stop, step = k.indices(size)
            many = len(range(start, stop, step))
            if not many:
                raise IndexError(f"{k} of axis {axis} of {self!r} is empty")
            if step == 1:
                return self.graph.slice(self, axis, start, stop), many
            if hasattr(self.graph, "slice_step"):
                return self.graph.slice_step(self, axis, start, max(stop, -1), step), many
            return self.graph.concat([self.graph.slice(self, axis, at, at + 1)
                                      for at in range(start, stop, step)], axis), many
        if not hasattr(k, "__index__"):
            raise TypeError(f"an index is a number, a slice, ... or None, not {type(k).__name__}")
        at = k.__index__() + (size if k.__index__() < 0 else 0)
        if not 0 <= at < size:
            raise IndexError(f"index {k} is outside axis {axis} of {self!r}")
        return self.graph.slice(self, axis, at, at + 1), None


def _place() -> str:
    """The line of the user's program: "net.py:12"."""
    frame = sys._getframe(2)
    here = str(Path(__file__).parent)
    while frame.f_back and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return place_of(frame.f_code.co_filename, frame.f_lineno)


def _unknown_argument(error: TypeError) -> Optional[TypeError]:
    """The error of a call with an argument that a graph function does not have, with those that it has."""
    found = re.search(r"(?:Functions|Graph)\.(\w+)\(\) (?:got an unexpected keyword argument '(\w+)'|takes )", str(error))
    function = found and getattr(Graph, found[1], None)
    if not found or not function or not error.__traceback__:
        return None
    line = traceback.extract_tb(error.__traceback__)[-1]
    parameters = inspect.signature(function).parameters.values()
    known = [each.name for each in parameters if each.name not in ("self", "g")]
    if not found[2]:                                        # too many in order
        first = [each.name for each in parameters if each.name in known and each.kind is not each.KEYWORD_ONLY]
        return TypeError(f"{place_of(line.filename, line.lineno or 0)}: {found[1]} takes {', '.join(first)} in order, and "
                         f"others by name: {', '.join(name + '=…' for name in known if name not in first)}"
                         ).with_traceback(error.__traceback__)
    hint = ": a layer without one has no_bias=True" if found[2] == "bias" and "no_bias" in known else ""
    return TypeError(f"{place_of(line.filename, line.lineno or 0)}: {found[1]} has no argument {found[2]}{hint}; it has "
                     f"{', '.join(known)}").with_traceback(error.__traceback__)


class _Array:
    """An array where a function takes a node."""

    def __init__(self, array: Any) -> None:
        self.array = array


class Graph(interface.Functions):
    """Records the calls of graph functions for one stage: the argument g of a module's function."""

    def __init__(self, fields: Fields, stage: str = "train") -> None:
        self._stage, self._fields = stage, fields
        self.calls: List[Any] = []
        self.is_by_stage = False                            # the function has asked for the stage
        self._loss_at = ""                                  # the line that declared it
        table = (interface.pl_field_t * max(len(fields), 1))()
        for k, (name, field) in enumerate(fields.items()):
            try:
                dtype, shape = field
                sizes = interface.pl_shape_t(len(shape), tuple(shape))
            except (TypeError, ValueError):
                raise TypeError(f"the field {name} is {field!r}: write its type and the shape of a sample, "
                                "(\"float32\", (28, 28)); a number has the shape ()") from None
            if dtype not in DTYPES:
                raise TypeError(f"the field {name} has the type {dtype!r}: it is one of {', '.join(DTYPES)}")
            table[k] = interface.pl_field_t(name.encode(), DTYPES[dtype], sizes)
        self._recorder = ctypes.c_void_p(call(lib.pl_recorder_new, table, len(fields), STAGES.index(stage)))

    def __getattr__(self, name: str) -> Any:
        known = [each for each in dir(Graph) if not each.startswith("_")]
        near = difflib.get_close_matches(name.lower(), known, 3, 0.7)
        raise AttributeError(f"there is no g.{name}" + (f": did you mean {' or '.join('g.' + each for each in near)}?"
                                                        if near and not name.startswith("_") else ""))

    def close(self) -> None:
        lib.pl_recorder_free(self._recorder)
        self._recorder = ctypes.c_void_p()

    @property
    def stage(self) -> str:
        """ "train", "validate", "test" or "predict": the function is called once for each."""
        self.is_by_stage = True
        return self._stage

    def has_input(self, name: str) -> bool:
        """Whether the data have this field."""
        return name in self._fields

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:           # type: ignore[override]
        """Names of parameters in it begin with NAME and a dot: with g.scope("h.0"): …"""
        self._call("scope", name=name)
        yield
        self._call("scope_end")

    @contextmanager
    def checkpoint(self) -> Iterator[None]:                 # type: ignore[override]
        """Operations in it are computed again in backward, which saves memory: with g.checkpoint(): …"""
        self._call("checkpoint")
        yield
        self._call("checkpoint_end")

    def _value(self, x: Any) -> Any:
        """The number of the call that makes a node; numbers and arrays become constants."""
        if x is None:
            return None
        if isinstance(x, Node):
            if x.graph is not self:
                raise Error("PL_EINVAL", f"{_place()}: this node is of another graph: call the function with one g")
            return x.number
        if isinstance(x, (int, float)):
            return self.scalar(float(x)).number
        if hasattr(x, "tolist") and hasattr(x, "shape"):
            return _Array(x)
        raise TypeError(f"{_place()}: a node, a number or an array is needed, not {type(x).__name__}")

    def _constant(self, x: Any, is_whole: bool = False) -> int:
        """The number of the call that makes a constant of an array."""
        is_whole = is_whole and "int" in str(x.dtype)
        flat = np.asarray(x).reshape(-1).astype("<i8" if is_whole else "<f4")
        if flat.nbytes > CONSTANT_MAX:
            raise ValueError(f"{_place()}: an array of {flat.nbytes >> 20} MiB is no constant: write it to a file, and "
                             "read it with g.tensor_file")
        values: Dict[str, Any] = {"base64": b64encode(flat.tobytes()).decode()}
        if flat.size <= 64 and np.isfinite(flat).all():     # readable in a run file
            values = {"values": flat.tolist()}
        return self._call("tensor", dtype="int64" if is_whole else "float32", shape=tuple(x.shape), **values).number

    def _values(self, x: Sequence[Any]) -> List[Any]:
        return [self._constant(one.array) if isinstance(one, _Array) else one for one in map(self._value, x)]

    def _results(self, first: Any, further: Any) -> Any:
        """The results of a call; further: their number beside the first."""
        return (first, *(self._call("result", of=first.number, number=k + 1) for k in range(further))) if further else first

    def loss(self, loss: Metric) -> None:
        """Declares the loss, once: training minimizes it, and it is the metric "loss". g.loss(a + 0.1 * b)."""
        if self._loss_at:
            raise TypeError(f"{_place()}: the loss was declared at {self._loss_at}: add losses, g.loss(a + b)")
        self._call("loss", loss=loss)
        self._loss_at = _place()

    def custom_metric(self, metric: CustomMetric, states: Sequence[Tuple[Any, str]]) -> Metric:  # type: ignore[override]
        """A metric of your own for log(): 1 to 4 states (node, "sum", "max", "min" or "gather") of a batch, and a function
        @metric of their combination over batches and ranks. One whose states are not all sums has a value in validation
        and test alone."""
        if not isinstance(metric, CustomMetric):
            raise TypeError(f"{_place()}: write @pl.metric above the function of the metric")
        pairs = [[self._values([node])[0], combine] for node, combine in states]
        return self._call("custom_metric", name=metric.name, parameter=0.0, states=pairs)

    def _call(self, function: str, **arguments: Any) -> Any:
        for name, value in list(arguments.items()):
            if value is None:
                del arguments[name]
            elif name == "bias" and isinstance(value, bool):
                raise TypeError(f"{_place()}: {function.replace('_with', '')}: bias is how it starts: a layer without one has no_bias=True")
            elif isinstance(value, Metric):
                arguments[name] = value.number
            elif isinstance(value, _Array):
                arguments[name] = self._constant(value.array, name in WHOLE or function in COMPARISONS)
            elif isinstance(value, Node):                   # where a number, text or metric belongs
                raise TypeError(f"{_place()}: {function}: {name} cannot be a node" + (
                    ": pass a loss such as g.mse(x, y), or g.pair(sum, weight)" if name in ("loss", "metric") else ""))
            elif isinstance(value, float) and value in (float("inf"), float("-inf")):
                arguments[name] = "inf" if value > 0 else "-inf"
            elif isinstance(value, tuple):
                arguments[name] = [size.__index__() for size in value]
        record = [function, arguments, _place()]
        try:
            text = json.dumps(record, allow_nan=False, default=lambda value: value.item())
        except (AttributeError, TypeError, ValueError) as error:
            raise TypeError(f"{record[2]}: {function}: an argument is no number, text or list: {error}") from None
        answer = json.loads(text_of(call(lib.pl_recorder_call, self._recorder, text.encode())))
        self.calls.append(json.loads(text))
        if answer.get("kind") == "node":
            return Node(self, answer["value"], answer["shape"], answer["dtype"])
        return Metric(self, answer["value"]) if answer.get("kind") == "metric" else None

    def check(self) -> List[Any]:
        """The calls, after the last of them."""
        call(lib.pl_recorder_check, self._recorder)
        return self.calls


def _why_no_classes(fields: Fields) -> str:
    """What makes the targets no numbers of classes."""
    dtype, shape = fields.get("y", ("", ()))
    if not dtype:
        return "the data have no y"
    if not dtype.startswith(("int", "uint", "bool")):
        return f"y is {dtype}, and classes are whole numbers"
    if shape:
        return f"y has the shape {tuple(shape)} in each sample, and a class is one number"
    return "y has numbers below 0, and classes are counted from 0, or the data are an iterator that can be read once, " \
           "which says how many there are with pl.stream(iterator, classes=10)"


class Module:
    """A function f(g, …) that describes a model, with the values of its other parameters.

    Made by @module. net(hidden=64) is the same module with another value.
    """

    def __init__(self, function: Callable[..., None], options: Optional[Dict[str, Any]] = None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options = function, options or {}
        self.parameters = list(inspect.signature(function).parameters.values())[1:]
        self.defaults = {parameter.name: parameter.default for parameter in self.parameters}

    def __call__(self, **options: Any) -> "Module":
        known = [parameter.name for parameter in self.parameters]
        for name in options:
            if name not in known:
                raise TypeError(f"{self.__name__}() has no parameter {name}: it has {', '.join(known) or 'none'}")
        return Module(self.function, {**self.options, **options})

    def __repr__(self) -> str:
        return f"<Module {self.__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})>"

    def wants(self, name: str) -> bool:
        """Whether a parameter takes its value from the data."""
        value = self.options.get(name, self.defaults.get(name, ""))
        return value is None or value is inspect.Parameter.empty

    def record(self, fields: Fields, data_info: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """The module as a run file has it: {"name": "graph", "calls": […]}.

        fields: the data, {"x": ("float32", (28, 28)), "y": ("int64", ())}, shapes without the batch. data_info: values
        for parameters without one, such as {"classes": 10}.
        """
        options = dict(self.options)
        for parameter in self.parameters:
            if not self.wants(parameter.name):
                continue
            if data_info and parameter.name in data_info:
                options[parameter.name] = data_info[parameter.name]
            elif parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD \
                    and parameter.name not in options:
                raise TypeError(f"{self.__name__}() needs a value for {parameter.name}, which the data do not have: "
                                f"{self.__name__}({parameter.name}=…)")
        records = {}
        for stage in STAGES:
            graph = Graph(fields, stage)
            try:
                self.function(graph, **options)
                records[stage] = graph.check()
            except Error as error:
                if self.wants("classes") and options.get("classes") is None and "is missing" in str(error):
                    raise Error(error.code, f"{error}: classes is None, because {_why_no_classes(fields)}: write "
                                            f"{self.__name__}(classes=10) for ten") from None
                raise
            except TypeError as error:
                clear = _unknown_argument(error)
                if clear:
                    raise clear from None
                raise
            finally:
                graph.close()
            if not graph.is_by_stage:
                return {"name": "graph", "calls": records[stage]}
        return {"name": "graph", "calls": records}

    def save(self, path: Union[str, Path], fields: Fields, data_info: Optional[Mapping[str, Any]] = None) -> None:
        """Writes a run file with the module, which `paceline fit` and C programs train without Python. Its optimizer is
        that of fit(), adamw; `--set optimizer=…` sets another."""
        run = {"module": self.record(fields, data_info), "optimizer": "adamw"}
        Path(path).write_text(json.dumps(run, separators=(",", ":")).replace('],["', '],\n["') + "\n")


def module(function: Callable[..., None]) -> Module:
    """Makes a module of a function f(g, …) that describes one step: outputs, loss and metrics.

        @pl.module
        def net(g, hidden=128, classes=None):
            x = g.relu(g.linear("fc1", g.flatten(g.input("x")), hidden))
            ...

    Parameters without a value, or with None, come from the data: classes. g.stage is the stage.
    """
    return Module(function)
