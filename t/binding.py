"""binding.py - tests of examples/python/paceline.py, for languages.t: TAP on standard output"""
import contextlib
import ctypes
import gc
import os
import resource
import subprocess
import sys
import threading
import time
import weakref

import numpy as np

header, compiler, folder = sys.argv[1], sys.argv[2].split(), sys.argv[3]
import paceline  # noqa: E402

count = failures = 0


def ok(sentence, holds):
    global count, failures
    count, failures = count + 1, failures + (not holds)
    print(f"{'' if holds else 'not '}ok {count} - {sentence}", flush=True)


def raised(function):
    try:
        function()
    except paceline.Error as error:
        return error


rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
y = ((x ** 2).sum(1) < 0.5).astype(np.int64)
data, data_info = {"x": x, "y": y}, {"classes": 2}


def run(**trainer):
    return {"module": {"name": "mlp", "hidden": [16]}, "optimizer": {"name": "adamw", "lr": 1e-2},
            "data": {"val_split": 0.1, "source": "points"},
            "trainer": {"max_epochs": 20, "default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1},
                        **trainer}}


def main_is_alone():
    """Threads of runs end soon after their results are gone."""
    until = time.monotonic() + 30
    while threading.active_count() != 1 and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    return threading.active_count() == 1


def what_c_has():
    """Sizes, offsets and numbers, by a program in C."""
    structs = {name: value for name, value in vars(paceline).items()
               if isinstance(value, type) and issubclass(value, ctypes.Structure)}
    lines = []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}_t));')
        lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}_t, {field}), sizeof((({name}_t *)0)->{field}));'
                  for field, _ in struct._fields_]
    lines += [f'printf("{name} %d\\n", {number});' for name, number in (
        ("PL_F32", "PL_F32"), ("PL_F64", "PL_F64"), ("PL_I32", "PL_I32"), ("PL_I64", "PL_I64"), ("PL_U8", "PL_U8"),
        ("FIELDS", "PL_FIELDS"), ("DIMS", "PL_DIMS"), ("ESTATE", "PL_ESTATE"), ("EUSER", "PL_EUSER"),
        ("EUNSUPPORTED", "PL_EUNSUPPORTED"))]
    lines.append('static const char *const hooks[] = {\n#define PL_X(name, text, may, when) text,\nPL_HOOKS(PL_X)\n};')
    lines.append('for (int k = 0; k < PL_HOOK_COUNT; k++) printf("%s %d\\n", hooks[k], k);')
    with open(f"{folder}/what.c", "w") as file:
        file.write("#include <paceline.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\n}\n")
    subprocess.run([*compiler, "-I", header, f"{folder}/what.c", "-o", f"{folder}/what"], check=True)
    return structs, subprocess.run([f"{folder}/what"], capture_output=True, text=True, check=True).stdout


def structs_equal_the_header():
    structs, said = what_c_has()
    here = []
    for name, struct in structs.items():
        here.append(f"{name} {ctypes.sizeof(struct)}")
        here += [f"{name}.{field} {getattr(struct, field).offset} {getattr(struct, field).size}"
                 for field, _ in struct._fields_]
    here += [f"PL_{short} {paceline.DTYPES[name]}" for short, name in
             (("F32", "float32"), ("F64", "float64"), ("I32", "int32"), ("I64", "int64"), ("U8", "uint8"))]
    here += [f"{name} {getattr(paceline, name)}" for name in ("FIELDS", "DIMS", "ESTATE", "EUSER", "EUNSUPPORTED")]
    here += [f"{hook} {k}" for k, hook in enumerate(paceline.HOOKS)]
    there = said.splitlines()
    for line in sorted(set(here) ^ set(there)):
        print("#", line)
    ok("sizes, offsets and numbers of ctypes and of C agree", here == there and len(here) > 100)


class Watch(paceline.Callback):
    def __init__(self, stop_at):
        self.stop_at, self.epochs, self.thread = stop_at, [], None

    def on_train_epoch_end(self, event, request):
        self.thread = threading.get_ident()
        self.epochs.append((event.epoch, event.callback_metrics.get("val_acc")))
        request.log("halves", event.epoch / 2)
        if event.epoch + 1 == self.stop_at:
            request.stop, request.reason = True, b"that will do"


def a_fit_trains_with_callbacks_and_progress():
    watch, received = Watch(5), []
    result = paceline.fit(run(), data, data_info=data_info, callbacks=[watch], progress=received.append)
    ok("it ends when a callback says so", result.status == "stopped" and "that will do" in result.reason)
    ok("which was called for each epoch", [epoch for epoch, _ in watch.epochs] == [0, 1, 2, 3, 4])
    ok("with the metrics", watch.epochs[-1][1] > 0.6)
    ok("on the rank's thread", watch.thread != threading.get_ident())
    ok("and has logged", result.metrics.get("halves") == 2)
    ok("progress comes with metrics", any("val_acc" in progress["metrics"] for progress in received))
    ok("weights have names and shapes", result.weights["fc1.weight"].shape == (16, 2))
    return result.run_dir


