"""python_ends.py - tests of python/paceline/engine.py, for python.t: how runs, loops and engines end

    python_ends.py FOLDER
"""
import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np

folder = sys.argv[1]
import paceline as pl                                       # noqa: E402
from python_tap import finish, like, ok, raised             # noqa: E402

setup = f"""
import asyncio, gc, os, sys, threading
import numpy as np
import paceline as pl
x = np.random.default_rng(3).uniform(-1, 1, (600, 2)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
common = {{"default_root_dir": {folder!r}, "accelerator": {{"name": "cpu", "threads": 1}}, "progress": False}}
@pl.module
def net(g, classes=None):
    h = g.linear("fc2", g.relu(g.linear("fc1", g.input("x"), 64)), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))
def start(max_epochs=100000, **options):
    return pl.Trainer(net, max_epochs=max_epochs, **{{**common, **options}}).fit((x, y))
def loop(**options):
    return pl.Loop(net(classes=2), batch_size=600, **{{**common, **options}})
class Ending(pl.Callback):
    def __init__(self):
        self.seen = threading.Event()
    def on_fit_end(self, event, request):
        self.seen.set()
class Until(pl.Callback):                                   # a hook of a run under way
    def __init__(self):
        self.seen, self.event, self.request = threading.Event(), None, None
    def on_train_batch_end(self, event, request):
        self.event, self.request = event, request
        self.seen.set()
"""
exec(setup)


