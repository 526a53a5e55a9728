"""python_notebook.py - tests of the package in a notebook, whose kernel is a stand-in: nothing of Jupyter is needed

usage: python_notebook.py FOLDER
"""
import asyncio
import os
import signal
import sys
import types

import numpy as np

import paceline as pl
from python_tap import finish, like, ok, raised

folder = sys.argv[1]
common = {"default_root_dir": folder, "batch_size": 64, "accelerator": {"name": "cpu", "threads": 1}}
x = np.random.default_rng(3).uniform(-1, 1, (640, 2)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
shown = []                                                  # the lines of each output


class Handle:
    def __init__(self, data):
        shown.append([data["text/plain"]])
        self._lines = shown[-1]

    def update(self, data, raw):
        self._lines.append(data["text/plain"])


def display(data, raw, display_id):
    return Handle(data)


def cell_of(path):
    return ("Cell", "In[4]") if path == "/tmp/ipykernel_7/123.py" else None


shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=cell_of))
for name, contents in {"ipykernel": {}, "IPython": {"get_ipython": lambda: shell},
                       "IPython.display": {"display": display}}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


@pl.module
def net(g, classes=None):
    h = g.linear("fc", g.input("x"), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))


def each_run_has_one_line_that_is_updated():
    trainer = pl.Trainer(net, max_epochs=50, **common)
    trainer.fit((x, y)).wait()
    trainer.fit((x, y)).wait()
    ok("two runs have two", len(shown) == 2)
    like("it ends with the last epoch", shown[-1][-1], "epoch 50", "batch 10/10", "train_loss")
    ok("without an update for each of many epochs", len(shown[-1]) < 50)


def an_interrupt_ends_a_run_that_a_cell_awaits():
    cancelled = []

    def of_the_kernel(*_):
        cancelled.append(True)

    def progress(report):
        if report["event"] == "epoch" and report["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    async def cell():
        trainer = pl.Trainer(net, max_epochs=100000, progress=progress, **common)
        first, second = await asyncio.gather(trainer.fit((x, y)), trainer.fit((x, y)))
        own = signal.getsignal(signal.SIGINT)
        own(signal.SIGINT, None)
        return first, second
    signal.signal(signal.SIGINT, of_the_kernel)
    results = asyncio.run(asyncio.wait_for(cell(), 60))
    ok("all its runs have results", [(each.status, each.reason) for each in results] == [("stopped", "Ctrl-C")] * 2)
    ok("later ones are the kernel's", cancelled)


def a_mistake_has_its_cell():
    cell = "def wrong(g):\n    x = g.input('x')\n    g.output('h', x @ x)\n"
    names = {}
    exec(compile(cell, "/tmp/ipykernel_7/123.py", "exec"), names)
    like("and its line", str(raised(lambda: pl.fit(pl.module(names["wrong"]), (x, y), **common), pl.Error)),
         "In[4]:3: matmul")
    error = str(raised(lambda: pl.fit(net, (x, y), max_epoch=5, **common), pl.Error))
    ok("an option has no place in a text that no one wrote", error.startswith("unknown key \"trainer.max_epoch\""))


def what_is_typed_cannot_be_started_again():
    for launcher in ("spawn", "script"):
        like(f"so {launcher} is refused", str(raised(lambda: pl.fit(net, (x, y), devices=2, launcher=launcher, **common),
                                                    pl.Error)), "write it to a file", "inline")


for test in (each_run_has_one_line_that_is_updated, an_interrupt_ends_a_run_that_a_cell_awaits, a_mistake_has_its_cell,
             what_is_typed_cannot_be_started_again):
    print(f"# {test.__name__}")
    test()
finish()