def what_is_read_is_not_copied():
    arrays = paceline._arrays(data)
    ok("the engine reads NumPy's memory", list(arrays.data[:2]) == [x.ctypes.data, y.ctypes.data])
    ok("what has gaps is put together", paceline._arrays({"x": x[:, ::2]}).data[0] != x.ctypes.data)
    swapped = paceline._arrays({"x": x.astype(">f4")}).held["x"]
    ok("and other bytes are turned round", swapped.dtype == np.float32 and (swapped == x).all())


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def views_keep_what_they_look_at():
    result = paceline.fit(run(max_epochs=1), data, data_info=data_info)
    view, copy = result.weights["fc1.weight"][3:], result.weights["fc1.weight"][3:].copy()
    del result
    for _ in range(3):
        paceline.fit(run(max_epochs=1), data, data_info=data_info)
    gc.collect()
    ok("a part of one tensor keeps its run's memory", (view == copy).all() and not view.flags.owndata)
    ok("the view is read-only", not view.flags.writeable)
    del view
    ok("with the last of them all goes", main_is_alone())


def a_result_that_is_detached_keeps_nothing_of_its_engine():
    before = descriptors()
    results = [paceline.fit(run(max_epochs=1), data, data_info=data_info).detach() for _ in range(3)]
    ok("kept results have no threads", main_is_alone())
    ok("nor descriptors", descriptors() <= before)
    same = [result.weights["fc1.weight"] for result in results]
    ok("their tensors are their own", (same[0] == same[2]).all() and same[0].flags.owndata and same[0].any())
    fit = paceline.start_fit(run(max_epochs=1), data, data_info=data_info)
    fit.wait().detach()
    ok("a result is given once", "gives it once" in str(raised(fit.wait)))
    for _ in range(100000):
        fit.stop("a long reason " * 10)
    ok("a run that has ended can be stopped for ever", True)


def threads_that_ask_one_model_get_their_own_rows(run_dir):
    model, wrong, barrier = paceline.Model(run_dir, 1), [], threading.Barrier(4)
    samples = [np.full((3000, 2), k / 4, np.float32) for k in range(4)]
    right = [model({"x": sample[:1]})["logits"].copy() for sample in samples]

    def ask(k):
        barrier.wait()
        for _ in range(100):
            try:
                wrong.append(not np.allclose(model({"x": samples[k]})["logits"], right[k], atol=1e-5))
            except paceline.Error as error:
                wrong.append(error.code != "PL_ESTATE")

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ok("threads that ask one model get their own rows, or none", len(wrong) == 400 and not any(wrong))


def predictions_and_answers_agree(run_dir):
    outputs = paceline.predict(run(), {"x": x}, checkpoint=run_dir).outputs["logits"]
    metrics = paceline.test(run(), data, data_info=data_info, checkpoint=run_dir).metrics
    ok("the accuracy of a test equals the accuracy of the predictions",
       abs(metrics["test_acc"] - (outputs.argmax(1) == y).mean()) < 1e-6 and metrics["test_acc"] > 0.6)
    model = paceline.Model(run_dir)
    answers = model({"x": x})["logits"]
    ok("a model alone answers the same", np.allclose(answers, outputs, atol=1e-5))
    ok("answers that are looked at are not overwritten", raised(lambda: model({"x": x})).code == "PL_ESTATE")
    del answers
    ok("and once they are gone it answers again", model({"x": x[:7]})["logits"].shape == (7, 2))
    kept = paceline.Model(run_dir)({"x": x[:5]})["logits"]
    gc.collect()
    ok("answers outlive the name of their model", np.allclose(kept, outputs[:5], atol=1e-5))


class Broken(paceline.Callback):
    def on_train_batch_end(self, event, request):
        raise KeyError("a mistake of the program's")


class Misspelt(paceline.Callback):
    def on_validation_ends(self, event, request):
        pass


def errors_are_exceptions():
    error = raised(lambda: paceline.fit({**run(), "optimizer": {"name": "adamw", "lrr": 1}}, data, data_info=data_info))
    ok("a wrong key", error.code == "PL_EINVAL" and "lrr" in str(error))
    error = raised(lambda: paceline.fit(run(), data, data_info=data_info, callbacks=[Broken()]))
    ok("what a callback raises is their cause", error.code == "PL_EUSER" and isinstance(error.__cause__, KeyError))
    misspelt = Misspelt()
    for _ in range(2):
        error = raised(lambda: paceline.fit(run(), data, data_info=data_info, callbacks=[misspelt]))
        ok("a hook that there is not", error.code == "PL_EINVAL" and "on_validation_ends: there are on_fit_start" in str(error))
    ok("a launcher that starts processes is refused",
       raised(lambda: paceline.fit(run(launcher="spawn"), data, data_info=data_info)).code == "PL_EUNSUPPORTED")
    ok("no file", raised(lambda: paceline.Model("/nowhere")).code == "PL_ENOTFOUND")
    ok("runs that failed leave nothing", main_is_alone())