def held():
    """Descriptors and threads of the process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def returns_to(before):
    """Whether what was dropped is given back: engines end on threads of their own, within two minutes here."""
    over = threading.Event()
    for _ in range(1200):
        gc.collect()
        if held() <= before:
            return True
        over.wait(0.1)
    print(f"# {held()} and not {before}")
    return False


def runs_and_loops_that_are_dropped_end():
    start(max_epochs=1).wait()                              # what the process keeps
    before = held()
    run = start(max_epochs=1)
    run.wait()
    ok("a run that has ended holds nothing, while the program has it", held() <= before and run.wait().status == "ok")
    for _ in range(3):
        start()
    ok("a run that trains ends when it is dropped", returns_to(before))
    until = Until()
    run = start(callbacks=[until])
    until.seen.wait()
    del run
    ok("also in the middle of its steps", returns_to(before))
    ending = Ending()
    run = start(max_epochs=1, callbacks=[ending])
    ending.seen.wait()
    del run
    ok("and at its end, which the program did not wait for", returns_to(before))
    for waits in (False, True):
        manual = loop()
        answer = manual.train((x, y))
        if waits:
            answer.wait()
        del manual, answer
    ok("a loop ends without close()", returns_to(before))

    async def leaves():
        run = start()
        await asyncio.sleep(0)
        return run.history
    asyncio.run(leaves())
    ok("a run of asyncio ends with the coroutine that has it", returns_to(before))

    until = Until()
    until.run = start(callbacks=[until])
    lives = weakref.ref(until)
    del until
    ok("and one whose callback knows it", returns_to(before) and lives() is None)

    class Source:
        def __len__(self):
            return len(x)

        def __getitem__(self, k):
            return x[k], y[k]
    source = Source()
    source.run = pl.Trainer(net, max_epochs=100000, **common).fit(source)
    lives = weakref.ref(source)
    del source
    ok("and one whose data know it", returns_to(before) and lives() is None)

    class Drops(pl.Callback):
        mine = [None]

        def on_train_batch_end(self, event, request):
            self.mine.clear()
            gc.collect()
    Drops.mine[0] = start()
    result = start(max_epochs=1, callbacks=[Drops()]).wait()
    ok("a hook may drop a run", result.status == "ok" and returns_to(before))


def a_program_ends_with_runs_under_way():
    endings = {"at its end": "run = start(callbacks=[until]); until.seen.wait()",
               "at once": "run = start()",
               "that was dropped": "run = start(); del run",
               "of asyncio": "async def main():\n    run = start(); await asyncio.sleep(0.02)\nasyncio.run(main())",
               "in a thread": "run = start(callbacks=[until])\nthread = threading.Thread(target=run.wait, daemon=True)\n"
                              "thread.start(); until.seen.wait()",
               "of a loop": "one = loop(); one.train((x, y)); one.train((x, y)).wait(); one.train((x, y))",
               "with a model that computes": "run = start(max_epochs=1).wait()\n"
               "def serve():\n    while True: run.predict(x)\nthreading.Thread(target=serve, daemon=True).start()"}
    for where, program in endings.items():
        done = [subprocess.run([sys.executable, "-c", f"{setup}\nuntil = Until()\n{program}"], capture_output=True,
                               text=True, timeout=300) for _ in range(4)]
        statuses = [each.returncode for each in done]
        may_speak = where in ("in a thread", "with a model that computes")      # of an error in that thread
        if not ok(f"with status 0, a run {where}", statuses == [0] * 4 and (may_speak or not any(e.stderr for e in done))):
            print("#", statuses, *(each.stderr.replace("\n", "\n# ") for each in done))
    program = f"{setup}\nrun = start()\nraise RuntimeError('mine')"
    done = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300) for _ in range(4)]
    ok("an exception is its traceback alone, with status 1", all(
        each.returncode == 1 and each.stderr.startswith("Traceback") and each.stderr.endswith("\nRuntimeError: mine\n")
        and each.stderr.count("\n") <= 4 for each in done))
    program = f"{setup}\nrun = start()\nif not os.fork(): sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    if hasattr(os, "waitstatus_to_exitcode"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
        ok("a fork leaves the run to its parent", (done.returncode, done.stdout) == (0, "3\n"))


def in_threads(count, function):
    got = []

    def one(k):
        try:
            got.append(function(k))
        except BaseException as error:
            got.append(error)
    threads = [threading.Thread(target=one, args=(k,)) for k in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(300)
    return got


def several_threads_share_a_run_a_loop_and_a_model():
    run = start(max_epochs=20)
    got = in_threads(4, lambda k: run.wait().status)
    ok("all that wait have the result", got == ["ok"] * 4)
    run = start()
    got = in_threads(4, lambda k: run.wait().status if k else run.stop("enough") or "stopped")
    ok("another one may stop it", got == ["stopped"] * 4)
    with loop() as manual:
        manual.train((x, y)).wait()
        got = in_threads(4, lambda k: [manual.train((x, y)).wait().global_step for _ in range(20)])
    ok("each batch of a loop is trained on once", sorted(sum(got, [])) == list(range(2, 82)))
    result = start(max_epochs=2).wait()
    whole = result.predict(x)
    got = in_threads(4, lambda k: all(np.allclose(result.predict(x[:n]), whole[:n], atol=1e-5) for n in range(1 + k, 200, 4)))
    ok("each has the outputs of its own samples", got == [True] * 4)

    errors = []

    def progress(report):
        errors.append(raised(run.wait, pl.Error))
    run = start(max_epochs=1, progress=progress)
    run.wait()
    like("a function that the run calls cannot wait for it", str(errors[:1]), "cannot wait for that run", "stop()")

    class Waits(pl.Callback):
        def on_train_epoch_end(self, event, request):
            is_held.wait()
            errors.append(raised(held[0].wait, pl.Error))

    errors.clear()
    held, is_held = [], threading.Event()
    held.append(start(max_epochs=1, callbacks=[Waits()]))
    is_held.set()
    like("nor can a hook, which the run waits for", f"{held[0].wait().status} {errors[0]}", "ok ", "cannot wait for that run")

    async def both():
        run = start(max_epochs=20)
        thread = threading.Thread(target=run.wait)
        thread.start()
        results = await asyncio.gather(*(awaited(run) for _ in range(2)))
        thread.join()
        return results

    async def awaited(run):
        return (await run).status
    ok("tasks and threads may wait for one run", asyncio.run(both()) == ["ok"] * 2)


def what_is_over_cannot_be_used():
    manual = loop()
    for call in (lambda: manual.save("a"), lambda: manual.scale_lr(0.5), manual.step, lambda: manual.predict(x)):
        like("before the first batch", str(raised(call, pl.Error)), "first")
    manual.train((x, y)).wait()
    manual.close()
    calls = {"train": lambda: manual.train((x, y)), "predict": lambda: manual.predict(x), "step": manual.step,
             "gradients": manual.gradients, "set_gradients": lambda: manual.set_gradients({"fc1.bias": np.zeros(64)}),
             "save": lambda: manual.save("a"), "scale_lr": lambda: manual.scale_lr(0.5), "barrier": manual.barrier,
             "all_gather": lambda: manual.all_gather(x), "close": manual.close}
    for name, call in calls.items():
        like(f"{name}() of a loop that is closed", str(raised(call, pl.Error)), "the loop is closed")
    until = Until()
    start(max_epochs=1, callbacks=[until]).wait()
    for use in (lambda: until.request.log("a", 1), lambda: setattr(until.request, "stop", True), lambda: until.event.epoch):
        like("what a hook was lent", str(raised(use, pl.Error)), "after the hook has returned")


runs_and_loops_that_are_dropped_end()
a_program_ends_with_runs_under_way()
several_threads_share_a_run_a_loop_and_a_model()
what_is_over_cannot_be_used()
finish()
