"""paceline.py - Paceline for Python, over ctypes: fit, validate, test, predict, callbacks, inference

NumPy arrays are not copied: training reads them in place, and tensors of a result are views of the engine's memory.
The engine, with two threads and eight descriptors, stays until the last view is gone or detach() has made copies.
Each run has its own thread, which hosts an engine and calls progress functions; the rank's thread calls methods of
callbacks.  So ranks are threads of this process: the launcher is always "inline".  A process that is forked from one
with an engine cannot create one (multiprocessing: use "spawn").
To resume a run later, name its "data": {"source": …}.

    result = paceline.fit({"module": "mlp", "optimizer": "adamw"}, {"x": x, "y": y}, data_info={"classes": 10})
    result.metrics["train_loss"], result.weights["fc1.weight"]
    paceline.predict(run, {"x": x}, checkpoint=result.run_dir).outputs["logits"]
"""
import atexit, contextlib, ctypes, itertools, json, os, re, select, socket, threading, weakref
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_void_p
import numpy as np

EINVAL, ESTATE, EUNSUPPORTED, EUSER, FIELDS, DIMS, NAME = -1, -7, -16, -17, 8, 6, 32
DTYPES = {"float32": 0, "float64": 1, "int32": 2, "int64": 3, "uint8": 4}
HOOKS = """on_fit_start on_train_epoch_start on_train_batch_end on_validation_start on_validation_end
    on_train_cut on_train_epoch_end on_fit_end on_test_start on_test_end on_predict_start on_predict_batch_end
    on_predict_end on_exception""".split()

# Structs of paceline.h, by its names.
_TYPES = {"text": c_char_p, "int": c_int, "unsigned": ctypes.c_uint, "i64": c_int64, "u32": ctypes.c_uint32,
          "u64": ctypes.c_uint64, "size": ctypes.c_size_t, "real": c_double, "bool": ctypes.c_bool,
          "char": ctypes.c_char, "at": c_void_p}

def _struct(name, fields):
    """fields: "int code, char*96 where": a type, or one times a count, and a name."""
    made = []
    for word, field in (field.split() for field in fields.split(",")):
        base, _, count = word.partition("*")
        made.append((field, _TYPES[base] * int(count) if count else _TYPES[base]))
    _TYPES[name] = type(name, (ctypes.Structure,), {"_fields_": made})
    return _TYPES[name]

pl_error = _struct("pl_error", "int code, char*96 where, char*512 text")
pl_shape = _struct("pl_shape", f"int rank, i64*{DIMS} dim")
pl_field = _struct("pl_field", f"char*{NAME} name, int dtype, pl_shape shape")
pl_arrays = _struct("pl_arrays", f"i64 samples, int field_count, pl_field*{FIELDS} field, at*{FIELDS} data, "
                    f"text data_info, at offset, real*{FIELDS} padding")
pl_result_tensor = _struct("pl_result_tensor", "text name, pl_shape shape, at data")
_TYPES["tensors"] = POINTER(pl_result_tensor)
pl_result = _struct("pl_result", "text status, text reason, pl_error error, u64 global_step, u32 epoch, real seconds, "
                    "text metrics, text run_dir, text text, int weight_count, tensors weight, int output_count, "
                    "tensors output, text best_checkpoint, text callbacks, bool begun")
pl_progress = _struct("pl_progress", "text event, u64 global_step, u64 total_steps, u32 epoch, u32 batch, "
                      "u32 batches, text metrics")
pl_prediction = _struct("pl_prediction", "text checkpoint, text prompt, i64 tokens, real temperature, i64 top_k")
pl_answers = _struct("pl_answers", "int count, tensors output")
pl_hook_event = _struct("pl_hook_event", "int rank, u32 epoch, u64 global_step, u64 total_steps, u32 batch, "
                        "u32 batches, u64 samples, bool extra, text model, real device_flops, bool validates, "
                        "text metrics, text error, int output_count, tensors output, at device")
pl_callback_request = _struct("pl_callback_request", "bool stop, bool skip, real lr_factor, i64 accumulate, "
                              "char*256 freeze, char*256 unfreeze, char*160 reason, char*256 save, char*512 drop, at metrics")
_ERR = POINTER(pl_error)
_ON = _TYPES["on"] = CFUNCTYPE(c_int, c_void_p, c_int, POINTER(pl_hook_event), POINTER(pl_callback_request), _ERR)
_EVERY = _TYPES["every"] = CFUNCTYPE(c_int64, c_void_p)
pl_callback_ops = _struct("pl_callback_ops", "text name, text help, size size, at options, at check, unsigned points, "
                          "unsigned requests, every every_n_steps, at start, on on, at stop, at state, at restore")
