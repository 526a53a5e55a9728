"""data.py - samples from NumPy arrays, pandas frames, PyTorch data sets and iterators

Arrays of the library's types are not copied. Others are converted where no value changes, and float64 becomes float32
with a warning.
"""
from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import warnings
import zlib
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _interface as interface
from .graph import DTYPES
from .library import call, lib

_sources: Dict[str, List[Any]] = {}                       # that are registered: users, and the arrays in use
_lock = threading.Lock()
_KEPT = {"float32", "int32", "int64", "uint8"}
_CONVERTED = {"bool": "uint8", "int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64",
              "float16": "float32", "bfloat16": "float32"}


class PacelineWarning(UserWarning):
    """Something was converted or left out."""


def warn(text: str) -> None:
    """Warns at the line of the program that called the package, at whatever depth."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, PacelineWarning, stacklevel=level)


def array_of(name: str, values: Any) -> np.ndarray:
    """One field as an array [samples, …] of a type of the library."""
    values = value_of(values, name)
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):    # a frame of pandas
        texts = [str(column) for column in values.columns if values[column].dtype.kind not in "biuf"]
        if texts:
            raise TypeError(f"{name}: the columns {', '.join(texts)} are no numbers: encode them first, for example "
                            "with pandas.get_dummies(), or leave them out")
        values = values.to_numpy(dtype=np.float32)
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        values = value_of(np.ma.stack(values) if is_masked(values) else np.asarray(values), name)
    if not values.ndim:
        raise TypeError(f"{name} is one value: pass an array whose first axis is the samples")
    if values.ndim > interface.PL_DIMS or len(name.encode()) >= 32:
        raise ValueError(f"{name} has {values.ndim} axes and {len(name.encode())} bytes in its name: at most "
                         f"{interface.PL_DIMS} and 31")
    if len(values) and not values.size:
        raise ValueError(f"{name} has no values: its shape is {list(values.shape)}, and each axis needs at least 1")
    kind = values.dtype.name
    if kind == "float64":
        warn(f"{name} is float64 and is used as float32: convert it with {name}.astype(np.float32) to save the copy")
        values = values.astype(np.float32)
    elif kind in _CONVERTED:
        values = values.astype(_CONVERTED[kind])
    elif kind == "uint64":
        if values.size and values.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{name} has numbers above 2^63, which no type of the library holds")
        values = values.astype(np.int64)
    elif kind not in _KEPT:
        raise TypeError(f"{name} is {values.dtype}: use numbers, or for y texts, which become classes")
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))


def compare_fields(mine: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """Validation data have the fields of training."""
    for name, (dtype, shape) in others.items():
        if name not in mine:
            raise ValueError(f"val has no {name}, and in data it is {dtype} {list(shape)}")
        if mine[name] != (dtype, shape) and list(mine) == list(others) == ["x"]:
            raise ValueError(f"val: x is {mine[name][0]} {list(mine[name][1])}, and in data it is {dtype} {list(shape)}: "
                             "pass targets with their inputs, data=(x, y)")
        if mine[name] != (dtype, shape):
            raise ValueError(f"val: {name} is {mine[name][0]} {list(mine[name][1])}, and in data it is {dtype} {list(shape)}")


def compare_classes(mine: Any, like: Any) -> None:
    """The classes of validation data are texts where those of training are."""
    if like.is_text and not mine.is_text:
        raise ValueError("val: y has numbers, and in data it has the names of classes: pass the names")
    if mine.is_text and not like.class_names:
        raise ValueError("val: y has texts, and in data it has numbers: pass the numbers")


def value_of(value: Any, name: str) -> Any:
    """A tensor of PyTorch as an array; other values as they are. What a mask of NumPy hides is not read."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise ValueError(f"{name} is masked at {np.ma.count_masked(value)} of {value.size} values, which have no "
                             "number: give them one, array.filled(0), or leave those samples out")
        return value.data
    return value.detach().cpu().numpy() if hasattr(value, "detach") and hasattr(value, "cpu") else value


def is_masked(values: Any) -> bool:
    """A list of arrays with masks, which np.asarray() drops."""
    return isinstance(values, (list, tuple)) and any(isinstance(each, np.ma.MaskedArray) for each in values)


def row_of(sample: Any) -> Mapping[str, Any]:
    """A sample, (x, y) or {"x": …}, by field."""
    return sample if isinstance(sample, Mapping) else dict(
        zip(("x", "y", "weight"), sample if isinstance(sample, (tuple, list)) else (sample,)))


