"""run.py - trainers and their results

A run is awaited in an event loop of asyncio, or waited for: both read the engine's descriptor. The engine's own threads
do the work.
"""
from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import weakref
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _interface as interface
from .data import Data, Samples, array_of, fields_of, warn
from .engine import Engine, weakly
from .graph import Module, metrics_of_python
from .interactive import ProgressLine, interrupts_stop, restarts_not
from .library import Error, call, lib, options_text, text_of
from .streams import Streamed, samples_of

_on_done_t = CFUNCTYPE(None, c_void_p, POINTER(interface.pl_result_t), c_void_p)
_on_progress_t = CFUNCTYPE(None, c_void_p, POINTER(interface.pl_progress_t), c_void_p)
_on_hook_t = CFUNCTYPE(c_int, c_void_p, c_int, POINTER(interface.pl_hook_event_t),
                       POINTER(interface.pl_callback_request_t), POINTER(interface.pl_error_t))
_every_t = CFUNCTYPE(c_int64, c_void_p)
_callback_names = (f"python-{k}" for k in itertools.count())
_tables: List[Any] = []             # the library borrows them forever: 4 KiB for each object, which serves all its runs
DATA_OPTIONS = ("batch_size", "val_split", "folds", "fold", "stratify", "sampler", "shuffle", "drop_last", "prefetch",
                "buckets", "workers", "shuffle_window")


class Component(dict):
    """A component of a run by name, with its options: adamw(lr=1e-3)."""


def component(name: str, **options: Any) -> Component:
    """A component by name: component("cosine", warmup_steps=100). `paceline list` shows them all with their options."""
    return Component(name=name, **options)


def views_of(tensors: Any, count: int, lease: Any) -> Dict[str, np.ndarray]:
    """Tensors as read-only arrays on the library's memory, which `lease` frees with the last of them."""
    views = {}
    for tensor in tensors[:count]:
        shape = tuple(tensor.shape.dim[:tensor.shape.rank])
        memory = (ctypes.c_float * int(np.prod(shape))).from_address(tensor.data)
        memory.lease = lease
        view = views[tensor.name.decode()] = np.frombuffer(memory, np.float32).reshape(shape)
        view.flags.writeable = False
    return views


class Lease:
    """Memory of the library, which is given back with the last view of it."""

    def __init__(self, give_back: Callable[[Any], Any], address: Any) -> None:
        weakref.finalize(self, give_back, address)


class Lent:
    """A struct of the library as long as a hook runs; behind it each use is an error."""

    def __init__(self, struct: Any, **more: Any) -> None:
        vars(self).update(more, _struct=struct)

    def _lent(self) -> Any:
        try:
            return vars(self)["_struct"]
        except KeyError:
            raise Error("PL_ESTATE", "the event and the request of a hook are used after the hook has returned: copy "
                                     "what is needed of them in the hook") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        struct = self._lent()
        known = [field[0] for field in struct._fields_]
        if name not in known:                               # ctypes would keep it, and the library never see it
            raise AttributeError(f"there is no {name} to set: there are {', '.join(known)}")
        setattr(struct, name, value.encode() if isinstance(value, str) else value)


