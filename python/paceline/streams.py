"""streams.py - samples that are read while the engine trains: data sets of PyTorch, iterators and functions that make them

The engine's data thread calls for each batch, and holds the interpreter only while it fetches that batch. No more than
a batch or two is in memory, so a source may be larger than memory, or have no end.
"""
from __future__ import annotations

import ctypes
import functools
import itertools
import json
import threading
import zlib
from collections import deque
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_void_p
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _interface as interface
from .data import Data, Samples, array_of, compare_classes, compare_fields, row_of, value_of
from .engine import weakly
from .graph import DTYPES
from .library import call, lib

_read_t = CFUNCTYPE(c_int, c_void_p, POINTER(interface.pl_read_request_t), POINTER(c_void_p),
                    POINTER(interface.pl_error_t))
_functions: Dict[str, Any] = {}                             # by the names of the sources that are registered
_lock = threading.Lock()
_ORDERED = ("val_split", "folds", "stratify", "sampler", "shuffle_window")
_NO_END = 1 << 31                                           # batches of an epoch whose end shows itself


class Stream:
    """A source of samples with what it does not tell by itself.

    source: an iterator, an iterable, a function that returns a new iterator for each epoch, or a data set with
    __getitem__ and __len__. A sample is (x, y), (x, y, weight) or {"x": …}. samples: of an epoch [those of the first
    pass over the source]. classes: of an integer "y", their number or names [found in the samples].
    """

    def __init__(self, source: Any, samples: Optional[int] = None,
                 classes: Union[int, Sequence[str], None] = None) -> None:
        if samples is not None and samples < 1:
            raise ValueError(f"samples is the number of samples of an epoch, at least 1, not {samples}")
        self.source, self.samples, self.classes = source, samples, classes


def is_by_index(source: Any) -> bool:
    """A data set in the style of a map; PyTorch gives those of iterators a __getitem__ as well."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__") and \
        all(base.__name__ != "IterableDataset" for base in type(source).__mro__)


def is_streamed(data: Any) -> bool:
    """Data that no array of NumPy holds already."""
    if isinstance(data, Stream):
        return True
    if isinstance(data, (Mapping, tuple, list, str, bytes, np.ndarray)) or hasattr(data, "to_numpy") \
            or hasattr(data, "detach") or (hasattr(data, "dataset") and hasattr(data, "batch_size")):
        return False
    return is_by_index(data) or hasattr(data, "__iter__") or (callable(data) and not isinstance(data, type))


class _Place:
    """Where a thread is in the source."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator, self.next = iterator, 0
        self.ahead: Deque[Any] = deque()

    def look(self, count: int) -> int:
        """How many of the next `count` samples there are."""
        self.ahead.extend(itertools.islice(self._iterator, max(count - len(self.ahead), 0)))
        return min(len(self.ahead), count)

    def take(self) -> Any:
        self.next += 1
        return self.ahead.popleft() if self.ahead else next(self._iterator)


def _release(name: str, function: Any) -> None:
    with _lock:
        if _functions.get(name) is function:                # not yet, and no other source has the name
            lib.pl_memory_data(name.encode(), None, None)
            del _functions[name]


