"""loop.py - manual loops: the program decides what happens next, and sends each batch itself"""
from __future__ import annotations

import ctypes
import itertools
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, addressof, byref, c_void_p
from pathlib import Path
from typing import Any, Dict, Generator, Iterator, List, Mapping, Optional, Union

import numpy as np

from . import _interface as interface
from .data import Data, Samples, fields_of, value_of
from .engine import Engine, weakly
from .graph import DTYPES
from .library import Error, call, lib, options_text
from .run import Trainer, views_of

_REDUCTIONS = ("sum", "mean", "max", "min")
_on_loop_t = CFUNCTYPE(None, c_void_p, POINTER(interface.pl_loop_result_t), c_void_p)


def _encoded(name: Optional[str]) -> Optional[bytes]:
    return name.encode() if name is not None else None


class Answer:
    """The answer to one call of a loop. wait() for it, or await it; both return the Answer or raise its error.

    loss: the mean over the batch; grad_norm: before clipping; metrics: by name; outputs: of a prediction, [samples, …]
    each, of gradients() these, and of close() the weights; global_step: optimizer steps done; skipped: what was not finite, or ""; data: of
    an exchange with other ranks, or None.
    """

    def __init__(self, loop: "Loop") -> None:
        self._loop, self._error, self.is_done = loop, None, False
        self._sent: Optional[np.ndarray] = None             # to other ranks
        self._gathers, self.data = False, None
        self.number = next(loop.numbers)
        self.loss = self.grad_norm = float("nan")
        self.metrics: Dict[str, Any] = {}
        self.outputs: Dict[str, np.ndarray] = {}
        self.global_step, self.skipped = 0, ""

    def take(self, result: Any) -> None:
        if result.error.code:
            self._error = Error.of(result.error)
        else:
            self.loss, self.grad_norm, self.global_step = result.loss, result.grad_norm, result.global_step
            self.metrics, self.skipped = json.loads(result.metrics or b"{}"), (result.skipped or b"").decode()
            views = views_of(result.output, result.output_count, self)
            self.outputs = {name: view.copy() for name, view in views.items()}      # valid in here only
            if self._sent is not None:
                ranks = result.data_count // max(self._sent.size, 1)
                shape = ((ranks,) if self._gathers else ()) + self._sent.shape
                data = ctypes.string_at(result.data, result.data_count * self._sent.itemsize)
                self.data = np.frombuffer(data, self._sent.dtype).reshape(shape).copy()
        self.is_done = True
        if self._error:
            self._loop.failed.append(self)

    def __repr__(self) -> str:
        if not self.is_done:
            return "<Answer, not here yet: wait() for it, or await it>"
        loss = f": loss {self.loss:.4g}" if self.loss == self.loss else ""      # not every call has one
        return f"<Answer, failed: {self._error}>" if self._error else f"<Answer at step {self.global_step}{loss}>"

    def wait(self) -> "Answer":
        if not self.is_done:
            self._loop.engine.wait(lambda: self.is_done)
        if self._error:
            self._loop.failed = [each for each in self._loop.failed if each is not self]
            raise self._error
        return self

    def __await__(self) -> Generator[Any, None, "Answer"]:
        if not self.is_done:
            yield from self._loop.engine.arrives(lambda: self.is_done).__await__()
        return self.wait()


