"""python_package.py - tests of the package in python/, for python.t: TAP on standard output

    python_package.py HEADER COMPILER FOLDER PACELINE
"""
import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np

header, compiler, folder, command = sys.argv[1], sys.argv[2].split(), sys.argv[3], sys.argv[4]
import paceline as pl                                       # noqa: E402
from paceline import _interface as interface                # noqa: E402
from python_tap import finish, like, ok, raised             # noqa: E402

rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
y = ((x ** 2).sum(1) < 0.5).astype(np.int64)
common = {"default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1}, "progress": False}


@pl.module
def net(g, hidden=16, classes=None):
    h = g.relu(g.linear("fc1", g.flatten(g.input("x")), hidden))
    h = g.linear("fc2", h, classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
    g.log("acc", g.accuracy(h, g.input("y")))


def fit(module=net, data=(x, y), **options):
    return pl.fit(module, data, optimizer=pl.adamw(lr=1e-2), **{"max_epochs": 20, "batch_size": 32, **common, **options})


# ---- the interface ----

def structs_equal_the_header():
    structs = {name: value for name, value in vars(interface).items()
               if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure}
    lines, here = [], []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        here.append(f"{name} {ctypes.sizeof(struct)}")
        for field, _ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            here.append(f"{name}.{field} {getattr(struct, field).offset} {getattr(struct, field).size}")
    numbers = [name for name, value in vars(interface).items() if name.startswith("PL_") and isinstance(value, int)]
    lines += [f'printf("{name} %d\\n", (int){name});' for name in numbers]
    here += [f"{name} {getattr(interface, name)}" for name in numbers]
    Path(folder, "what.c").write_text("#include <paceline.h>\n#include <stdio.h>\nint main(void)\n{\n"
                                      + "\n".join(lines) + "\n}\n")
    subprocess.run([*compiler, "-I", header, f"{folder}/what.c", "-o", f"{folder}/what"], check=True)
    there = subprocess.run([f"{folder}/what"], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in sorted(set(here) ^ set(there)):
        print("#", line)
    ok("sizes, offsets and numbers of ctypes and of C agree", here == there and len(here) > 300)
    ok("hooks are in order", interface.HOOKS[0] == "on_fit_start" and len(interface.HOOKS) == 14)


def every_graph_function_is_a_method():
    declared = [name[3:] for name, (_, arguments) in interface.FUNCTIONS.items() if name.startswith("pl_")]
    methods = [name for name in vars(interface.Functions) if not name.startswith("_")]
    ok("there are many", len(methods) > 90)
    lacking = [name for name in ("linear", "conv2d", "attention", "cross_entropy", "slice", "where", "param", "log", "r2",
                                "lstm", "sort")
               if name not in methods]
    ok("those of each kind are among them", not lacking and "trainer_fit" in declared)
    ok("options are keywords", "causal" in interface.Functions.attention.__kwdefaults__)
    ok("a method has the comment of the header", "torch.nn.Linear" in interface.Functions.linear.__doc__)


# ---- modules ----

def a_module_is_a_record_of_calls():
    record = net.record({"x": ("float32", (2,)), "y": ("int64", ())}, {"classes": 2})
    ok("it is the module \"graph\"", record["name"] == "graph" and record["calls"][0][0] == "input")
    like("with the line of each call", record["calls"][0][2], "python_package.py:")
    ok("a parameter without a value comes from the data", record["calls"][4][1]["units"] == 2)
    ok("another value makes another module",
       net(hidden=5).record({"x": ("float32", (2,)), "y": ("int64", ())}, {"classes": 2})["calls"][2][1]["units"] == 5)
    like("an unknown parameter is refused", str(raised(lambda: net(hiden=5), TypeError)), "hiden", "it has hidden, classes")
    like("so is a missing one", str(raised(lambda: pl.module(lambda g, width: None).record({"x": ("float32", (2,))}))),
         "needs a value for width")


def in_graph(function, **fields):
    graph = pl.Graph({name: ("float32", shape) for name, shape in (fields or {"x": (4, 6)}).items()})
    try:
        return function(graph, graph.input("x"))
    finally:
        graph.close()


def nodes_have_shapes_and_operators():
    ok("the batch has an unknown size", in_graph(lambda g, x: x.shape) == (-1, 4, 6))
    like("with which nothing can be computed", str(in_graph(lambda g, x: raised(lambda: x.shape[0] * 2, TypeError))),
         "depends on the batch")
    ok("reshape takes it", in_graph(lambda g, x: g.reshape(x, (x.shape[0], 24)).shape) == (-1, 24))
    shapes = in_graph(lambda g, x: [(x + x).shape, (2 - x).shape, (x * 3).shape, (x @ x.permute(0, 2, 1)).shape,
                                    (-x).shape, (x > 0).shape, abs(x).shape, (x ** 2).shape, (1 / x).shape,
                                    ((x > 0) & ~(x < 1)).shape, (x == x).shape])
    ok("operators are graph functions", shapes == [(-1, 4, 6)] * 3 + [(-1, 4, 4)] + [(-1, 4, 6)] * 7)
    ok("arrays are constants", in_graph(lambda g, x: (x + np.ones((4, 6), np.float32)).shape) == (-1, 4, 6))
    sizes = in_graph(lambda g, x: [x[:, 1:].shape, x[:, -1].shape, x[..., 0].shape, x[:, :, ::2].shape, x[:, None].shape,
                                   x[:, 1, 2:4].shape])
    ok("slices are those of NumPy", sizes == [(-1, 3, 6), (-1, 6), (-1, 4), (-1, 4, 3), (-1, 1, 4, 6), (-1, 2)])
    like("the axis of the batch cannot be cut", str(in_graph(lambda g, x: raised(lambda: x[3]))), "only have ':'")
    like("nor can what is outside", str(in_graph(lambda g, x: raised(lambda: x[:, 9]))), "index 9 is outside axis 1")
    like("a node is no condition", str(in_graph(lambda g, x: raised(lambda: bool(x > 0)))), "g.where")


def mistakes_are_exceptions_at_their_line():
    error = in_graph(lambda g, x: raised(lambda: g.linear("fc", x, 0), pl.Error))
    like("a value that is not allowed", str(error), "python_package.py:", "linear")
    ok("with its code", error.code == "PL_EINVAL")
    error = in_graph(lambda g, x: raised(lambda: g.matmul(x, x), pl.Error))
    like("shapes that do not fit", str(error), "python_package.py:", "matmul", "4, 6]")
    error = in_graph(lambda g, x: raised(lambda: g.input("z"), pl.Error))
    like("a field that there is not", str(error), "z")
    error = in_graph(lambda g, x: raised(lambda: g.loss(x), TypeError))
    like("a loss that is a node", str(error), "g.mse(x, y)")
    ok("a word that there is not", "one of on_epoch, on_step" in
       str(in_graph(lambda g, x: raised(lambda: g.log("a", g.mse(x, x), "ever"), pl.Error))))


# ---- training ----

def the_example_trains_and_predicts():
    result = fit(val=(x[:100], y[:100]))
    ok("it ends well", result.status == "ok" and result.epoch == 20)
    ok("it learns", result.metrics["val_acc"] > 0.9)
    ok("history has a row for each epoch", len({row["epoch"] for row in result.history}) == 20
       and "val_acc" in result.history[-1])
    ok("weights have names and shapes", result.weights["fc1.weight"].shape == (16, 2))
    ok("they are views of the library's memory", not result.weights["fc1.weight"].flags.owndata)
    logits = result.predict(x)
    ok("predictions agree with the metrics", abs((logits.argmax(1)[:100] == y[:100]).mean()
                                                - result.metrics["val_acc"]) < 1e-6)
    view, copy = result.weights["fc1.weight"], result.weights["fc1.weight"].copy()
    run_dir = result.run_dir
    del result
    gc.collect()
    fit(max_epochs=1)
    ok("a view keeps its memory", (view == copy).all())
    return run_dir


def it_is_the_module_of_c(run_dir):
    trainer = pl.Trainer(net, optimizer=pl.adamw(lr=1e-2), max_epochs=3, batch_size=32, run_name="saved", **common)
    run = json.loads(trainer.run_file((x, y)))
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/y.npy", y)
    run["data"] = {"name": "npy", "x": f"{folder}/x.npy", "y": f"{folder}/y.npy", "batch_size": 32}
    Path(folder, "saved.json").write_text(json.dumps(run))
    subprocess.run([command, "fit", f"{folder}/saved.json"], check=True, capture_output=True)
    mine = fit(max_epochs=3)
    theirs = pl.Model(f"{folder}/saved")({"x": x})["logits"]
    ok("the command trains the saved graph to the same bits", (theirs == mine.predict(x)).all())
    net.save(f"{folder}/net.json", {"x": ("float32", (2,)), "y": ("int64", ())}, {"classes": 2})
    again = json.loads(Path(folder, "net.json").read_text())
    ok("a saved module is a run file", again["module"] == run["module"])
    trained = subprocess.run([command, "fit", "--set", "data.name=npy", f"--set=data.x={folder}/x.npy",
                              f"--set=data.y={folder}/y.npy", "--set", "trainer.max_epochs=1", "--set",
                              "trainer.default_root_dir=" + folder, f"{folder}/net.json"], capture_output=True, text=True)
    ok("which trains with an optimizer of its own", trained.returncode == 0)
    like("classes that floats do not have are missing for a reason",
         str(raised(lambda: fit(data=(x, y.astype(np.float32))), pl.Error)), "classes is None, because y is float32")
    error = subprocess.run([command, "fit", "--set", "data.name=npy", f"--set=data.x={folder}/x.npy",
                            "--set", "optimizer=sgd", "--set",
                            "trainer.default_root_dir=" + folder, f"{folder}/net.json"],
                           capture_output=True, text=True)
    like("a mistake with its data names the line of Python", error.stderr, "python_package.py:", "input")


def parameters_may_serve_training_alone():
    @pl.module
    def aided(g):
        h = g.tanh(g.linear("fc1", g.input("x"), 8))
        logits = g.linear("fc2", h, 2)
        g.output("logits", logits)
        g.loss(g.cross_entropy(logits, g.input("y")))
        g.log("aid", g.accuracy(g.linear("aid", h, 2), g.input("y")))
    result = fit(module=aided, max_epochs=2)
    ok("predictions need them not", result.predict(x).shape == (600, 2))
    outputs = pl.Trainer(aided, **common).predict((x, y), result.run_dir).wait().outputs
    ok("nor do those of the engine", np.allclose(outputs["logits"], result.predict(x), atol=1e-5))


def stages_can_differ():
    @pl.module
    def two(g):
        h = g.linear("fc", g.input("x"), 2)
        g.output("shares", g.softmax(h) if g.stage == "predict" else h)
        if g.stage != "predict":
            g.loss(g.cross_entropy(h, g.input("y")))
    result = fit(two, max_epochs=1)
    ok("a function may ask for the stage", np.allclose(result.predict(x).sum(1), 1, atol=1e-5))


def computing_again_changes_nothing():
    def layers(g):
        return g.linear("fc2", g.tanh(g.linear("fc1", g.input("x"), 8)), 2)

    def finish(g, h):
        g.output("logits", h)
        g.loss(g.cross_entropy(h, g.input("y")))

    @pl.module
    def kept(g):
        finish(g, layers(g))

    @pl.module
    def again(g):
        with g.checkpoint():
            h = layers(g)
        finish(g, h)
    first, second = fit(kept, max_epochs=2).predict(x), fit(again, max_epochs=2).predict(x)
    ok("operations in a checkpoint give the same bits", np.array_equal(first, second))


def data_come_in_many_forms():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        wide = fit(data=(x.astype(np.float64), y.astype(np.int16)), max_epochs=2)
    like("float64 is converted with a warning", str(heard[0].message), "x is float64", "astype")
    ok("to the same result", (wide.predict(x) == fit(max_epochs=2).predict(x)).all())
    names = fit(data=(x, np.array(["out", "in"])[y]), max_epochs=1)
    ok("texts are classes", names.class_names == ["in", "out"] and names.predict(x).shape == (600, 2))
    truths = [fit(data=(x, y.astype(kind)), max_epochs=2) for kind in (bool, np.uint8)]
    ok("bool and uint8 are classes", all((truth.predict(x) == wide.predict(x)).all() for truth in truths))
    like("a target that is missing is refused", str(raised(lambda: fit(data=(x[:3], np.array(["a", None, "b"]))))),
         "y has no value for 1 of 3 samples")
    class Frame:                                            # as of pandas
        def __init__(self, *columns):
            self.columns = list(columns)

        def __getitem__(self, name):
            return Frame(*name) if isinstance(name, list) else x[:, "ab".index(name)]

        def to_numpy(self, dtype=None):
            return np.stack([self[name] for name in self.columns], 1).astype(dtype)
    framed = fit(data=(Frame("a", "b"), y), max_epochs=2)
    ok("and a frame", (framed.predict(x) == wide.predict(x)).all())
    ok("its columns go by their names", (framed.predict(Frame("b", "a")) == wide.predict(x)).all())
    ok("with the engine, too", (pl.Trainer(net, **common).predict(Frame("b", "a"), framed.run_dir).wait()
                                .outputs["logits"] == framed.predict(x)).all())
    like("a column that is missing is named", str(raised(lambda: framed.predict(Frame("b")))), "has no column a")
    for words, data in (("numbers of samples differ: 600 of x, 599 of y", (x, y[1:])), ("x is one value", (3.0, y)),
                        ("no samples", (x[:0], y[:0])), ("x has 7 axes", (np.zeros((2,) * 7, np.float32), y[:2])),
                        ("x is complex64", (x.astype(np.complex64), y)), ("data is int", 3)):
        like(f"refused: {words}", str(raised(lambda: fit(data=data))), words)


class Watch(pl.Callback):
    def __init__(self):
        self.epochs, self.thread = [], None

    def on_train_epoch_end(self, event, request):
        self.thread = threading.get_ident()
        self.epochs.append(event.epoch)
        request.log("halves", event.epoch / 2)
        if event.epoch == 4:
            request.stop, request.reason = True, b"that will do"


class Broken(pl.Callback):
    def on_train_batch_end(self, event, request):
        raise KeyError("a mistake of the program")


class Misspelt(pl.Callback):
    def on_validation_ends(self, event, request):
        pass


def callbacks_and_progress():
    watch, reports = Watch(), []
    result = fit(callbacks=[watch], **{"progress": reports.append})
    ok("a callback ends the run", result.status == "stopped" and "that will do" in result.reason)
    ok("it was called for each epoch, on the rank's thread",
       watch.epochs == [0, 1, 2, 3, 4] and watch.thread != threading.get_ident())
    ok("and has logged", result.metrics["halves"] == 2)
    ok("progress has metrics", any("train_acc" in report or "train_loss" in report for report in reports))
    error = raised(lambda: fit(callbacks=[Broken()]), KeyError)
    ok("fit() raises what a callback raises, with the error of the run as its cause",
       "a mistake of the program" in str(error) and error.__cause__.code == "PL_EUSER")
    several = np.stack([x[:, 0] > 0, x[:, 1] > 0, x.sum(1) > 0], 1)
    for labels in (several, several.astype(np.int64)):
        found = fit(module=pl.component("mlp", hidden=[16]), data=(x, labels)).predict(x)
        ok("several columns of 0 and 1 are labels, and a prediction has their probabilities",
           found.shape == several.shape and ((found > 0.5) == several).mean() > 0.95)
    like("a hook that there is not", str(raised(lambda: fit(callbacks=[Misspelt()]), pl.Error)), "on_validation_ends")

    def fails(_):
        raise KeyError("mine")
    ok("what a progress function raises ends the run",
       raised(lambda: fit(max_epochs=-1, progress=fails), KeyError).args == ("mine",))


def errors_say_what_to_do():
    like("a wrong option", str(raised(lambda: fit(max_epoch=3), pl.Error)), "max_epoch", "max_epochs")
    like("a wrong option of an optimizer", str(raised(
        lambda: pl.fit(net, (x, y), optimizer=pl.adamw(lrr=1), **common), pl.Error)), "lrr", "lr")
    like("a component that there is not", str(raised(lambda: pl.adamww, AttributeError)), "adamww")
    ok("no file", raised(lambda: pl.Model("/nowhere"), pl.Error).code == "PL_ENOTFOUND")
    error = subprocess.run([sys.executable, "-c", "import paceline"], capture_output=True, text=True,
                           env={**os.environ, "PACELINE_LIBRARY": "/nowhere/libpaceline.so.0"}).stderr
    like("a library that is missing", error.splitlines()[-1], "ImportError", "pip install", "PACELINE_LIBRARY")


def ctrl_c_stops_at_a_step():
    program = f"""
import os, signal, sys
sys.argv[1:] = {sys.argv[1:]!r}
import numpy as np, paceline as pl
signal.signal(signal.SIGINT, signal.default_int_handler)    # a shell's background has it ignored
rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32); y = (x.sum(1) > 0).astype(np.int64)
@pl.module
def net(g):
    h = g.linear("fc", g.input("x"), 2)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
class Once(pl.Callback):
    def on_train_epoch_end(self, event, request):
        if event.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)
result = pl.fit(net, (x, y), max_epochs=-1, callbacks=[Once()], default_root_dir={folder!r}, progress=False)
print(result.status, result.reason)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    ok("the result says so", done.stdout == "stopped Ctrl-C\n")
    if done.stderr:
        print("#", done.stderr)


def a_run_is_awaited():
    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)
        beside = asyncio.create_task(tick())
        results = await asyncio.gather(
            *(pl.Trainer(net(hidden=hidden), max_epochs=2, **common).fit((x, y)) for hidden in (8, 9)))
        beside.cancel()
        return results, ticks

    (first, second), ticks = asyncio.run(both())
    ok("two at once", first.weights["fc1.weight"].shape == (8, 2) and second.weights["fc1.weight"].shape == (9, 2))
    ok("beside other tasks", ticks > 10)

    async def impatient():
        run = pl.Trainer(net, max_epochs=2, **common).fit((x, y))
        try:
            await asyncio.wait_for(run, 0.001)
        except asyncio.TimeoutError:
            pass
        return await run

    ok("a wait that is cancelled leaves the run as it is", asyncio.run(impatient()).status == "ok")


def a_run_resumes_and_weights_go_in(run_dir):
    first = fit(max_epochs=2, run_name="long")
    again = fit(max_epochs=4, resume=os.path.join(folder, "long"))
    ok("a run resumes", again.global_step == 2 * first.global_step)
    start = fit(max_epochs=1, weights=dict(first.weights))
    ok("weights go in", start.metrics["train_loss"] < fit(max_epochs=1).metrics["train_loss"])
    tested = pl.Trainer(net, **common).test((x, y), run_dir).wait()
    ok("a test measures them", tested.metrics["test_acc"] > 0.9)
    outputs = pl.Trainer(net, **common).predict((x, y), run_dir).wait().outputs
    alone = pl.Trainer(net, **common).predict(x, os.path.join(run_dir, "model.safetensors")).wait().outputs
    ok("a prediction needs no targets", (alone["logits"] == outputs["logits"]).all())
    ok("the engine predicts as the model does", np.allclose(outputs["logits"], pl.Model(run_dir)(x)["logits"], atol=1e-5))


def the_library_reads_data_and_writes_text():
    path = os.path.join(folder, "text.txt")
    with open(path, "w") as file:
        file.write("abcd efg.\n" * 100)
    layers = ["embedding 10 16", "positions", {"residual": ["attention 2 causal"]}, "linear 10"]
    trainer = pl.Trainer(pl.component("layers", layers=layers), optimizer=pl.adamw(lr=0.03), max_steps=150,
                         run_name="text", **common)
    data = pl.text(path=path, context=16, batch_size=8)
    ok("a data set of the library", trainer.fit(data).wait().status == "ok")
    at = os.path.join(folder, "text")
    written = [trainer.write("abcd", at, tokens=24, temperature=0, cache=cache).wait().text for cache in (True, False)]
    ok("a text is continued", written == [" efg.\nabcd efg.\nabcd efg"] * 2)
    with open(os.path.join(folder, "plants.csv"), "w") as file:
        file.write("length,kind\n" + "".join("%d,%s\n" % (k, "tree" if k > 20 else "moss") for k in range(40)))
    plants = pl.csv(path=os.path.join(folder, "plants.csv"), fields={"y": "kind"}, batch_size=8)
    kinds = pl.fit(pl.component("layers", layers=["linear auto"]), plants, max_epochs=2, **common)
    ok("its classes have names", kinds.class_names == ["moss", "tree"])
    ok("a result predicts it", kinds.predict(plants).shape == (40, 2))
    like("validation data are its own", str(raised(lambda: trainer.fit(data, (x, y)), TypeError)), "val_split")
    like("a module of Python has no shapes then", str(raised(lambda: pl.Trainer(net).fit(data), TypeError)), "component")


def a_program_drives_its_own_loop():
    options = {"optimizer": pl.adamw(lr=1e-2), "batch_size": 64, **common}
    with pl.Loop(net(classes=2), checkpoints=True, **options) as loop:
        first = loop.train((x[:64], y[:64])).wait()
        sent = [loop.train((x[at:at + 64], y[at:at + 64])) for _ in range(20) for at in range(0, 576, 64)]
        last = sent[-1].wait()
        ok("the loss falls", last.loss < first.loss / 2 and last.global_step == 181)
        ok("answers come in order", [answer.global_step for answer in sent] == list(range(2, 182)))
        measured = loop.evaluate((x[:64], y[:64])).wait()
        logits = loop.predict(x[:64]).wait().outputs["logits"]
        ok("evaluation and prediction agree",
           abs((logits.argmax(1) == y[:64]).mean() - measured.metrics["val_acc"]) < 1e-6)
        loop.scale_lr(0.5)
        saved = loop.save("mine").wait()
        ok("a checkpoint is made", saved.global_step == 181)
        like("another shape is refused", str(raised(lambda: loop.train((x[:3, :1], y[:3])).wait(), pl.Error)), "x")
        weights = loop.close()
        ok("it ends with the weights", weights["fc1.weight"].shape == (16, 2))
        like("after that nothing works", str(raised(lambda: loop.train((x, y)), pl.Error)), "closed")

    async def awaited():
        with pl.Loop(net(classes=2), **options) as loop:
            return [(await loop.train((x[:64], y[:64]))).loss for _ in range(3)]
    losses = asyncio.run(awaited())
    ok("its answers can be awaited", losses[2] < losses[0])


def batches():
    return [(x[at:at + 40], y[at:at + 40]) for at in range(0, 600, 40)]


def tasks_wait_for_one_loop_together():
    async def together():
        with pl.Loop(net(classes=2), batch_size=40, **common) as loop:
            return await asyncio.wait_for(asyncio.gather(*(loop.train(batch) for batch in batches())), 60)
    answers = asyncio.run(together())
    ok("each gets its own answer", [answer.global_step for answer in answers] == list(range(1, 16)))


def a_loop_equals_a_run_and_resumes():
    options = {"batch_size": 40, "shuffle": False, "optimizer": pl.adamw(lr=1e-2), **common}
    run = pl.fit(net(classes=2), (x, y), max_epochs=1, **options)
    with pl.Loop(net(classes=2), checkpoints=True, run_name="loop", **options) as loop:
        for batch in batches():
            loop.train(batch)
        loop.save("here")
        before = loop.evaluate(batches()[0])
        weights = loop.close()
    ok("the same batches give the same bits", all((weights[name] == run.weights[name]).all() for name in weights))
    with pl.Loop(net(classes=2), resume=Path(folder, "loop", "checkpoints", "here"), **options) as loop:
        ok("a checkpoint has them", loop.evaluate(batches()[0]).wait().loss == before.loss)
        ok("and the number of steps", loop.train(batches()[1]).wait().global_step == 16)


def a_program_takes_the_steps_itself():
    options = {"batch_size": 40, "shuffle": False, "optimizer": pl.adamw(lr=1e-2), **common}
    run = pl.fit(net(classes=2), (x, y), max_epochs=1, **options)
    with pl.Loop(net(classes=2), **options) as loop:
        like("not before a batch has come", str(raised(loop.step, pl.Error)), "first call of a loop")
        for batch in batches():
            computed = loop.backward(batch)
            gradients = loop.gradients().wait().outputs
            stepped = loop.step()
        ok("gradients have the names of parameters", set(gradients) == set(run.weights))
        ok("a step has the loss of its batches", stepped.wait().loss == computed.loss and stepped.grad_norm > 0)
        like("no step without gradients", str(raised(loop.step().wait, pl.Error)), "no gradients for a step")
        like("no objective of that name", str(raised(lambda: loop.step("second"), pl.Error)), "one objective")
        weights = loop.close()
    ok("the bits are those of a run", all((weights[name] == run.weights[name]).all() for name in weights))
    with pl.Loop(net(classes=2), **{**options, "optimizer": pl.sgd(lr=0.1, momentum=0)}) as loop:
        loop.backward(batches()[0])
        loop.set_gradients({name: 0 * array for name, array in gradients.items()})
        ok("gradients can be replaced", loop.step().wait().grad_norm == 0)
        loop.backward(batches()[0])
        wrong = loop.set_gradients({name: array.reshape(-1)[:1] for name, array in gradients.items()})
        like("not by others", str(raised(wrong.wait, pl.Error)), "has shape")


class Steps(pl.Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, event, request):
        self.seen.append(event.global_step)
        if event.global_step == 3:
            request.stop, request.reason = True, b"three are enough"


def callbacks_of_a_loop_act_after_steps():
    steps, options = Steps(), {"batch_size": 40, **common}
    with pl.Loop(net(classes=2), callbacks=[steps], **options) as loop:
        for batch in batches()[:3]:
            loop.train(batch).wait()
        refused = raised(loop.train(batch).wait, pl.Error)
        like("a stop is the reason of the next error", str(refused), "three are enough")
    ok("each step is seen", steps.seen == [1, 2, 3])
    wrong = raised(lambda: pl.Loop(net(classes=2), callbacks=[Steps], **options), TypeError)
    like("a class is no callback", str(wrong), "Steps is a class", "callbacks=[Steps()]")
    like("a function is no module", str(raised(lambda: pl.Trainer(lambda g: None), TypeError)), "@pl.module")


def a_step_that_fails_is_reported():
    bad = np.full((4, 2), np.nan, np.float32), y[:4]
    options = {"batch_size": 40, **common}
    with pl.Loop(net(classes=2), **options) as loop:
        like("by waiting for it", str(raised(loop.train(bad).wait, pl.Error)), "finite")
        ok("the next is right", loop.train(batches()[0]).wait().loss > 0)
    loop = pl.Loop(net(classes=2), **options)
    loop.train(bad)
    like("or else at the end", str(raised(loop.close, pl.Error)), "finite")

    def stops():
        with pl.Loop(net(classes=2), **options) as loop:
            loop.train(bad)
            raise KeyError("mine")
    ok("an error of the program comes first", raised(stops, KeyError).args == ("mine",))


def ranks_are_processes_without_python_in_their_loop():
    program = f"""
import sys
import numpy as np
import paceline as pl                                       # a rank does its work here
print("only the program comes here")
@pl.module
def net(g, classes=None):
    h = g.linear("fc", g.input("x"), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
    g.log("acc", g.accuracy(h, g.input("y")))
rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
result = pl.fit(net, (x, (x.sum(1) > 0).astype(np.int64)), val_split=0.1, max_epochs=20, launcher="spawn", devices=2,
                optimizer=pl.adamw(lr=0.05), default_root_dir={folder!r}, progress=False,
                accelerator={{"name": "cpu", "threads": 1}})
print(result.status, result.metrics["val_acc"] > 0.9, result.weights["fc.weight"].shape)
"""
    Path(folder, "ranks.py").write_text(program)
    done = subprocess.run([sys.executable, f"{folder}/ranks.py"], capture_output=True, text=True, timeout=300)
    ok("two ranks of spawn train", done.stdout == "only the program comes here\nok True (2, 2)\n")
    if done.stderr:
        print("#", done.stderr.replace("\n", "\n# "))
    whole = program.replace("spawn", "script").replace('print("only', 'pl.rank() or print("only').replace(
        "print(result", "pl.rank() or print(result").replace("progress=False,", "progress=False, callbacks=[Log()],") \
        .replace("@pl.module", """class Log(pl.Callback):
    def on_train_epoch_end(self, event, request):
        request.log("halves", event.epoch / 2)
@pl.module""").replace("result.status,", "result.status, result.metrics['halves'],")
    Path(folder, "whole.py").write_text(whole)
    done = subprocess.run([sys.executable, f"{folder}/whole.py"], capture_output=True, text=True, timeout=120)
    ok("two ranks of script do, with callbacks",
       done.stdout == "only the program comes here\nok 9.5 True (2, 2)\n")
    if done.stderr:
        print("#", done.stdout + done.stderr.replace("\n", "\n# "))
    like("callbacks of Python are refused by spawn",
         str(raised(lambda: fit(launcher="spawn", devices=2, callbacks=[Watch()]), pl.Error)), "launcher=\"inline\"")


def each_rank_of_a_launched_program_sends_its_own_batches():
    program = f"""
import sys
sys.path.insert(0, {str(Path(pl.__file__).parent.parent)!r})
import numpy as np, paceline as pl
@pl.module
def net(g, classes=None):
    h = g.linear("fc", g.input("x"), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
rank = pl.rank()
x = np.random.default_rng(3).uniform(-1, 1, (40, 2)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
half = slice(20 * rank, 20 * rank + 20)
options = dict(optimizer=pl.adamw(lr=0.05), default_root_dir={folder!r}, accelerator={{"name": "cpu", "threads": 1}})
with pl.Loop(net(classes=2), batch_size=20, **options) as loop:
    losses = [loop.train((x[half], y[half])).wait().loss for _ in range(4)]
    gathered = loop.all_gather(np.array([[rank, 1.5]])).wait().data
    mean = loop.all_reduce(np.array([1.0, 2.0 * rank]), "mean").wait().data
    first = loop.broadcast(np.array([rank + 5]), root=1).wait().data
    loop.barrier().wait()
    loop.close()
fitted = pl.fit(net(classes=2), (x, y), batch_size=10, max_epochs=1, progress=False, **options)
seen = rank, np.round(losses, 4).tolist(), gathered.tolist(), mean.tolist(), first.tolist(), fitted.global_step
sys.stdout.write(repr(seen) + chr(10))                  # at once: the ranks share it
"""
    Path(folder, "each.py").write_text(program)
    launch = [command, "launch", "--max-restarts", "0", "--devices", "2", "--"]
    done = subprocess.run(launch + [sys.executable, f"{folder}/each.py"], capture_output=True, text=True, timeout=300)
    lines = sorted(eval(line.split("] ")[-1]) for line in done.stdout.splitlines() if "(" in line)
    if len(lines) != 2:
        ok("two ranks", False)
        print("#", (done.stdout + done.stderr).replace("\n", "\n# "))
        return
    ok("all ranks see the loss of all", lines[0][1] == lines[1][1] and lines[0][1][3] < lines[0][1][0])
    ok("arrays are gathered in the order of ranks", lines[0][2] == [[[0, 1.5]], [[1, 1.5]]] == lines[1][2])
    ok("reduced", lines[0][3] == [1, 1] == lines[1][3])
    ok("and broadcast", lines[0][4] == [6] == lines[1][4])
    ok("a fit is one of both ranks, too", lines[0][5] == 2 == lines[1][5])


def schedules_consist_of_schedules():
    rate = pl.sequential(schedules=[pl.ramp(), pl.chained(schedules=[pl.cosine(), pl.linear()])], milestones=[5])
    options = {"batch_size": 32, "max_epochs": 1, "log_every_n_steps": 1, **common}
    result = pl.fit(net, (x, y), optimizer=pl.sgd(lr=0.1, momentum=0.8, weight_decay=0.1), scheduler=rate,
                    momentum_scheduler=pl.ramp(start_factor=0.5, length=4),
                    weight_decay_scheduler=pl.ramp(start_factor=1, end_factor=0, length=1), **options)
    log = Path(result.run_dir, "metrics.jsonl").read_text()
    like("rate, momentum and weight decay follow schedules", log, '"momentum-sgd":0.8', '"weight_decay-sgd":0')
    like("an optimizer without the value is an exception", str(raised(lambda: pl.fit(
        net, (x, y), optimizer=pl.adagrad(), momentum_scheduler=pl.ramp(), **options), pl.Error)), "has no momentum")


def components_have_docstrings():
    like("with their options", pl.adamw.__doc__, "optimizer adamw", "lr [", "weight_decay")
    ok("and are listed", {"adamw", "cosine", "early_stopping"} <= set(dir(pl)))


structs_equal_the_header()
every_graph_function_is_a_method()
a_module_is_a_record_of_calls()
nodes_have_shapes_and_operators()
mistakes_are_exceptions_at_their_line()
first_run = the_example_trains_and_predicts()
it_is_the_module_of_c(first_run)
parameters_may_serve_training_alone()
stages_can_differ()
computing_again_changes_nothing()
data_come_in_many_forms()
callbacks_and_progress()
errors_say_what_to_do()
ctrl_c_stops_at_a_step()
a_run_is_awaited()
a_run_resumes_and_weights_go_in(first_run)
the_library_reads_data_and_writes_text()
a_program_drives_its_own_loop()
tasks_wait_for_one_loop_together()
a_loop_equals_a_run_and_resumes()
a_program_takes_the_steps_itself()
callbacks_of_a_loop_act_after_steps()
a_step_that_fails_is_reported()
ranks_are_processes_without_python_in_their_loop()
each_rank_of_a_launched_program_sends_its_own_batches()
schedules_consist_of_schedules()
components_have_docstrings()
finish()