pl_registration = _struct("pl_registration", "text role, at table")
_ON_DONE, _ON_PROGRESS = (CFUNCTYPE(None, c_void_p, POINTER(report), c_void_p) for report in (pl_result, pl_progress))

_lib = ctypes.CDLL(os.environ.get("PACELINE_LIBRARY", "libpaceline.so.0"), mode=ctypes.RTLD_GLOBAL)   # for plug-ins
def _declare(text):
    """As in paceline.h: "int pl_trainer_stop(at text err)"."""
    for result, name, arguments in re.findall(r"(\w+) (\w+)\(([^)]*)\)", text):
        getattr(_lib, name).restype = None if result == "void" else _TYPES[result]
        getattr(_lib, name).argtypes = [_TYPES[word] for word in arguments.split()]

_TYPES.update(err=_ERR, done=_ON_DONE, progress=_ON_PROGRESS, argc=POINTER(c_int), arrays=POINTER(pl_arrays),
              argv=POINTER(POINTER(c_char_p)), components=POINTER(pl_registration), what=POINTER(pl_prediction),
              answers=POINTER(pl_answers), request=POINTER(pl_callback_request))
_declare("""
    int pl_init(argc argv at err)        text pl_code_name(int)               int pl_register(components err)
    int pl_fail(err int text)            int pl_memory_arrays(text arrays err)  int pl_memory_data(text at err)
    at pl_engine_new(at err)             int pl_engine_fd(at)                 void pl_engine_dispatch(at)
    void pl_engine_free(at)              at pl_options_parse(text text err)   void pl_options_free(at)
    at pl_trainer_new(at at err)         void pl_trainer_on_progress(at progress at)  int pl_trainer_stop(at text err)
    int pl_trainer_fit(at done at err)   int pl_trainer_resume(at text done at err)
    int pl_trainer_validate(at text done at err)              int pl_trainer_test(at text done at err)
    int pl_trainer_predict(at what done at err)               int pl_callback_log(request text real err)
    at pl_model_load(text int err)       int pl_model_run(at arrays answers err)  void pl_model_unload(at)
""")

class Error(Exception):
    """An error of Paceline: its text; code is PL_E…, where is the actor that failed."""
    def __init__(self, err):
        self.code, self.where = _lib.pl_code_name(err.code).decode(), err.where.decode()
        hint = ": convert it with array.astype(np.float32)" if b"float32, got float64" in err.text else ""
        super().__init__(f"{self.where + ': ' if self.where else ''}{err.text.decode()}{hint}")

def _call(function, *arguments):
    """Calls a function whose last parameter is a pl_error_t; raises its error."""
    err = pl_error()
    result = function(*arguments, byref(err))
    if err.code:
        raise Error(err)
    return result
_call(_lib.pl_init, byref(c_int(1)), byref(ctypes.cast((c_char_p * 2)(b"python"), POINTER(c_char_p))), None)

def _fields(struct, names):
    """Fields of a struct as Python values: texts, and metrics as a dict."""
    fields = {name: text.decode() if isinstance(text := getattr(struct, name), bytes) else text for name in names.split()}
    return {**fields, "metrics": json.loads(fields["metrics"] or "{}")}

_Lease = type("_Lease", (), {})     # memory of the engine with views; freed with the last view

def _views(tensors, count, lease):
    views = {}
    for tensor in tensors[:count]:
        shape = tuple(tensor.shape.dim[:tensor.shape.rank])
        memory = (c_float * int(np.prod(shape))).from_address(tensor.data)
        memory.lease = lease
        views[tensor.name.decode()] = view = np.frombuffer(memory, np.float32).reshape(shape)
        view.flags.writeable = False
    return views