class Loop:
    """A manual loop. It opens with the first batch, whose fields and shapes all others have.

        with pl.Loop(net(classes=10), optimizer=pl.adamw(lr=1e-3), batch_size=64) as loop:
            for x, y in stream:
                print(loop.train((x, y)).wait().loss)

    Options are those of Trainer; batch_size is the maximum of a batch [32]. At most `depth` calls are under way: a further
    one waits for the oldest. checkpoints: the loop has a folder for them. resume: continues from a checkpoint.
    """

    def __init__(self, module: Any, *, depth: int = 8, checkpoints: bool = False,
                 resume: Union[str, Path, None] = None, **options: Any) -> None:
        checkpoints = options.pop("enable_checkpointing", checkpoints)      # as C calls it
        self._trainer = Trainer(module, **options)
        self._spec = interface.pl_loop_spec_t(enable_checkpointing=checkpoints, depth=depth,
                                              resume=os.fsencode(resume) if resume else None)
        self._depth, self._loop = depth, None
        self.numbers = itertools.count(1)
        self._pending: Dict[int, Answer] = {}               # by number
        self.failed: List[Answer] = []                      # whose errors the program has not taken
        self._function = _on_loop_t(weakly(self._take))
        self.engine = Engine(self._trainer.callbacks)
        self.engine.keep(self._function)

    def __repr__(self) -> str:
        state = "closed" if not self.engine.is_open else "not open: its first batch opens it" if self._loop is None \
            else f"{len(self._pending)} calls under way"
        return f"<Loop of {self._trainer.module!r}, {state}>"

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if self.engine.is_open:
                self.close()
        except Error:
            if not kind:                                    # otherwise the program's own error is the one to see
                raise

    def _open(self, samples: Samples) -> None:
        names = list(samples.fields)
        table = (interface.pl_field_t * len(names))()
        for k, (name, (dtype, shape)) in enumerate(samples.description.items()):
            sizes = interface.pl_shape_t(len(shape), tuple(shape))
            table[k] = interface.pl_field_t(name.encode(), DTYPES[dtype], sizes)
        self._spec.field_count, self._spec.field = len(names), addressof(table)
        while self._spec.targets < len(names) and names[-1 - self._spec.targets] in ("y", "weight"):
            self._spec.targets += 1
        folder = None
        if isinstance(self._trainer.weights, Mapping):
            folder = tempfile.mkdtemp(prefix="paceline-")
            self.engine.keep(give_back=lambda: shutil.rmtree(folder, ignore_errors=True))
        run = self._trainer.run(samples, {}, folder)
        if not run["data"]:                                 # the program has them, and here are none of their options
            del run["data"]
        options = c_void_p(call(lib.pl_options_parse, options_text(run), b"run"))
        self.engine.keep(give_back=lambda: lib.pl_options_free(options))
        opened = Answer(self)
        with self._used() as engine:
            self._pending[opened.number] = opened
            try:
                self._loop = c_void_p(call(lib.pl_loop_open, engine, options, byref(self._spec), self._function,
                                           opened.number))
            except Error:
                del self._pending[opened.number]
                raise
        opened.wait()

    def _take(self, _loop: Any, result: Any, number: int) -> None:
        self._pending.pop(number).take(result.contents)

    @contextmanager
    def _used(self) -> Iterator[Any]:
        """The engine, for one call of the library."""
        with self.engine.used() as engine:
            if not engine:
                raise Error("PL_ESTATE", "the loop is closed")
            yield engine

    def _send(self, function: Any, data: Data, *before: Any) -> Answer:
        with self._used():
            samples = Samples(fields_of(data))
            if self._loop is None:
                self._open(samples)
        return self._call(function, *before, byref(samples.arrays()))

    def _call(self, function: Any, *arguments: Any, answer: Optional[Answer] = None) -> Answer:
        answer = answer or Answer(self)
        while True:
            with self._used():
                if self._loop is None:
                    raise Error("PL_ESTATE", "the first call of a loop trains or evaluates, because its batch has all "
                                             "fields")
                oldest = next(iter(self._pending.values()), answer)
                if len(self._pending) < self._depth:
                    self._pending[answer.number] = answer
                    try:
                        call(function, self._loop, *arguments, self._function, answer.number)
                    except BaseException:
                        del self._pending[answer.number]
                        raise
                    return answer
            self.engine.wait(lambda: oldest.is_done)

    def train(self, data: Data) -> Answer:
        """Trains on a batch; the samples are copied before the call returns."""
        return self._send(lib.pl_loop_train, data)

    def evaluate(self, data: Data) -> Answer:
        """Measures a batch with the current weights: metrics as of a validation."""
        return self._send(lib.pl_loop_evaluate, data)

    def predict(self, data: Data) -> Answer:
        """Computes the outputs of a batch with the current weights; targets may be missing."""
        return self._call(lib.pl_loop_predict, byref(Samples(fields_of(data)).arrays()))

    def backward(self, data: Data, objective: Optional[str] = None) -> Answer:
        """Computes gradients of an objective [the module's only one] and takes no step; those of several calls add up.

        `loss` of the answer is of all batches since the last step, on this rank.
        """
        return self._send(lib.pl_loop_backward, data, _encoded(objective))

    def step(self, objective: Optional[str] = None) -> Answer:
        """Takes the optimizer step of an objective with the gradients that backward() has computed, of all ranks."""
        return self._call(lib.pl_loop_step, _encoded(objective))

    def gradients(self, objective: Optional[str] = None) -> Answer:
        """The gradients by parameter, as `outputs` of the answer: of the mean over the samples of this rank."""
        return self._call(lib.pl_loop_gradients, _encoded(objective))

    def set_gradients(self, gradients: Dict[str, Any], objective: Optional[str] = None) -> Answer:
        """Replaces the gradients of the parameters that are named, before step()."""
        arrays = {name: np.ascontiguousarray(value_of(array, name), np.float32) for name, array in gradients.items()}
        table = (interface.pl_result_tensor_t * max(len(arrays), 1))()
        for k, (name, array) in enumerate(arrays.items()):
            if array.ndim > len(interface.pl_shape_t().dim):
                raise ValueError(f"the gradient of {name} has {array.ndim} axes: no parameter has so many")
            shape = interface.pl_shape_t(array.ndim, array.shape)
            table[k] = interface.pl_result_tensor_t(name.encode(), shape, array.ctypes.data)
        return self._call(lib.pl_loop_set_gradients, _encoded(objective), addressof(table), len(arrays))

    def save(self, name: str) -> Answer:
        """Makes a checkpoint of the state after all calls so far; the loop has checkpoints=True."""
        return self._call(lib.pl_loop_save, name.encode())

    def _exchange(self, function: Any, numbers: Any, *before: Any, gathers: bool = False) -> Answer:
        sent = np.ascontiguousarray(value_of(numbers, "the array"))
        if sent.dtype.name not in DTYPES:
            raise TypeError(f"{sent.dtype} cannot be exchanged: convert it to one of {', '.join(DTYPES)}")
        answer = Answer(self)
        answer._sent, answer._gathers = sent, gathers
        return self._call(function, *before, DTYPES[sent.dtype.name], sent.ctypes.data, sent.size, answer=answer)

    def all_gather(self, numbers: Any) -> Answer:
        """An array of each rank: `data` of the answer is [ranks, …]. All ranks make the call, with the same shape."""
        return self._exchange(lib.pl_loop_all_gather, numbers, gathers=True)

    def all_reduce(self, numbers: Any, reduction: str = "sum") -> Answer:
        """The "sum", "mean", "max" or "min" over the ranks, element by element, as `data` of the answer."""
        if reduction not in _REDUCTIONS:
            raise ValueError(f"a reduction is one of {', '.join(_REDUCTIONS)}, not {reduction}")
        return self._exchange(lib.pl_loop_all_reduce, numbers, _REDUCTIONS.index(reduction))

    def broadcast(self, numbers: Any, root: int = 0) -> Answer:
        """The array of one rank as `data` of the answer; those of the others only say the shape and type."""
        return self._exchange(lib.pl_loop_broadcast, numbers, root)

    def barrier(self) -> Answer:
        """Its answer comes when all ranks have made the call."""
        return self._call(lib.pl_loop_barrier)

    def scale_lr(self, factor: float) -> None:
        """Sets a factor on the learning rate, for batches sent from now on."""
        with self._used():
            if self._loop is None:
                raise Error("PL_ESTATE", "scale_lr() follows the first batch, which opens the loop")
            call(lib.pl_loop_scale_lr, self._loop, factor)

    def close(self) -> Dict[str, np.ndarray]:
        """Ends the loop when all calls are done, and returns the weights by name.

        Raises the first error of a call whose answer was not waited for. A loop that is dropped before ends at once.
        """
        weights: Dict[str, np.ndarray] = {}
        try:
            if self._loop is not None:
                answer = Answer(self)
                with self._used():
                    self._pending[answer.number] = answer
                    lib.pl_loop_close(self._loop, self._function, answer.number)
                weights = answer.wait().outputs
        finally:
            self.engine.close()
        for failed in self.failed[:1]:
            failed.wait()
        return weights