class Callback:
    """A callback: methods named as the hooks of paceline.h, such as on_train_epoch_end(event, request).

    event: a pl_hook_event_t, with event.values, the newest metrics as a dict. request: a pl_callback_request_t: set
    request.stop, or call request.log(name, value). To use them after the method has returned is an error. Methods run on the
    thread of rank 0, where the run waits for them. requests and every_n_steps are as in pl_callback_ops_t. An
    exception in a method ends the run, and is raised by fit().
    """
    requests, every_n_steps = 0, 1
    raised: Optional[BaseException] = None
    name: Optional[str] = None
    _hook_thread: Optional[int] = None                      # which runs a method of it

    def register(self) -> str:
        self.raised = None
        if self.name:
            return self.name
        unknown = [name for name in dir(self) if name.startswith("on_") and name not in interface.HOOKS]
        if unknown:
            raise Error("PL_EINVAL", f"there is no hook {unknown[0]}: there are {', '.join(interface.HOOKS)}")
        name = next(_callback_names)
        table = interface.pl_callback_ops_t(
            name=name.encode(), help=b"of Python", size=1, requests=self.requests,
            points=sum(1 << k for k, hook in enumerate(interface.HOOKS) if hasattr(self, hook)))
        functions = _on_hook_t(weakly(self._on)), _every_t(weakly(self._every))
        table.on = ctypes.cast(functions[0], c_void_p)
        table.every_n_steps = ctypes.cast(functions[1], c_void_p)
        _tables.append((table, functions))
        rows = (interface.pl_registration_t * 2)((b"callback", ctypes.addressof(table)), (None, None))
        call(lib.pl_register, rows)
        self.name = name
        return name

    def _every(self, _self: Any) -> int:
        return self.every_n_steps

    def _on(self, _self: Any, point: int, event: Any, request: Any, err: Any) -> int:
        try:
            event, request = event.contents, request.contents
            event.values = json.loads(event.metrics or b"{}")
            lent = Lent(event), Lent(request, log=lambda name, value: call(lib.pl_callback_log, byref(request),
                                                                           name.encode(), value))
            self._hook_thread = threading.get_ident()
            try:
                getattr(self, interface.HOOKS[point])(*lent)
            finally:
                self._hook_thread = None
                for each in lent:
                    vars(each).clear()
            return 0
        except BaseException as raised:                     # it cannot pass through C
            self.raised = raised
            text = f"{type(raised).__name__}: {raised}".encode()[:500]
            err.contents.code, err.contents.text = interface.PL_EUSER, text
            return interface.PL_EUSER


class _Ending(Callback):
    """Ends an epoch where its source has ended, which is known when the last batch is trained on."""

    def __init__(self, samples: Streamed) -> None:
        self._samples = samples

    def on_train_batch_end(self, event: Any, request: Any) -> None:
        request.skip = event.batch >= self._samples.last.get(event.epoch, event.batch + 1)