def _held(name, array):
    if not isinstance(array, np.ndarray) or not array.ndim:
        kind = "number" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} is a {kind}: pass a NumPy array whose first axis is samples")
    if array.ndim > DIMS + 1 or len(name.encode()) >= NAME:
        raise ValueError(f"{name} has {array.ndim} axes, {len(name.encode())} bytes: {DIMS + 1}, {NAME - 1} at most")
    if array.dtype.name not in DTYPES:
        raise TypeError(f"{name} is {array.dtype}: use {name}.astype(…) for one of {', '.join(DTYPES)}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))

def _arrays(fields, data_info=None):
    """A pl_arrays_t on the memory of {"x": array, …}, which it keeps; copies only arrays with gaps."""
    if not isinstance(fields, dict) or not 1 <= len(fields) <= FIELDS:
        raise TypeError(f'pass {{"x": array, …}}: 1 to {FIELDS} arrays by name')
    held = {name: _held(name, array) for name, array in fields.items()}
    samples = {len(array) for array in held.values()}
    if len(samples) != 1:
        raise ValueError("numbers of samples differ: " + ", ".join(f"{len(a)} of {name}" for name, a in held.items()))
    arrays = pl_arrays(samples=samples.pop(), field_count=len(held), data_info=data_info and json.dumps(data_info).encode())
    for k, (name, array) in enumerate(held.items()):
        shape = pl_shape(array.ndim - 1, (c_int64 * DIMS)(*array.shape[1:]))
        arrays.field[k] = pl_field(name.encode(), DTYPES[array.dtype.name], shape)
        arrays.data[k], arrays.held = array.ctypes.data, held
    return arrays

_names, _tables, _sources = (f"python-{k}" for k in itertools.count()), [], {}     # the library borrows from tables

class Callback:
    """Methods named as in HOOKS get (event, request): pl_hook_event_t and pl_callback_request_t, invalid after they
    return; event.callback_metrics is a dict, request.log(name, value) logs.  fit() raises their exceptions."""
    requests, every_n_steps = 0, 1                          # as in pl_callback_ops_t
    def _register(self):
        self.raised = None
        if hasattr(self, "name"):
            return self.name
        if unknown := [name for name in dir(self) if name.startswith("on_") and name not in HOOKS]:
            raise Error(pl_error(EINVAL, b"", f"there is no hook {unknown[0]}: there are {', '.join(HOOKS)}".encode()))
        self.name = next(_names)
        _tables.append(table := pl_callback_ops(
            name=self.name.encode(), help=b"of Python", size=1, requests=self.requests, on=_ON(self._on),
            points=sum(1 << k for k, hook in enumerate(HOOKS) if hasattr(self, hook)),
            every_n_steps=_EVERY(lambda _: self.every_n_steps)))
        _call(_lib.pl_register, (pl_registration * 2)((b"callback", ctypes.cast(byref(table), c_void_p)), (None, None)))
        return self.name
    def _on(self, _self, point, event, request, err):
        try:
            event, request = event.contents, request.contents
            event.callback_metrics = json.loads(event.metrics or b"{}")
            request.log = lambda name, value: _call(_lib.pl_callback_log, byref(request), name.encode(), value)
            getattr(self, HOOKS[point])(event, request)
            return 0
        except BaseException as raised:                     # it cannot pass through C
            self.raised = raised
            return _lib.pl_fail(err, EUSER, b"%s", f"{type(raised).__name__}: {raised}".encode())

_runs = weakref.WeakSet()
@atexit.register
def _end():
    for run in [run for run in _runs if run._done.is_set()]:         # results that are still in use
        run._released.set(), run._thread.join()

class Result:
    """status, reason, metrics, run_dir, best_checkpoint, text, …; weights and outputs: {name: view}."""
    def __init__(self, result, gone):
        weakref.finalize(lease := _Lease(), gone)
        vars(self).update(_fields(result, "status reason metrics run_dir best_checkpoint text global_step epoch seconds"))
        self.weights = _views(result.weight, result.weight_count, lease)
        self.outputs = _views(result.output, result.output_count, lease)
    def detach(self):
        """The same result with copies in place of the views, so that the engine ends."""
        for views in (self.weights, self.outputs):
            views.update({name: view.copy() for name, view in views.items()})
        return self

class Run:
    """A run under way: stop() ends it at its next step; wait() returns its Result or raises; each needs a wait()."""
    def __init__(self, call, run, data=None, data_info=None, callbacks=(), progress=None):
        trainer = dict(run.get("trainer", {}))
        if trainer.setdefault("launcher", "inline") not in ("inline", "auto"):
            raise Error(pl_error(EUNSUPPORTED, b"", b"Python supports only the launcher \"inline\""))
        self._callbacks, self._source, self._arrays = list(callbacks), None, None
        run = {**run, "trainer": {**trainer, "launcher": "inline"},
               "callbacks": [*run.get("callbacks", []), *(c._register() for c in self._callbacks)]}
        if data is not None:
            self._source, self._arrays = next(_names), _arrays(data, data_info)
            run["data"] = {"source": self._source, **run.get("data", {}), "name": "memory"}
        else:                                               # another run may give that name to others
            self._arrays = _sources.get((run["data"] if isinstance(run.get("data"), dict) else {}).get("source"))
        self._call, self._run, self._progress, self._raised = call, json.dumps(run).encode(), progress, None
        if data is not None:
            _call(_lib.pl_memory_arrays, run["data"]["source"].encode(), byref(self._arrays))
            _sources[run["data"]["source"]] = self._arrays
        self._done, self._released, self._result, self._error = threading.Event(), threading.Event(), None, None
        (self._wake, self._waker), self._thread = socket.socketpair(), threading.Thread(target=self._work, daemon=True)
        self._waker.setblocking(False), _runs.add(self), self._thread.start()
    def stop(self, reason="stop() was called"):
        with contextlib.suppress(OSError):                  # it has ended, or was asked often enough
            self._waker.send(reason.encode() + b"\0")
    def wait(self):
        try:
            self._done.wait()
        except KeyboardInterrupt:
            self.stop("Ctrl-C")
            self._done.wait()
        if self._error:
            cause = next((c.raised for c in self._callbacks if c.raised), None)
            if cause and not isinstance(cause, Exception):  # sys.exit() or Ctrl-C
                raise cause
            raise self._error from cause
        self._error = Error(pl_error(ESTATE, b"", b"wait() returned the result already: it gives it once"))
        return vars(self).pop("_result")                    # the only owner keeps its memory
    def _on_progress(self, _trainer, progress, _user):
        try:
            self._progress(_fields(progress.contents, "event metrics global_step total_steps epoch batch batches"))
        except BaseException as raised:                     # it cannot pass through C
            self._raised = self._raised or raised
            self.stop("a progress function raised")
    def _on_done(self, _trainer, result, _user):
        try:
            if self._raised or result.contents.status == b"failed":
                raise self._raised or Error(result.contents.error)
            self._result = Result(result.contents, self._released.set)
        except BaseException as raised:
            self._error = raised
            self._released.set()
        self._done.set()
        self._released.wait()                               # views are of memory that is freed when this returns
    def _work(self):
        (function, *arguments), engine, options = self._call, None, None
        done, progress = _ON_DONE(self._on_done), _ON_PROGRESS(self._on_progress)
        try:
            engine = _call(_lib.pl_engine_new, None)
            options = _call(_lib.pl_options_parse, self._run, b"run")
            trainer = _call(_lib.pl_trainer_new, engine, options)
            self._progress and _lib.pl_trainer_on_progress(trainer, progress, None)
            _call(function, trainer, *arguments, done, None)
            poll = select.poll()
            poll.register(_lib.pl_engine_fd(engine), select.POLLIN), poll.register(self._wake, select.POLLIN)
            while not self._done.is_set():
                if self._wake.fileno() in dict(poll.poll()):
                    _lib.pl_trainer_stop(trainer, self._wake.recv(500), None)
                _lib.pl_engine_dispatch(engine)
        except BaseException as raised:
            self._error = raised
        _lib.pl_options_free(options)
        _lib.pl_engine_free(engine)
        if _sources.pop(self._source, None):                # it has no name of its own
            _lib.pl_memory_data(self._source.encode(), None, None)
        self._wake.close(), self._waker.close(), self._done.set()

def start_fit(run, data=None, resume=None, **more):
    """A Run that trains; resume: "last", a run directory or a checkpoint."""
    path = None if resume == "last" else resume and os.fsencode(resume)
    return Run((_lib.pl_trainer_resume, path) if resume else (_lib.pl_trainer_fit,), run, data, **more)

def fit(run, data=None, **more):
    return start_fit(run, data, **more).wait()

def _measures(what):
    return lambda run, data=None, *, checkpoint, **more: Run((what, os.fsencode(checkpoint)), run, data, **more).wait()

validate, test = _measures(_lib.pl_trainer_validate), _measures(_lib.pl_trainer_test)

def predict(run, data=None, *, checkpoint, prompt=None, tokens=500, temperature=0.8, top_k=0, **more):
    what = pl_prediction(os.fsencode(checkpoint), prompt and prompt.encode(), tokens, temperature, top_k)
    return Run((_lib.pl_trainer_predict, byref(what)), run, data, **more).wait()

class Model:
    """A trained module for inference without an engine: model({"x": x}) is {"logits": view}."""
    def __init__(self, checkpoint, threads=0):
        self._model = _call(_lib.pl_model_load, os.fsencode(checkpoint), threads)
        self._unload = weakref.finalize(self, _lib.pl_model_unload, self._model)
        self._last, self._lock = None, threading.Lock()
    def __call__(self, fields):
        answers, arrays, lease = pl_answers(), _arrays(fields), _Lease()
        with self._lock:                                    # pl_model_run() lets other threads run
            if self._last and self._last():
                raise Error(pl_error(ESTATE, b"", b"views of the previous outputs are in use: copy or delete them first"))
            _call(_lib.pl_model_run, self._model, byref(arrays), byref(answers))
            lease.model, self._last = self, weakref.ref(lease)
        return _views(answers.output, answers.count, lease)