def in_order(name: str, frame: Any, columns: Optional[List[str]]) -> Any:
    """The columns of a frame in the order in which the module was trained with them  [None: it was with none]."""
    if not columns or not hasattr(frame, "columns") or list(map(str, frame.columns)) == columns:
        return frame
    here = {str(column): column for column in frame.columns}
    missing = [column for column in columns if column not in here]
    if missing:
        raise ValueError(f"{name}: the frame has no column {', '.join(missing)}, which the training had")
    return frame[[here[column] for column in columns]]


class Samples:
    """Samples as arrays by field, with the classes of "y"."""
    has_end, left_out, raised = True, 0, None               # as of Streamed

    def __init__(self, data: Any, like: Any = None, columns: Optional[Callable[[], Any]] = None) -> None:
        """like: samples of training; columns: gives those of frames, by field, as training had them."""
        self.class_names: Optional[List[str]] = like.class_names if like else None
        self.is_text = False                                # y, as it is given
        given = fields_of(data)
        if not 1 <= len(given) <= interface.PL_FIELDS:
            raise ValueError(f"data have 1 to {interface.PL_FIELDS} fields, not {len(given)}")
        has_frames = any(hasattr(values, "columns") for values in given.values())
        known = getattr(like, "columns", None) or (columns() if columns and has_frames else {})
        given = {name: in_order(name, values, known.get(name)) for name, values in given.items()}
        self.columns = {name: list(map(str, values.columns)) for name, values in given.items() if hasattr(values, "columns")}
        if "y" in given:
            given["y"] = self._classes_of(given["y"])
        self.fields = {name: array_of(name, values) for name, values in given.items()}
        lengths = {name: len(array) for name, array in self.fields.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError("the numbers of samples differ: "
                             + ", ".join(f"{length} of {name}" for name, length in lengths.items()))
        self.count = next(iter(lengths.values()))
        if not self.count:
            raise ValueError("the data have no samples")
        if like:
            compare_fields(self.description, like.description)
            compare_classes(self, like)
        self.source: Optional[str] = None

    def _classes_of(self, y: Any) -> Any:
        """Texts as numbers of classes, in the order of their names; bool and uint8 as int64."""
        if hasattr(y, "to_numpy") and not hasattr(y, "columns"):
            y = y.to_numpy()
        y = value_of(y, "y")
        if isinstance(y, (list, tuple)) and not is_masked(y):
            listed, y = y, np.asarray(y)
            if y.dtype.kind in "US" and not all(isinstance(each, (str, bytes)) for each in listed):    # nan is a text there
                y = np.array(listed, object)
        is_text = isinstance(y, np.ndarray) and y.dtype.kind in "OUS"
        if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.name in ("bool", "uint8"):
            return y.astype(np.int64)                       # losses take classes as int32 or int64
        if not is_text:
            return y
        if y.ndim != 1:
            raise TypeError(f"y is texts of {list(y.shape)}: one text for each sample is its class")
        self.is_text = True
        missing = sum(not isinstance(value, str) and str(value) in ("None", "nan", "<NA>", "NaT") for value in y.tolist())
        if missing:
            raise ValueError(f"y has no value for {missing} of {len(y)} samples: leave those samples out")
        names = y.astype(str)
        if self.class_names is None:
            self.class_names = sorted(set(names.tolist()))
        unknown = sorted(set(names.tolist()) - set(self.class_names))
        if unknown:
            raise ValueError(f"y has the classes {', '.join(unknown)}, which the training data do not have")
        return np.searchsorted(np.array(self.class_names), names).astype(np.int64)

    @property
    def data_info(self) -> Dict[str, Any]:
        """What parameters of modules take from the data: the number of classes, or of labels of 0 and 1."""
        info: Dict[str, Any] = {}
        y = self.fields.get("y")
        if y is not None and y.dtype.kind in "iu" and y.ndim == 1 and y.min() >= 0:
            info["classes"] = len(self.class_names) if self.class_names else int(y.max()) + 1
        if y is not None and y.dtype.kind in "iub" and y.ndim == 2 and y.shape[1] > 1 and ((y == 0) | (y == 1)).all():
            info["labels"] = y.shape[1]
        if self.class_names:
            info["class_names"] = self.class_names
        if self.columns:
            info["frame_columns"] = self.columns
        return info

    @property
    def description(self) -> Dict[str, Tuple[str, Tuple[int, ...]]]:
        return {name: (array.dtype.name, array.shape[1:]) for name, array in self.fields.items()}

    def arrays(self) -> Any:
        """A pl_arrays_t on the memory of the fields."""
        info = self.data_info
        arrays = interface.pl_arrays_t(samples=self.count, field_count=len(self.fields),
                                       data_info=json.dumps(info).encode() if info else None)
        for k, (name, array) in enumerate(self.fields.items()):
            shape = interface.pl_shape_t(array.ndim - 1, tuple(array.shape[1:]))
            arrays.field[k] = interface.pl_field_t(name.encode(), DTYPES[array.dtype.name], shape)
            arrays.data[k] = array.ctypes.data
        arrays.held = self.fields
        return arrays

    def register(self) -> Dict[str, Any]:
        """The data set of a run file that reads the arrays where they are, in this process.

        Its name follows from the samples, so that a run can be resumed with the same data and no others.
        """
        with _lock:
            if not self.source:
                digest = zlib.crc32(repr((self.count, self.description, self.class_names)).encode())
                for array in self.fields.values():
                    digest = zlib.crc32(memoryview(array).cast("B"), digest) if array.size else digest
                source = f"python-{digest:08x}"
                if source not in _sources:
                    arrays = self.arrays()
                    call(lib.pl_memory_arrays, source.encode(), ctypes.byref(arrays))
                    _sources[source] = [0, arrays]
                _sources[source][0] += 1
                self.source = source
            return {"name": "memory", "source": self.source}

    def release(self) -> None:
        with _lock:
            if self.source:
                _sources[self.source][0] -= 1
                if not _sources[self.source][0]:
                    lib.pl_memory_data(self.source.encode(), None, None)
                    del _sources[self.source]
                self.source = None

    def write(self, folder: str, prefix: str) -> Dict[str, Any]:
        """The data set of a run file for ranks in other processes: files, which each of them maps."""
        paths = {}
        for name, array in self.fields.items():
            paths[name] = f"{folder}/{prefix}-{name}.npy"
            np.save(paths[name], array)
        more = {name: path for name, path in paths.items() if name not in ("x", "y")}
        if "x" not in paths:
            raise ValueError("ranks in other processes read files: the data need a field \"x\"")
        return {"name": "npy", "x": paths["x"], **({"y": paths["y"]} if "y" in paths else {}),
                **({"fields": more} if more else {})}


def fields_of(data: Any) -> Dict[str, Any]:
    """{"x": …, "y": …} from what a program has."""
    if isinstance(data, Mapping):
        return {str(name): values for name, values in data.items()}
    if isinstance(data, tuple):
        if len(data) > 3:
            raise TypeError("data is (x, y) or (x, y, weight); name other fields: {\"x\": …, \"mask\": …}")
        return dict(zip(("x", "y", "weight"), data))
    if isinstance(data, np.ndarray) or hasattr(data, "to_numpy") or hasattr(data, "detach"):
        return {"x": data}
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (list, str, bytes)):
        return _stacked(data[k] for k in range(len(data)))              # a data set of PyTorch
    if hasattr(data, "dataset") and hasattr(data, "batch_size"):
        raise TypeError("pass the data set of a DataLoader, loader.dataset, and batch_size=…: the engine shuffles and "
                        "batches by itself")
    if isinstance(data, list) and 2 <= len(data) <= 3 and all(isinstance(each, np.ndarray) and each.ndim for each in data):
        if len({len(each) for each in data}) == 1 and len({each.shape for each in data}) > 1:
            raise TypeError("data is a list of arrays, and a list has samples: pass the fields as a tuple, (x, y)")
    if hasattr(data, "__iter__") and not isinstance(data, (str, bytes)):
        return _stacked(data)
    raise TypeError(f"data is {type(data).__name__}: pass (x, y), {{\"x\": …}}, a frame, a data set, an iterator of "
                    "samples, or a file as pl.csv(path=\"points.csv\")")


def _stacked(samples: Iterable[Any]) -> Dict[str, np.ndarray]:
    """The fields of samples that come one by one: (x, y) or {"x": …}."""
    columns: Dict[str, List[Any]] = {}
    count = 0
    for count, sample in enumerate(samples, 1):
        for name, value in row_of(sample).items():
            columns.setdefault(name, []).append(np.asarray(value_of(value, name)))
    if not count:
        raise ValueError("the iterator gave no samples")
    uneven = [name for name, column in columns.items() if len(column) != count]
    if uneven:
        raise ValueError(f"not every sample has {', '.join(uneven)}")
    try:
        return {name: np.stack(column) for name, column in columns.items()}
    except ValueError as error:
        raise ValueError(f"samples have different shapes: {error}; pad them to one shape") from None


Data = Union[Samples, Mapping[str, Any], tuple, Any]