class Result:
    """How a run ended.

    status: "ok" or "stopped"; reason: why it was stopped. metrics: {"val_acc": 0.97, …}; history: the metrics at the
    end of each epoch, a list of dicts with "epoch" and "step". weights: {"fc1.weight": array [128, 784], …}, float32,
    and outputs of a prediction, [samples, …]: read-only views, without a copy. run_dir: the folder of the run; text:
    what was generated; class_names: the names of classes that were texts.
    """

    def __init__(self, result: Any, history: List[Dict[str, Any]], class_names: Optional[List[str]],
                 trainer: "Trainer") -> None:
        for name in ("status", "reason", "run_dir", "text", "best_checkpoint"):
            setattr(self, name, getattr(result, name).decode())
        self.global_step, self.epoch, self.seconds = result.global_step, result.epoch, result.seconds
        self.metrics: Dict[str, Any] = json.loads(result.metrics)
        self.history, self._trainer = history, trainer
        self.class_names = class_names or self._data_info().get("class_names")
        lease = Lease(lib.pl_result_drop, call(lib.pl_result_keep, byref(result)))
        self.weights = views_of(result.weight, result.weight_count, lease)
        self.outputs = views_of(result.output, result.output_count, lease)
        self._model: Optional["Model"] = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items()
                          if isinstance(value, (int, float)))
        outputs = ", ".join(f"{name} {list(view.shape)}" for name, view in self.outputs.items())
        return f"<Result {self.status}, outputs {outputs}>" if outputs else \
            f"<Result {self.status}, {self.epoch} epochs, {self.global_step} steps: {shown}>"

    def _data_info(self) -> Dict[str, Any]:
        """What the library's data set wrote of itself beside the weights; nothing without a folder."""
        try:
            with open(f"{self.run_dir}/model.safetensors", "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except FileNotFoundError:
            return {}
        return json.loads(header.get("__metadata__", {}).get("data_info", "{}"))

    @property
    def model(self) -> "Model":
        """The trained model: of the best checkpoint, or else the last weights."""
        if self._model is None:
            if not self.run_dir:
                raise Error("PL_ESTATE", "the run has no folder with weights: train with enable_checkpointing=True, "
                                         "or save result.weights with pl.save_weights()")
            self._model = Model(self.best_checkpoint or self.run_dir)
        return self._model

    def predict(self, data: Data) -> Any:
        """The output for each sample, [samples, …]; a dict of them if the module has several.

        data: x [samples, …], or {"x": …} with the inputs by name, or a data set of the library.
        """
        if isinstance(data, Component):
            outputs = self._trainer.predict(data, self.best_checkpoint or self.run_dir).wait().outputs
        else:
            outputs = self.model(data)
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


class Model:
    """A trained module for inference without an engine: Model("runs/0001")({"x": x}) is {"logits": [samples, …]}."""

    def __init__(self, checkpoint: Union[str, Path], threads: int = 1) -> None:
        """checkpoint: a .safetensors file, a checkpoint or the folder of a run; threads: that compute."""
        self._loaded, self._lock = [c_void_p(call(lib.pl_model_load, os.fsencode(checkpoint), threads))], threading.Lock()
        self._path = os.fsdecode(checkpoint)
        weakref.finalize(self, self._unload, self._loaded, self._lock)

    def __repr__(self) -> str:
        return f"<Model of {self._path}>"

    @staticmethod
    def _unload(loaded: List[Any], lock: Any) -> None:
        with lock:                                          # at exit a thread may compute with it
            lib.pl_model_unload(loaded.pop())

    def __call__(self, data: Data) -> Dict[str, np.ndarray]:
        answers, arrays = interface.pl_answers_t(), Samples(
            fields_of(data), None, lambda: frame_columns_of(self._path)).arrays()
        with self._lock:                                    # C takes one thread at a time
            if not self._loaded:
                raise Error("PL_ESTATE", "the program ends, and has unloaded the model")
            call(lib.pl_model_run, self._loaded[0], byref(arrays), byref(answers))
            # The next call overwrites the outputs, so they are copied: a plan's buffers are small.
            return {name: view.copy() for name, view in views_of(answers.output, answers.count, self).items()}


class Run:
    """A run under way: wait() for it, or await it, on any thread; stop() ends it at its next step.

    A run whose object is dropped ends, as a run under way does at the end of the program: nothing could have its result.
    """

    def __init__(self, trainer: "Trainer", function: Any, arguments: Sequence[Any], options: Dict[str, Any],
                 samples: Sequence[Any] = (), folder: Optional[str] = None, endings: Sequence[_Ending] = ()) -> None:
        self._result: Optional[Result] = None
        self._error: Optional[BaseException] = None
        self._is_done, self._trainer = False, trainer
        self._progress = ProgressLine() if trainer.progress is ProgressLine else trainer.progress
        self._samples, self._endings = list(samples), endings
        self.history: List[Dict[str, Any]] = []
        on_done, on_progress = _on_done_t(weakly(self._on_done)), _on_progress_t(weakly(self._on_progress))
        self._engine = Engine(trainer.callbacks)
        for each in self._samples:
            self._engine.keep(give_back=each.release)
        if folder:
            self._engine.keep(give_back=lambda: shutil.rmtree(folder, ignore_errors=True))
        try:
            given = c_void_p(call(lib.pl_options_parse, options_text(options), b"run"))
            self._engine.keep(on_done, on_progress, give_back=lambda: lib.pl_options_free(given))
            with self._engine.used() as engine:
                self._run = c_void_p(call(lib.pl_trainer_new, engine, given))
                lib.pl_trainer_on_progress(self._run, on_progress, None)
                call(function, self._run, *arguments, on_done, None)
        except BaseException:
            self._engine.close()
            raise

    def _on_progress(self, _trainer: Any, progress: Any, _user: Any) -> None:
        progress = progress.contents
        report = {"event": progress.event.decode(), "step": progress.global_step, "steps": progress.total_steps,
                  "epoch": progress.epoch, "batch": progress.batch, "batches": progress.batches}
        if not all(each.has_end for each in self._samples):
            report["steps"] = report["batches"] = 0         # unknown
        metrics = json.loads(progress.metrics or b"{}")
        report.update(metrics if isinstance(metrics, dict) else {"text": metrics})
        if report["event"] in ("epoch", "validated"):
            row = {"epoch": report["epoch"], "step": report["step"],
                   **(metrics if isinstance(metrics, dict) else {})}
            if self.history and self.history[-1]["step"] == row["step"]:
                self.history[-1].update(row)
            else:
                self.history.append(row)
        try:
            if self._progress:
                self._progress(report)
        except BaseException as raised:
            self._error = self._error or raised
            self.stop("the progress function failed")

    def _on_done(self, _trainer: Any, result: Any, _user: Any) -> None:
        try:
            result = result.contents
            if result.status == b"failed":
                of_data = next((each.raised for each in self._samples if each.raised), None)
                raised = of_data or next((each.raised for each in self._trainer.callbacks if each.raised), None)
                if raised:                                  # the program's own, sys.exit() or Ctrl-C
                    raise raised from (None if of_data else Error.of(result.error))
                raise Error.of(result.error)
            names = next((each.class_names for each in self._samples if each.class_names), None)
            self._result = Result(result, self.history, names, self._trainer)
        except BaseException as raised:
            self._error = self._error or raised
        self._is_done = True

    def __repr__(self) -> str:
        return repr(self._result) if self._result else "<Run, failed>" if self._error else \
            "<Run under way: wait() for its Result, or await it>"

    def stop(self, reason: str = "stop() was called") -> None:
        """Ends the run at its next step; its result has the reason."""
        with self._engine.used() as engine:
            if engine and not self._is_done:
                lib.pl_trainer_stop(self._run, reason.encode(), None)

    def _finish(self) -> Result:
        if self._engine.is_open:
            if isinstance(self._progress, ProgressLine):
                self._progress.end()
            self._engine.close()
        if self._error:
            raise self._error
        for left_out in (each.left_out for each in self._samples if each.left_out):
            warn(f"the last {left_out} samples of the iterator, fewer than a step has, were left out: choose batch_size "
                 "so that it divides them, or pass pl.stream(iterator, samples=…)")
            self._samples = []                              # it is said once
        if not self._result:
            raise Error("PL_ESTATE", "the run has no result: an exception ended it while the program waited for it")
        return self._result

    def wait(self) -> Result:
        """The result. Ctrl-C stops the run at its next step, and its result is "stopped"; a second Ctrl-C is raised."""
        if self._engine.is_open:
            try:
                self._engine.wait(lambda: self._is_done, lambda: self.stop("Ctrl-C"))
            except Error:
                raise
            except BaseException:
                self._engine.close()                        # ends the run
                raise
        return self._finish()

    def __await__(self) -> Generator[Any, None, Result]:
        if self._engine.is_open:
            try:
                with interrupts_stop(self.stop, lambda: self._is_done):
                    yield from self._engine.arrives(lambda: self._is_done).__await__()
            except (Error, asyncio.CancelledError):         # of the wait: the run continues, and can be awaited again
                raise
            except BaseException:
                self._engine.close()
                raise
        return self._finish()


class Trainer:
    """Trains a module. Options are those of a run file: max_epochs=5, batch_size=64, accelerator="cuda", precision=…

    module: of @module, or a component such as component("mlp", hidden=[128]). optimizer, scheduler, averaging,
    momentum_scheduler, weight_decay_scheduler: components, adamw(lr=1e-3). callbacks: objects of Callback, and
    components. loggers: components. progress: a function that gets dicts; True: a line on the terminal or in the
    notebook; False: nothing [True if someone sees it]. weights: first weights, {"fc1.weight": array}, or a checkpoint.
    doc/options.md has all options.
    """

    def __init__(self, module: Union[Module, Mapping[str, Any], str], *, optimizer: Any = "adamw",
                 scheduler: Any = None, momentum_scheduler: Any = None, weight_decay_scheduler: Any = None,
                 averaging: Any = None, callbacks: Sequence[Any] = (),
                 loggers: Optional[Sequence[Any]] = None, progress: Any = None, weights: Any = None,
                 **options: Any) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise TypeError(f"progress is {progress!r}: it is True, False, or a function that takes a dict")
        if callable(module) and not isinstance(module, Module):
            raise TypeError(f"{getattr(module, '__name__', module)} is no module: write @pl.module above the function "
                            "that describes the graph")
        if isinstance(callbacks, (Callback, Mapping)):
            raise TypeError("callbacks is a list: callbacks=[…], also of one")
        for each in callbacks:
            if isinstance(each, type):
                raise TypeError(f"{each.__name__} is a class: pass an object of it, callbacks=[{each.__name__}()]")
        self.module, self.weights = module, weights
        self.callbacks = [each for each in callbacks if isinstance(each, Callback)]
        self.progress = ProgressLine.if_seen() if progress is None else ProgressLine if progress is True else progress
        self._data = {name: options.pop(name) for name in DATA_OPTIONS if name in options}
        self._sections = {"optimizer": optimizer, "scheduler": scheduler, "momentum_scheduler": momentum_scheduler,
                          "weight_decay_scheduler": weight_decay_scheduler, "averaging": averaging, "loggers": loggers,
                          "callbacks": [each for each in callbacks if not isinstance(each, Callback)]}
        self._options = {key: value for key, value in options.items() if value is not None}
        self._options.setdefault("enable_progress_bar", False)

    def _is_apart(self) -> bool:
        """Whether ranks are processes that do not run the program, so that they have no arrays of it."""
        launcher = self._options.get("launcher", "auto")
        launcher = launcher["name"] if isinstance(launcher, Mapping) else launcher
        if launcher in ("spawn", "script"):
            restarts_not(launcher)
        return launcher == "spawn"

    def run_file(self, data: Data = None, val: Data = None, *, as_text: bool = True) -> Any:
        """The run as text of a run file, for `paceline fit` and C programs; data are those of the file's reader."""
        samples = samples_of(data) if data is not None else None
        run = self.run(samples, {})
        run.pop("data", None)
        return options_text(run, indent=1).decode() if as_text else run

    def run(self, samples: Any, data: Dict[str, Any], folder: Optional[str] = None,
            trained: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        """The contents of the run file; folder: for first weights; trained: the module of a checkpoint."""
        if trained:
            module = trained
        elif isinstance(self.module, Module):
            if samples is None:
                raise TypeError("a module of Python is described for arrays: pass data=(x, y), or for a data set of the "
                                "library a module by name, pl.component(\"layers\", layers=[…])")
            module = self.module.record(samples.description, samples.data_info)
        else:
            module = dict(self.module) if isinstance(self.module, Mapping) else {"name": self.module}
        if isinstance(self.weights, Mapping):
            if not folder:
                raise TypeError("weights are arrays, and a run file has the path of a file: write one with "
                                "pl.save_weights(path, arrays), and pass weights=path")
            save_weights(f"{folder}/first.safetensors", self.weights)
            module["init_from"] = f"{folder}/first.safetensors"
        elif self.weights is not None:
            module["init_from"] = os.fspath(self.weights)
        run: Dict[str, Any] = {"module": module, "trainer": dict(self._options)}
        run.update({name: value for name, value in self._sections.items() if value})
        names = [each.register() for each in self.callbacks]
        if names:
            run["callbacks"] = [*run.get("callbacks", []), *names]
        run["data"] = {**data, **self._data}
        return run

    def _plan(self, samples: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any], List[_Ending]]:
        """What sources that are read during the run need: options of trainer and data, and callbacks."""
        trainer, data, endings = {}, {}, []
        wants_classes = not isinstance(self.module, Module) or self.module.wants("classes")
        schedules = any(self._sections[f"{name}scheduler"] for name in ("", "momentum_", "weight_decay_"))
        for part, each in samples.items():
            if isinstance(each, Streamed):
                of_trainer, of_data = each.plan(part, self._options, self._data, schedules, wants_classes)
                trainer.update(of_trainer)
                data.update(of_data)
                endings += [] if each.has_end else [_Ending(each)]
        return trainer, data, endings

    def _start(self, function: Any, arguments: Sequence[Any], parts: Dict[str, Any],
               trained: Optional[Dict[str, Any]] = None, checkpoint: Union[str, Path, None] = None) -> Run:
        if self._is_apart() and self.callbacks:
            raise Error("PL_EUNSUPPORTED", "callbacks of Python need ranks in this process: launcher=\"inline\"")
        samples: Dict[str, Any] = {}
        read = next((data for data in parts.values() if isinstance(data, Component)), None)
        if read is not None and any(data is not None and data is not read for data in parts.values()):
            raise TypeError(f"{read['name']} reads validation data itself: pass val_split=0.1, or its own options")
        for name, data in parts.items():
            if data is not None and data is not read:
                samples[name] = samples_of(data, samples.get("train"),
                                           (lambda: frame_columns_of(checkpoint)) if checkpoint else None)
        trainer, of_data, endings = self._plan(samples)
        folder = tempfile.mkdtemp(prefix="paceline-") if self._is_apart() or isinstance(self.weights, Mapping) \
            else None
        try:
            first = next(iter(samples.values()), None)
            if self._is_apart():
                sources = {name: each.write(folder or "", name) for name, each in samples.items()}
            else:
                sources = {name: each.register() for name, each in samples.items()}
            data = dict(read or (sources if len(sources) > 1 or "train" not in sources else sources["train"]))
            run = self.run(first, data, folder, trained)
            own = metrics_of_python(run["module"]) if self._is_apart() else []
            if own:
                raise Error("PL_EUNSUPPORTED", f"the metric {own[0]} is a function of this program, and ranks of "
                                               "launcher=\"spawn\" have none of it: launcher=\"inline\" or "
                                               "launcher=\"script\"")
            run["trainer"].update(trainer)
            run["data"] = {**of_data, **run["data"]}
            if endings:
                run["callbacks"] = [*run.get("callbacks", []), *(each.register() for each in endings)]
            if not parts:                                   # a prompt needs no data
                del run["data"]
            return Run(self, function, arguments, run, list(samples.values()), folder, endings)
        except BaseException:
            for each in samples.values():
                each.release()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def fit(self, data: Data, val: Data = None, *, resume: Union[str, Path, None] = None) -> Run:
        """Starts training on data, with validation on val [val_split=0.1 holds out a share of data].

        resume: the folder of a run, or a checkpoint, to continue from. `await trainer.fit(…)`, or
        `trainer.fit(…).wait()`, is the Result.
        """
        parts = {"train": data, "val": val}
        if resume is not None:
            return self._start(lib.pl_trainer_resume, [os.fsencode(resume)], parts)
        return self._start(lib.pl_trainer_fit, [], parts)

    def validate(self, data: Data, checkpoint: Union[str, Path]) -> Run:
        """Starts an evaluation with the weights of a checkpoint; the Result has "val_loss" and so on."""
        return self._start(lib.pl_trainer_validate, [os.fsencode(checkpoint)], {"train": data, "val": data},
                           checkpoint=checkpoint)

    def test(self, data: Data, checkpoint: Union[str, Path]) -> Run:
        """Starts a test with the weights of a checkpoint; the Result has "test_loss" and so on."""
        return self._start(lib.pl_trainer_test, [os.fsencode(checkpoint)], {"test": data}, checkpoint=checkpoint)

    def predict(self, data: Data, checkpoint: Union[str, Path]) -> Run:
        """Starts a prediction with the engine; outputs of the Result are [samples, …] each.

        data: the inputs, x or {"x": …}; a "y" is not needed. A module of Python is the one that the checkpoint has.
        """
        what = interface.pl_prediction_t(checkpoint=os.fsencode(checkpoint))
        trained = trained_module(checkpoint) if isinstance(self.module, Module) else None
        return self._start(lib.pl_trainer_predict, [byref(what)], {"predict": data}, trained, checkpoint)

    def write(self, prompt: str, checkpoint: Union[str, Path], *, tokens: int = 500, temperature: float = 0.8,
              top_k: int = 0, cache: bool = True) -> Run:
        """Starts to continue a text with weights that were trained on text; the Result's text is what follows.

        temperature: 0 takes the likeliest token always. top_k: chooses among so many [all]. cache: keeps keys and
        values of earlier tokens.
        """
        what = interface.pl_prediction_t(checkpoint=os.fsencode(checkpoint), prompt=prompt.encode(), tokens=tokens,
                                         temperature=temperature, top_k=top_k, no_cache=not cache)
        return self._start(lib.pl_trainer_predict, [byref(what)], {})


def fit(module: Union[Module, Mapping[str, Any], str], data: Data, val: Data = None, *, optimizer: Any = "adamw",
        resume: Union[str, Path, None] = None, **options: Any) -> Result:
    """Trains a module and returns its Result.

    data: (x, y) with x [samples, …] and y [samples], {"x": …, "y": …}, a frame of pandas, a data set of PyTorch or an
    iterator, which are read during the run, or a data set of the library, csv(path="points.csv"). val: the same, for
    validation. optimizer and other options: as of Trainer.
    """
    return Trainer(module, optimizer=optimizer, **options).fit(data, val, resume=resume).wait()


def metadata_of(checkpoint: Union[str, Path]) -> Dict[str, str]:
    """What is written beside the weights of a checkpoint or run folder."""
    path = os.fsdecode(text_of(lib.pl_run_path(os.fsencode(checkpoint))))
    if os.path.isdir(path) and not os.path.exists(f"{path}/manifest.json"):
        path = json.loads(text_of(call(lib.pl_run_describe, os.fsencode(path))))["path"]
    path = f"{path}/model.safetensors" if os.path.isdir(path) else path
    return json.loads(text_of(call(lib.pl_weights_describe, os.fsencode(path)))).get("metadata", {})


def trained_module(checkpoint: Union[str, Path]) -> Optional[Dict[str, Any]]:
    """The module that a checkpoint or run folder was trained with; None: it does not say."""
    module = json.loads(metadata_of(checkpoint).get("module") or "{}")
    return module if module.get("name") == "graph" else None


def frame_columns_of(checkpoint: Union[str, Path]) -> Dict[str, List[str]]:
    """The columns of frames of pandas that the weights were trained with, by field."""
    return json.loads(metadata_of(checkpoint).get("data_info") or "{}").get("frame_columns", {})


def save_weights(path: Union[str, Path], weights: Mapping[str, Any]) -> None:
    """Writes tensors by name as a .safetensors file, float32."""
    arrays = {name: np.ascontiguousarray(array_of(name, array) if np.ndim(array) else array, np.float32)
              for name, array in weights.items()}
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(np.shape(array)), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(memoryview(array).cast("B") if array.ndim else array.tobytes())
