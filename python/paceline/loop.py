"""loop.py - manual loops: the program decides what happens next, and sends each batch itself"""
from __future__ import annotations

import ctypes
import json
import os
from ctypes import CFUNCTYPE, POINTER, addressof, byref, c_void_p
from pathlib import Path
from typing import Any, Dict, Generator, List, Optional, Union

import numpy as np

from . import _interface as interface
from .data import Data, Samples, fields_of
from .graph import DTYPES
from .library import Error, call, lib
from .run import Engine, Trainer, views_of

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
        self.loss = self.grad_norm = float("nan")
        self.metrics: Dict[str, Any] = {}
        self.outputs: Dict[str, np.ndarray] = {}
        self.global_step, self.skipped = 0, ""
        self.function = _on_loop_t(self._take)

    def _take(self, _loop: Any, result: Any, _user: Any) -> None:
        result = result.contents
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
        self._loop.pending.remove(self)
        if self._error:
            self._loop.failed.append(self)

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

    Options are those of Trainer; batch_size is the maximum of a batch. At most `depth` calls are under way: a further
    one waits for the oldest. checkpoints: the loop has a folder for them. resume: continues from a checkpoint.
    """

    def __init__(self, module: Any, *, depth: int = 8, checkpoints: bool = False,
                 resume: Union[str, Path, None] = None, **options: Any) -> None:
        self._trainer = Trainer(module, **options)
        self._spec = interface.pl_loop_spec_t(enable_checkpointing=checkpoints, depth=depth,
                                              resume=os.fsencode(resume) if resume else None)
        self._depth, self._loop, self._options = depth, None, None
        self.pending: List[Answer] = []
        self.failed: List[Answer] = []                      # whose errors the program has not taken
        self.engine = Engine()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if self.engine.pointer:
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
        run = self._trainer.run(samples, {})
        self._options = c_void_p(call(lib.pl_options_parse, json.dumps(run).encode(), b"run"))
        opened = self._answer()
        try:
            self._loop = c_void_p(call(lib.pl_loop_open, self.engine.pointer, self._options, byref(self._spec),
                                       opened.function, None))
        except Error:
            self.pending.remove(opened)
            lib.pl_options_free(self._options)
            self._options = None
            raise
        opened.wait()

    def _answer(self) -> Answer:
        while len(self.pending) >= self._depth:
            oldest = self.pending[0]
            self.engine.wait(lambda: oldest.is_done)
        answer = Answer(self)
        self.pending.append(answer)
        return answer

    def _send(self, function: Any, data: Data, *before: Any) -> Answer:
        if not self.engine.pointer:
            raise Error("PL_ESTATE", "the loop is closed")
        samples = Samples(fields_of(data))
        if self._loop is None:
            self._open(samples)
        return self._call(self._answer(), function, *before, byref(samples.arrays()))

    def _call(self, answer: Answer, function: Any, *arguments: Any) -> Answer:
        try:
            call(function, self._loop, *arguments, answer.function, None)
        except Error:
            self.pending.remove(answer)
            raise
        return answer

    def train(self, data: Data) -> Answer:
        """Trains on a batch; the samples are copied before the call returns."""
        return self._send(lib.pl_loop_train, data)

    def evaluate(self, data: Data) -> Answer:
        """Measures a batch with the current weights: metrics as of a validation."""
        return self._send(lib.pl_loop_evaluate, data)

    def predict(self, data: Data) -> Answer:
        """Computes the outputs of a batch with the current weights; targets may be missing."""
        self._is_open()
        return self._send(lib.pl_loop_predict, data)

    def backward(self, data: Data, objective: Optional[str] = None) -> Answer:
        """Computes gradients of an objective [the module's only one] and takes no step; those of several calls add up.

        `loss` of the answer is of all batches since the last step, on this rank.
        """
        return self._send(lib.pl_loop_backward, data, _encoded(objective))

    def step(self, objective: Optional[str] = None) -> Answer:
        """Takes the optimizer step of an objective with the gradients that backward() has computed, of all ranks."""
        self._is_open()
        return self._call(self._answer(), lib.pl_loop_step, _encoded(objective))

    def gradients(self, objective: Optional[str] = None) -> Answer:
        """The gradients by parameter, as `outputs` of the answer: of the mean over the samples of this rank."""
        self._is_open()
        return self._call(self._answer(), lib.pl_loop_gradients, _encoded(objective))

    def set_gradients(self, gradients: Dict[str, Any], objective: Optional[str] = None) -> Answer:
        """Replaces the gradients of the parameters that are named, before step()."""
        self._is_open()
        arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in gradients.items()}
        table = (interface.pl_result_tensor_t * max(len(arrays), 1))()
        for k, (name, array) in enumerate(arrays.items()):
            if array.ndim > len(interface.pl_shape_t().dim):
                raise ValueError(f"the gradient of {name} has {array.ndim} axes: no parameter has so many")
            shape = interface.pl_shape_t(array.ndim, array.shape)
            table[k] = interface.pl_result_tensor_t(name.encode(), shape, array.ctypes.data)
        return self._call(self._answer(), lib.pl_loop_set_gradients, _encoded(objective), addressof(table), len(arrays))

    def save(self, name: str) -> Answer:
        """Makes a checkpoint of the state after all calls so far; the loop has checkpoints=True."""
        return self._call(self._answer(), lib.pl_loop_save, name.encode())

    def _is_open(self) -> None:
        if self._loop is None:
            raise Error("PL_ESTATE", "the first call of a loop trains or evaluates, because its batch has all fields")

    def _exchange(self, function: Any, numbers: Any, *before: Any, gathers: bool = False) -> Answer:
        self._is_open()
        sent = np.ascontiguousarray(numbers)
        if sent.dtype.name not in DTYPES:
            raise TypeError(f"{sent.dtype} cannot be exchanged: convert it to one of {', '.join(DTYPES)}")
        answer = self._answer()
        answer._sent, answer._gathers = sent, gathers
        return self._call(answer, function, *before, DTYPES[sent.dtype.name], sent.ctypes.data, sent.size)

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
        self._is_open()
        return self._call(self._answer(), lib.pl_loop_barrier)

    def scale_lr(self, factor: float) -> None:
        """Sets a factor on the learning rate, for batches sent from now on."""
        call(lib.pl_loop_scale_lr, self._loop, factor)

    def close(self) -> Dict[str, np.ndarray]:
        """Ends the loop when all calls are done, and returns the weights by name.

        Raises the first error of a call whose answer was not waited for.
        """
        weights: Dict[str, np.ndarray] = {}
        try:
            if self._loop is not None:
                answer = Answer(self)
                self.pending.append(answer)
                lib.pl_loop_close(self._loop, answer.function, None)
                weights = answer.wait().outputs
        finally:
            lib.pl_options_free(self._options)
            self.engine.close()
        for failed in self.failed[:1]:
            failed.wait()
        return weights