def refused(kind, words, fields):
    try:
        paceline._arrays(fields)
    except kind as error:
        ok(f"{words} is said", words in str(error))
        return
    ok(words, False)


def arrays_that_do_not_fit_are_refused():
    refused(TypeError, "x is a list: pass a NumPy array", {"x": [1.0, 2.0], "y": y})
    refused(TypeError, "y is a number: pass a NumPy array", {"x": x, "y": np.array(3)})
    refused(TypeError, "x is float16: use x.astype(…) for one of float32, ", {"x": x.astype(np.float16)})
    refused(TypeError, 'pass {"x": array, …}', [x, y])
    refused(TypeError, '1 to 8 arrays', {})
    refused(ValueError, "600 of x, 599 of y", {"x": x, "y": y[1:]})
    refused(ValueError, "x has 7 axes", {"x": np.zeros((2,) * 7, np.float32)})
    refused(ValueError, "32 bytes", {"x" * 32: x})
    error = raised(lambda: paceline.fit(run(), {"x": x.astype(float), "y": y}, data_info=data_info))
    ok("what makes float32 of float64 is said", "array.astype(np.float32)" in str(error))


def a_run_can_be_stopped_and_resumed():
    started = threading.Event()
    fit = paceline.start_fit(run(max_epochs=-1, run_name="long"), data, data_info=data_info,
                             progress=lambda progress: started.set())
    started.wait(60)
    fit.stop("enough of it")
    result = fit.wait()
    ok("it says why", result.status == "stopped" and "enough of it" in result.reason)
    again = paceline.fit(run(max_epochs=result.epoch + 2), data, data_info=data_info, resume=os.path.join(folder, "long"))
    ok("and resumes from there", again.status == "ok" and again.global_step > result.global_step)


def a_run_keeps_the_arrays_that_it_names():
    mine, started = x.copy(), threading.Event()
    paceline.fit(run(max_epochs=1), {"x": mine, "y": y}, data_info=data_info).detach()
    named = {**run(max_epochs=-1), "data": {"name": "memory", "source": "points"}}
    fit = paceline.start_fit(named, progress=lambda progress: started.set())
    started.wait(60)
    paceline.fit(run(max_epochs=1), data, data_info=data_info).detach()
    kept, mine = weakref.ref(mine), None
    gc.collect()
    ok("others of that name do not take what a run reads", kept() is not None)
    fit.stop()
    fit.wait().detach()
    del fit
    ok("with which they go", main_is_alone() and kept() is None)


def what_a_function_raises_is_raised():
    def fails(_):
        raise KeyError("mine")
    try:
        paceline.fit(run(max_epochs=-1), data, data_info=data_info, progress=fails)
    except KeyError as error:
        ok("a progress function's exception ends the run", error.args == ("mine",))

    class Leaves(paceline.Callback):
        def on_train_batch_end(self, event, request):
            sys.exit(3)
    try:
        paceline.fit(run(max_epochs=-1), data, data_info=data_info, callbacks=[Leaves()])
    except SystemExit as error:
        ok("sys.exit() in a callback is that", error.code == 3)
    ok("nothing is left of them", main_is_alone())


def a_run_works_behind_many_descriptors():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] < 2000:
        print("# 2000 descriptors are not to be had here")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1] if most[0] < 2000 else most[0], most[1]))
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(open(os.devnull))
        result = paceline.fit(run(max_epochs=1), data, data_info=data_info).detach()
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    ok("more than 1024 of them", result.status == "ok")


structs_equal_the_header()
run_dir = a_fit_trains_with_callbacks_and_progress()
what_is_read_is_not_copied()
views_keep_what_they_look_at()
a_result_that_is_detached_keeps_nothing_of_its_engine()
predictions_and_answers_agree(run_dir)
threads_that_ask_one_model_get_their_own_rows(run_dir)
errors_are_exceptions()
arrays_that_do_not_fit_are_refused()
a_run_can_be_stopped_and_resumed()
a_run_keeps_the_arrays_that_it_names()
what_a_function_raises_is_raised()
a_run_works_behind_many_descriptors()
at_exit = paceline.fit(run(max_epochs=1), data, data_info=data_info).weights        # still there when Python ends
print(f"1..{count}")
sys.exit(failures > 0)