class Streamed:
    """The samples of a source, read by a run: what Samples is for arrays."""

    def __init__(self, stream: Stream, like: Any = None) -> None:
        source = self._source = stream.source
        self.raised: Optional[BaseException] = None
        self.is_by_index = is_by_index(source)
        self.is_once = not self.is_by_index and not callable(source) and iter(source) is source
        self.has_end, self._batch, self._group = True, 0, 0     # has_end: the number of samples is known
        self.last: Dict[int, int] = {}                      # batches of an epoch whose end has shown itself
        self.left_out = 0                                   # samples behind them, fewer than a batch
        self._places: Dict[int, _Place] = {}                # by thread: each rank has its own
        self.release: Callable[[], None] = lambda: None     # gives back what register() has taken; once or more
        self._largest: Optional[int] = None                 # class
        self.count: Optional[int] = stream.samples
        if self.count is None and hasattr(source, "__len__"):
            self.count = len(source)
        if self.count == 0:
            raise ValueError("the data have no samples")
        self._first = self._open() if not self.is_by_index else None
        try:
            first = source[0] if self._first is None else next(self._first)
        except StopIteration:
            raise ValueError("the iterator gave no samples") from None
        if self._first is not None:
            self._first = itertools.chain([first], self._first)
        named = stream.classes if stream.classes is not None else getattr(source, "classes", None)
        if isinstance(named, int):
            self._largest = named - 1
        self.class_names: Optional[List[str]] = like.class_names if like is not None else \
            [str(name) for name in named] if isinstance(named, (list, tuple)) else None
        self._describe(row_of(first))
        if like is not None:
            compare_fields(self.description, like.description)
            compare_classes(self, like)

    def _describe(self, row: Mapping[str, Any]) -> None:
        self.description: Dict[str, Tuple[str, Tuple[int, ...]]] = {}
        self.is_text = False
        if not 1 <= len(row) <= interface.PL_FIELDS:
            raise ValueError(f"data have 1 to {interface.PL_FIELDS} fields, not {len(row)}")
        for name, value in row.items():
            array = np.asarray(value_of(value, name))
            if name == "y" and not array.ndim and array.dtype.kind in "USbu":
                self.is_text = array.dtype.kind in "US"
                array = np.asarray(0)                       # classes are int64
            elif isinstance(value, float):
                array = array.astype(np.float32)
            array = array_of(name, array[None])
            self.description[name] = (array.dtype.name, array.shape[1:])

    def _open(self) -> Iterator[Any]:
        return iter(self._source() if callable(self._source) else self._source)

    def _scan(self) -> None:
        """One pass over the source, for the number of samples and their classes."""
        texts, largest, count = set(), -1, 0
        samples = (self._source[k] for k in range(len(self._source))) if self.is_by_index else self._open()
        for count, sample in enumerate(samples, 1):
            y = row_of(sample).get("y")
            if self.is_text and not isinstance(y, (str, bytes)):
                raise ValueError(f"sample {count - 1}: y is {y}, and in the first one it is a text: give each a text, or "
                                 "leave it out")
            if self.is_text:
                texts.add(str(y))
            elif y is not None and np.ndim(value_of(y, "y")) == 0:
                largest = max(largest, int(y))
        self.count = self.count or count
        self._largest = largest if largest >= 0 else None
        if texts and self.class_names is None:
            self.class_names = sorted(texts)

    def learn_names(self) -> None:
        """The names of classes, which validation data share: a smaller set of them would have other numbers."""
        if self.is_text and self.class_names is None and not self.is_once:
            self._scan()

    # ---- what a run needs ----

    def plan(self, part: str, options: Mapping[str, Any], data: Mapping[str, Any], schedules: bool,
             wants_classes: bool) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Options of the trainer and of the data that the source needs, for a part of the data of a run."""
        trainer: Dict[str, Any] = {}
        y = self.description.get("y")
        counts_classes = y is not None and y[1] == () and np.dtype(y[0]).kind in "iu" and self.class_names is None \
            and self._largest is None and (wants_classes or self.is_text)
        if self.is_once and self.is_text and self.class_names is None:
            raise TypeError("y is a text, and an iterator can be read once: name the classes, "
                            "pl.stream(iterator, classes=[\"cat\", \"dog\"])")
        if self.is_by_index:
            if counts_classes:
                self._scan()
            return {}, {}
        for name in (*_ORDERED, "shuffle") if part == "train" else ():
            if data.get(name):
                raise TypeError(f"{name} needs samples in any order, and an iterator has its own: pass arrays, or a "
                                "data set with __getitem__ and __len__" + "; val=… for validation"
                                * (name == "val_split"))
        if data.get("workers", 1) != 1:
            raise TypeError("an iterator is read by one thread: leave out workers")
        steps, epochs = options.get("max_steps", -1), options.get("max_epochs")
        self._batch = data.get("batch_size", 32)
        self._group = self._batch * options.get("accumulate_grad_batches", 1)
        if self.is_once and part == "train":
            trainer = {"max_epochs": 1} if epochs is None and steps < 0 else {}
            needed = steps * self._group if steps > 0 else None
            if (epochs or 1) != 1 and not (needed and (self.count is None or needed <= self.count)):
                raise TypeError(f"an iterator can be read once, and max_epochs is {epochs}: pass a function that returns "
                                "a new iterator for each epoch, pl.stream(make_iterator), a data set, or max_epochs=1")
        elif self.is_once and (part == "val" or self.count is None):
            raise TypeError(f"{part}: " + ("validation data are read again after each epoch: pass arrays, or a function "
                                           "that returns a new iterator" if part == "val" else
                                           "the number of samples is unknown: pass pl.stream(iterator, samples=…)"))
        if self.count is None and part == "train" and (self.is_once or steps > 0):
            if schedules and steps < 0:
                raise TypeError("a schedule needs the length of the run: pass max_steps=…, or the number of samples, "
                                "pl.stream(iterator, samples=…)")
            self.has_end = False
            self.count = self._group * steps if steps > 0 else \
                _NO_END // self._group * self._group * self._batch
        if not self.is_once and (self.count is None or counts_classes):
            self._scan()
        return trainer, {"shuffle": False} if part == "train" else {}

    @property
    def data_info(self) -> Dict[str, Any]:
        """What parameters of modules take from the data: the number of classes."""
        info: Dict[str, Any] = {}
        if self.class_names:
            info = {"classes": len(self.class_names), "class_names": self.class_names}
        elif self._largest is not None:
            info = {"classes": self._largest + 1}
        return info

    def register(self) -> Dict[str, Any]:
        """The data set of a run file that reads the source in this process, under a name of its description."""
        digest = zlib.crc32(repr((type(self._source).__name__, self.count, self.description)).encode())
        info = self.data_info
        table = interface.pl_memory_data_t(samples=self.count, field_count=len(self.description),
                                           data_info=json.dumps(info).encode() if info else None)
        for k, (name, (dtype, shape)) in enumerate(self.description.items()):
            sizes = interface.pl_shape_t(len(shape), tuple(shape))
            table.field[k] = interface.pl_field_t(name.encode(), DTYPES[dtype], sizes)
        function = _read_t(weakly(self._read, interface.PL_EUSER))
        table.read = ctypes.cast(function, c_void_p)
        with _lock:
            name = next(name for name in (f"python-{digest:08x}-{k}" for k in itertools.count())
                        if name not in _functions)
            _functions[name] = function
        self.release = functools.partial(_release, name, function)      # the run's engine keeps it, and no source
        call(lib.pl_memory_data, name.encode(), byref(table))
        return {"name": "memory", "source": name}

    def write(self, folder: str, prefix: str) -> Dict[str, Any]:
        """The data set of a run file for ranks in other processes: files, written sample by sample."""
        if not self.has_end:
            raise TypeError("ranks in other processes read files, so the samples have to end: pass "
                            "pl.stream(iterator, samples=…)")
        files = {name: np.lib.format.open_memmap(f"{folder}/{prefix}-{name}.npy", "w+", np.dtype(dtype),
                                                 (self.count, *shape))
                 for name, (dtype, shape) in self.description.items()}
        assert self.count
        for k in range(self.count):
            self._put(files, 0, k, [k], self._fetch([k], 0))
        paths = {name: file.filename for name, file in files.items()}
        for file in files.values():
            file.flush()
        more = {name: path for name, path in paths.items() if name not in ("x", "y")}
        return {"name": "npy", **{name: path for name, path in paths.items() if name in ("x", "y")},
                **({"fields": more} if more else {})}

    # ---- reading, on the data thread ----

    def _read(self, _user: Any, request: Any, fields: Any, err: Any) -> int:
        try:
            if self.raised:                                 # the engine asks for each sample of a batch that failed
                raise self.raised
            request = request.contents
            count = request.count
            index = list((ctypes.c_int64 * count).from_address(request.index))
            into = {}
            for k, (name, (dtype, shape)) in enumerate(self.description.items()):
                size = count * int(np.prod(shape)) * np.dtype(dtype).itemsize
                memory = (ctypes.c_char * size).from_address(fields[k])
                into[name] = np.frombuffer(memory, dtype).reshape((count, *shape))
            self._put(into, count, 0, index, self._fetch(index, request.epoch))
            return 0
        except BaseException as raised:                     # it cannot pass through C
            self.raised = raised
            err.contents.code = interface.PL_EUSER
            err.contents.text = f"{type(raised).__name__}: {raised}".encode()[:500]
            return interface.PL_EUSER

    def _fetch(self, index: List[int], epoch: int) -> List[Any]:
        """The samples of these numbers; fewer behind an end that has shown itself."""
        if self.is_by_index:
            together = getattr(self._source, "__getitems__", None)
            return together(index) if together else [self._source[k] for k in index]
        place = self._places.get(threading.get_ident())
        if place is None or index[0] < place.next:
            place = self._places[threading.get_ident()] = self._begin()
        if not self.has_end and not place.next and place.look(self._group) < self._group:
            raise ValueError(f"the iterator gave {len(place.ahead)} samples, fewer than the {self._group} of a step: lower "
                             "batch_size")
        samples = []
        for number in index:
            try:
                while place.next < number:                  # of other ranks, or before a run was resumed
                    place.take()
                samples.append(place.take())
            except StopIteration:
                if not self.has_end:
                    break                                   # read ahead, and never trained on
                raise ValueError(f"the source gave {place.next - 1} samples, and {self.count} were announced: pass "
                                 "pl.stream(source, samples=…)") from None
        if not self.has_end and place.next % self._group == 0 and place.look(self._group) < self._group:
            self.last.setdefault(epoch, place.next // self._batch)
            self.left_out = len(place.ahead)
        return samples

    def _begin(self) -> _Place:
        if self._first is None and self.is_once:
            raise RuntimeError("an iterator can be read once, by one rank and from its beginning: pass a function that "
                               "returns a new iterator, pl.stream(make_iterator)")
        first, self._first = self._first, None
        return _Place(first if first is not None else self._open())

    def _put(self, into: Mapping[str, np.ndarray], count: int, at: int, index: List[int], samples: List[Any]) -> None:
        """Writes samples from a place of the arrays on; the rest up to `count` is 0."""
        for i, sample in enumerate(samples):
            row = row_of(sample)
            for name, array in into.items():
                if name not in row:
                    raise ValueError(f"sample {index[i]} has no {name}, which the first one has")
                value = value_of(row[name], f"sample {index[i]}: {name}")
                if self.is_text and name == "y":
                    if str(value) not in (self.class_names or ()):
                        raise ValueError(f"sample {index[i]}: y is {value}, which is none of the classes")
                    value = (self.class_names or []).index(str(value))
                value = np.asarray(value)
                if value.shape != array.shape[1:] or not np.can_cast(value.dtype, array.dtype, "same_kind"):
                    raise ValueError(f"sample {index[i]}: {name} is {value.dtype} {list(value.shape)}, and in the first one "
                                     f"it is {array.dtype} {list(array.shape[1:])}: give all samples one type and shape")
                array[at + i] = value
        for array in into.values():
            array[at + len(samples):count] = 0


def samples_of(data: Data, like: Any = None, columns: Any = None) -> Any:
    """Samples of arrays, or Streamed ones; like: of training; columns: as of Samples."""
    if isinstance(data, (Samples, Streamed)):
        return data
    if isinstance(like, Streamed):
        like.learn_names()
    if is_streamed(data):
        return Streamed(data if isinstance(data, Stream) else Stream(data), like)
    return Samples(data, like, columns)
