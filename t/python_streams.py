"""python_streams.py - tests of python/paceline/streams.py, for python.t: samples that are read while a run trains

    python_streams.py FOLDER
"""
import os
import subprocess
import sys
import warnings

import numpy as np

folder = sys.argv[1]
import paceline as pl                                       # noqa: E402
from python_tap import finish, like, ok, raised             # noqa: E402

rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
y = ((x ** 2).sum(1) < 0.5).astype(np.int64)
common = {"default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1}, "progress": False, "batch_size": 40}


@pl.module
def net(g, hidden=16, classes=None):
    h = g.relu(g.linear("fc1", g.input("x"), hidden))
    h = g.linear("fc2", h, classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
    g.log("acc", g.accuracy(h, g.input("y")))


def fit(data, module=net, val=None, **options):
    return pl.fit(module, data, val, optimizer=pl.adamw(lr=1e-2), **{"max_epochs": 2, **common, **options})


def same(a, b):
    return all((a.weights[name] == b.weights[name]).all() for name in b.weights)


class Set:                                                  # as of PyTorch
    def __init__(self, count=600):
        self.count, self.reads = count, 0

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        self.reads += 1
        return x[k], y[k]


class Together(Set):
    def __getitems__(self, indices):
        self.reads += 1
        return [(x[k], y[k]) for k in indices]


class IterableDataset:                                      # as of PyTorch, by its name
    def __getitem__(self, k):
        raise NotImplementedError


class Numbers(IterableDataset):
    def __iter__(self):
        return ({"x": x[k], "y": int(y[k])} for k in range(600))


def pairs(count=600):
    return ((x[k], y[k]) for k in range(count))


def a_data_set_is_read_by_index():
    arrays, data = fit((x, y)), Set()
    ok("it trains to the bits of arrays, in their random order", same(fit(data), arrays))
    ok("each sample is read for its class, and once in each epoch", data.reads == 1 + 3 * 600)
    data = Together()
    ok("batches are read together where it can do that",
       same(fit(data, net(classes=2)), arrays) and data.reads == 1 + 2 * 15)
    named = Set()
    named.classes = ["out", "in"]
    result = fit(named)
    ok("its classes have names", result.class_names == ["out", "in"] and named.reads == 1 + 2 * 600)
    held = fit(Set(), val_split=0.25)
    ok("a share can be held out", "val_acc" in held.metrics and held.global_step == 2 * 12)
    ok("it serves validation too", "val_acc" in fit(Set(), val=Set(100)).metrics)
    half = fit(Set(), max_epochs=4, max_steps=20, run_name="half")
    rest = fit(Set(), max_epochs=4, resume=half.run_dir)
    ok("a run resumes in the middle of an epoch", same(rest, fit((x, y), max_epochs=4)))


def an_iterator_is_read_once_in_its_order():
    arrays = fit((x, y), shuffle=False, max_epochs=1)
    ok("its epoch has the bits of arrays in order", same(fit(pairs(), net(classes=2), max_epochs=1), arrays))
    ok("that is the default", same(fit(pairs(), net(classes=2), max_epochs=None), arrays))
    steps = fit(pairs(), net(classes=2), max_epochs=None, max_steps=10)
    ok("so is a number of steps that it has", steps.global_step == 10)
    known = fit(pl.stream(pairs(), samples=590), net(classes=2), max_epochs=1)
    ok("the last batch may be smaller where the number of samples is known", known.global_step == 15)
    ok("a run is measured at its end", "val_acc" in fit(pairs(), net(classes=2), val=(x, y), max_epochs=1).metrics)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = fit(pairs(590), net(classes=2), max_epochs=1)
        grown = fit(pairs(), net(classes=2), max_epochs=1, accumulate_grad_batches=4)
    like("otherwise it is left out, with a warning", str(heard[0].message), "last 30 samples", "samples=")
    ok("after its last whole batch", result.status == "ok" and result.global_step == 14)
    ok("several batches make a step", grown.global_step == 3)


def a_function_makes_an_iterator_for_each_epoch():
    arrays = fit((x, y), shuffle=False)
    ok("two epochs have the bits of arrays in order", same(fit(pl.stream(pairs)), arrays))
    ok("pl.stream() is not needed for that", same(fit(pairs), arrays))
    ok("an iterable may give dicts, as a data set of PyTorch", same(fit(Numbers()), arrays))
    ok("it may be measured", "val_acc" in fit(pairs, val=pairs).metrics)
    ok("it is read until the steps are done", fit(pairs, net(classes=2), max_epochs=None, max_steps=40).global_step == 40)
    schedule = fit(pairs, scheduler=pl.cosine())
    ok("its length is counted for a schedule", schedule.global_step == 30)
    half = fit(pl.stream(pairs, samples=600), max_steps=20, run_name="part")
    ok("a run resumes in the middle of an epoch", same(fit(pl.stream(pairs, samples=600), resume=half.run_dir), arrays))
    two = fit(pairs, devices=2, batch_size=20, launcher="inline")
    ok("two ranks share the samples", two.global_step == 30 and np.allclose(
        two.weights["fc1.weight"], arrays.weights["fc1.weight"], atol=1e-5))
    texts = fit(lambda: ((x[k], ["out", "in"][y[k]]) for k in range(600)))
    ok("texts are classes", texts.class_names == ["in", "out"])


def what_cannot_be_read_says_what_to_do():
    module = net(classes=2)
    for words, data, options in (
            ("max_epochs is 5: pass a function", pairs(), {"max_epochs": 5}),
            ("val_split needs samples in any order", pairs(), {"max_epochs": 1, "val_split": 0.1}),
            ("sampler needs samples in any order", pairs, {"sampler": "balanced"}),
            ("shuffle needs samples in any order", pairs, {"shuffle": True}),
            ("one thread: leave out workers", pairs, {"workers": 2}),
            ("a schedule needs the length", pairs(), {"max_epochs": 1, "scheduler": pl.cosine()}),
            ("read again after each epoch", (x, y), {"val": pairs()}),
            ("gave no samples", iter(()), {}), ("have no samples", Set(0), {}),
            ("fewer than the 40 of a step", pairs(30), {"max_epochs": 1}),
            ("gave 600 samples, and 700 were announced", pl.stream(pairs, samples=700), {}),
            ("at least 1, not 0", None, {}),
            ("val has no y", (x, y), {"val": lambda: iter(x)})):
        like(f"refused: {words}", str(raised(lambda: fit(data, module, **options) if data is not None else
                                             pl.stream(pairs, samples=0))), words)
    like("a text in an iterator", str(raised(lambda: fit(iter([(x[0], "in")]), max_epochs=1), TypeError)), "classes=[")
    like("a test of unknown length", str(raised(lambda: pl.Trainer(module, **common).test(pairs(), folder), TypeError)),
         "samples=…")
    odd = [(x[0], 0)] * 50 + [(x[0][:1], 0)] + [(x[0], 0)] * 50
    like("another shape", str(raised(lambda: fit(iter(odd), module, max_epochs=1), ValueError)), "sample 50: x is float32 [1]")
    like("another field", str(raised(lambda: fit(iter([(x[0], 0)] * 50 + [(x[0],)] * 50), module, max_epochs=1))),
         "sample 50 has no y")


class Mine(Exception):
    pass


def an_error_of_the_program_comes_out_of_fit():
    def fails():
        yield from pairs(100)
        raise Mine("row 100")
    error = raised(lambda: fit(fails(), net(classes=2), max_epochs=1), Mine)
    ok("it is the program's own", error.args == ("row 100",))

    class Broken(Set):
        def __getitem__(self, k):
            if k == 77:
                raise Mine(f"sample {k}")
            return super().__getitem__(k)
    ok("of a data set too", raised(lambda: fit(Broken(), net(classes=2)), Mine).args == ("sample 77",))
    ok("and the next run is right", fit(Set()).status == "ok")


def memory_is_that_of_a_few_batches():
    program = f"""
import resource
import numpy as np, paceline as pl
row = np.random.default_rng(3).uniform(-1, 1, 25000).astype(np.float32)         # 100 kB
@pl.module
def net(g):
    h = g.linear("fc", g.input("x"), 2)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
before = None
def rows():
    global before
    for k in range(10000):                                                       # 1 GB
        if k == 1000:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield row + np.float32(k % 7), k % 2
result = pl.fit(net, rows(), batch_size=20, default_root_dir={folder!r}, progress=False,
                accelerator={{"name": "cpu", "threads": 1}})
print(result.global_step, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    steps, grown = done.stdout.split() or ("0", "9999")
    ok("all samples are trained on", steps == "500")
    if not ok(f"a gigabyte passes in {grown} MB", int(grown) < 100):
        print("#", done.stderr)


def ctrl_c_stops_an_endless_iterator():
    program = f"""
import os, signal, itertools
import numpy as np, paceline as pl
signal.signal(signal.SIGINT, signal.default_int_handler)
@pl.module
def net(g):
    h = g.linear("fc", g.input("x"), 2)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
def endless():
    for k in itertools.count():
        if k == 2000:
            os.kill(os.getpid(), signal.SIGINT)
        yield np.full(3, k % 5, np.float32), k % 2
result = pl.fit(net, endless(), default_root_dir={folder!r}, progress=False)
print(result.status, result.reason)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    ok("at a step", done.stdout == "stopped Ctrl-C\n")
    if done.stderr:
        print("#", done.stderr.replace("\n", "\n# "))


def ranks_in_other_processes_read_files():
    program = f"""
import numpy as np
import paceline as pl
x = np.random.default_rng(3).uniform(-1, 1, (600, 2)).astype(np.float32)
@pl.module
def net(g, classes=None):
    h = g.linear("fc", g.input("x"), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
    g.log("acc", g.accuracy(h, g.input("y")))
result = pl.fit(net, lambda: ((row, int(row.sum() > 0)) for row in x), max_epochs=20, launcher="spawn", devices=2,
                optimizer=pl.adamw(lr=0.05), default_root_dir={folder!r}, progress=False,
                accelerator={{"name": "cpu", "threads": 1}})
print(result.status, result.metrics["train_acc"] > 0.9)
"""
    with open(os.path.join(folder, "spawned.py"), "w") as file:
        file.write(program)
    done = subprocess.run([sys.executable, f"{folder}/spawned.py"], capture_output=True, text=True, timeout=300)
    ok("two ranks of spawn train on an iterator", done.stdout == "ok True\n")
    if done.stdout != "ok True\n":
        print("#", done.stderr.replace("\n", "\n# "))


a_data_set_is_read_by_index()
an_iterator_is_read_once_in_its_order()
a_function_makes_an_iterator_for_each_epoch()
what_cannot_be_read_says_what_to_do()
an_error_of_the_program_comes_out_of_fit()
memory_is_that_of_a_few_batches()
ctrl_c_stops_an_endless_iterator()
ranks_in_other_processes_read_files()
finish()
