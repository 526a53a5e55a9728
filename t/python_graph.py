"""python_graph.py - tests of what graphs in Python have beside operators, for python.t: losses that are added, further
results, metrics of the program; and losses by their formulas

    python_graph.py FOLDER
"""
import itertools
import sys

import numpy as np

folder = sys.argv[1]
import paceline as pl                                       # noqa: E402
from python_tap import finish, like, ok, raised             # noqa: E402

rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (90, 4)).astype(np.float32)
y = rng.uniform(-1, 1, (90, 1)).astype(np.float32)
common = {"default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1}, "progress": False, "batch_size": 90}


def evaluated(function, data):
    """The answer of a loop to one batch, with the first weights."""
    with pl.Loop(pl.module(function), **common) as loop:
        return loop.evaluate(data).wait()                   # without gradients


def close(a, b, most=1e-5):
    return np.allclose(a, b, rtol=most, atol=most)


def in_graph(function):
    graph = pl.Graph({"x": ("float32", (4,)), "y": ("float32", (1,))})
    try:
        return function(graph, g_losses(graph))
    finally:
        graph.close()


def g_losses(g):
    h = g.linear("fc", g.input("x"), 1)
    return g.mse(h, g.input("y")), g.l1(h, g.input("y"))


def losses_are_added():
    def both(g):
        a, b = g_losses(g)
        g.loss(a + 0.1 * b)
        for name, metric in (("a", a), ("b", b), ("less", a - b / 2), ("all", sum([a, b, -2 * b])), ("half", 0.5 * a)):
            g.log(name, metric)
    answer = evaluated(both, (x, y))
    a, b = answer.metrics["val_a"], answer.metrics["val_b"]
    ok("with factors", close(answer.loss, a + 0.1 * b) and a != b)
    ok("also differences, sums of lists and parts",
       close([answer.metrics[f"val_{name}"] for name in ("less", "all", "half")], [a - b / 2, a - b, a / 2]))

    @pl.module
    def module(g):
        a, b = g_losses(g)
        g.output("h", g.input("x"))
        g.loss(a + 0.5 * b)
    losses = [row["train_loss"] for row in pl.fit(module, (x, y), max_epochs=9, **common).history]
    ok("they train", losses == sorted(losses, reverse=True))
    like("a number is no loss", str(in_graph(lambda g, two: raised(lambda: two[0] + 1, TypeError))), "g.pair(sum, weight)")
    like("nor is a node a factor", str(in_graph(lambda g, two: raised(lambda: two[0] * g.input("y"), TypeError))),
         "multiply the values of the samples")
    like("metrics of another kind have no sum", str(in_graph(lambda g, two: raised(
        lambda: two[0] + g.r2(g.input("y"), g.input("y")), pl.Error))), "add_losses takes losses")

    def twice(g, two):
        g.loss(two[0])
        return raised(lambda: g.loss(two[1]), TypeError)
    like("a second loss is to be added", str(in_graph(twice)), "was declared at python_graph.py:", "g.loss(a + b)")


def recurrent_layers_have_last_states():
    steps = rng.uniform(-1, 1, (5, 7, 3)).astype(np.float32)

    @pl.module
    def module(g):
        out, h, c = g.lstm("rnn", g.input("x"), 2, results=True)
        g.output("out", out)
        g.output("h", h.permute(1, 0, 2))
        g.output("c", c.permute(1, 0, 2))
        again, last = g.gru("gru", g.input("x"), 2, layers=2, results=True)
        g.output("again", again)
        g.output("last", last.permute(1, 0, 2))
        g.loss(g.mse(g.linear("fc", c[0], 1), g.input("y")))
    result = pl.fit(module, (steps, y[:5]), max_epochs=1, **common)
    said, w = result.predict(steps), {name: array.astype(np.float64) for name, array in result.weights.items()}
    h = c = np.zeros((5, 2))
    for t in range(7):
        gates = steps[:, t] @ w["rnn.weight_ih_l0"].T + w["rnn.bias_ih_l0"] + h @ w["rnn.weight_hh_l0"].T + w["rnn.bias_hh_l0"]
        i, f, o = (1 / (1 + np.exp(-gates[:, k:k + 2])) for k in (0, 2, 6))
        c = f * c + i * np.tanh(gates[:, 4:6])
        h = o * np.tanh(c)
    ok("h_n and c_n of an LSTM", close(said["h"][:, 0], h) and close(said["c"][:, 0], c))
    ok("h_n is the last of its results", (said["h"][:, 0] == said["out"][:, -1]).all())
    ok("a GRU has one of each layer", said["last"].shape == (5, 2, 2) and
       (said["last"][:, 1] == said["again"][:, -1]).all())


def operators_have_further_results():
    @pl.module
    def module(g):
        values, places = g.sort(g.input("x"), 1, results=True)
        best, at = g.top_k(g.input("x"), 2, 1, results=True)
        for name, node in (("values", values), ("places", places), ("best", best), ("at", at)):
            g.output(name, g.cast(node, "f32") if name in ("places", "at") else node)
        g.loss(g.mse(g.linear("fc", values, 1), g.input("y")))
    said = pl.fit(module, (x, y), max_epochs=1, **common).predict(x)
    order = np.argsort(x, 1, kind="stable")
    ok("a sort has the places", (said["places"] == order).all() and (said["values"] == np.sort(x, 1)).all())
    ok("so have the largest", (said["at"] == order[:, :1:-1]).all())
    ok("without asking there is one", in_graph(lambda g, _: isinstance(g.sort(g.input("x"), 1), pl.Node)))


@pl.metric
def worst(errors):
    return errors.max()


@pl.metric
def median_of_hits(errors, targets):
    return np.median(errors[targets[:, 0] > 0])


@pl.metric
def root(total, count):
    return (total / count)[0] ** 0.5


@pl.metric
def broken(errors):
    raise KeyError("mine")


@pl.metric
def array_alone(errors):
    return errors


def measured_by(metric):
    def module(g):
        h = g.linear("fc", g.input("x"), 1)
        g.loss(g.mse(h, g.input("y")))
        g.log("it", g.custom_metric(metric, [(g.flatten(h, 0), "gather")]))
    return pl.module(module)


@pl.module
def measured(g):
    h = g.linear("fc", g.input("x"), 1)
    e = g.abs(g.flatten(h - g.input("y"), 0))
    g.output("h", h)
    g.loss(g.mse(h, g.input("y")))
    g.log("worst", g.custom_metric(worst, [(g.max(e, 0), "max")]))
    g.log("median", g.custom_metric(median_of_hits, [(e, "gather"), (g.concat([g.input("y"), g.input("y")], 1), "gather")]))
    g.log("root", g.custom_metric(root, [(g.sum(g.square(e)), "sum"), (g.sum(e * 0 + 1), "sum")]))


def metrics_are_functions_of_states():
    for devices in (1, 2):
        result = pl.fit(measured, (x, y), (x, y), max_epochs=1, devices=devices, **{**common, "batch_size": 16})
        errors = np.abs(result.predict(x) - y)[:, 0]
        want = {"worst": errors.max(), "median": np.median(errors[y[:, 0] > 0]), "root": (errors ** 2).mean() ** 0.5}
        ok(f"of all batches and of {devices} ranks",
           all(close(result.metrics[f"val_{name}"], value) for name, value in want.items()))

    def fails(g):
        g_losses(g)
        g.output("h", g.input("x"))
        g.loss(g_losses_again(g))
        g.log("no", g.custom_metric(broken, [(g.sum(g.input("x")), "sum")]))
    error = raised(lambda: pl.fit(pl.module(fails), (x, y), (x, y), max_epochs=1, **common), pl.Error)
    like("an error in one ends the run", str(error), "python_graph.py:", "broken", "KeyError", "mine")
    wrong = raised(lambda: pl.fit(measured_by(array_alone), (x, y), (x, y), max_epochs=1, **common), pl.Error)
    like("an array is no value of one, which is said at its function", str(wrong),
         f"python_graph.py:{array_alone.function.__code__.co_firstlineno}: metric array-alone: TypeError")
    apart = raised(lambda: pl.fit(measured, (x, y), max_epochs=1, devices=2, launcher="spawn", **common), pl.Error)
    like("ranks of spawn have none of the program", str(apart), "median-of-hits", "spawn", "launcher=\"script\"")
    like("a function has to be a metric", str(in_graph(lambda g, _: raised(
        lambda: g.custom_metric(lambda e: 0, [(g.input("x"), "sum")]), TypeError))), "@pl.metric")
    like("a state has a way to combine", str(in_graph(lambda g, _: raised(
        lambda: g.custom_metric(worst, [(g.input("x"), "mean")]), pl.Error))), "states takes states")


def g_losses_again(g):
    return g.mse(g.linear("other", g.input("x"), 1), g.input("y"))


def arrays_are_constants():
    ids = np.array([16777216, 16777217, 3])
    mask = np.where(np.arange(100) % 2, -np.inf, np.arange(100.0)).reshape(25, 4)

    def module(g):
        x = g.input("x")
        g.output("taken", g.take(x, 1, np.array([3, 3, 0])))
        g.output("times", x * np.arange(4))
        g.output("masked", g.reshape(x, (-1, 1, 4)) + mask)
        g.output("same", g.cast(g.equal(g.input("id"), np.array(16777217)), "f32"))
        g.output("joined", g.concat([x, x * 0 + np.ones(4)], 1))
        g.loss(g.mse(g.linear("fc", x, 1), g.linear("other", x, 1)))
    with pl.Loop(pl.module(module), **common) as loop:
        data = {"x": x[:3], "id": ids}
        loop.evaluate(data).wait()
        outputs = loop.predict(data).wait().outputs
    ok("indices are whole numbers", np.array_equal(outputs["taken"], x[:3][:, [3, 3, 0]]))
    ok("whole numbers are factors of floats", close(outputs["times"], x[:3] * np.arange(4)))
    ok("many elements arrive, also infinite ones", np.array_equal(outputs["masked"], x[:3, None] + mask.astype(np.float32)))
    ok("comparisons are exact", outputs["same"].tolist() == [0, 1, 0])
    ok("lists take them", close(outputs["joined"], np.concatenate([x[:3], np.ones((3, 4))], 1)))
    like("a large one belongs into a file", str(in_graph(lambda g, _: raised(
        lambda: g.input("x") + np.zeros((1 << 20, 4)), ValueError))), "array of 16 MiB is no constant: write it to a file")


def functions_of_numpy_are_those_of_the_graph():
    def module(g):
        x = g.input("x")
        g.output("exp", np.exp(x))
        g.output("log", np.log(np.exp(x)))
        g.output("and", g.cast(np.ones(4) & (x > 0), "f32"))
        g.output("power", np.power(x, np.array(2.0)))
        g.output("from", np.ones(4) - x)
        g.output("times", np.float64(3) * np.arange(4) * x)
        g.output("half", np.float32(0.5) * x)
        g.loss(g.mse(g.linear("fc", x, 1), g.linear("other", x, 1)))
    with pl.Loop(pl.module(module), **common) as loop:
        loop.evaluate({"x": x[:3]}).wait()
        outputs = loop.predict({"x": x[:3]}).wait().outputs
    wanted = {"exp": np.exp(x[:3]), "log": x[:3], "and": x[:3] > 0, "power": x[:3] ** 2, "from": 1 - x[:3], "times": 3 * np.arange(4) * x[:3],
              "half": x[:3] / 2}
    ok("of one node and of an array and a node", all(close(outputs[name], array) for name, array in wanted.items()))
    for what, function in (("others", np.sinc), ("sorting", np.sort), ("arrays", np.asarray)):
        like(f"{what} say that they cannot", str(in_graph(lambda g, _: raised(
            lambda: function(g.input("x")), TypeError))), "the graph")
    like("a layer without bias", str(in_graph(lambda g, _: raised(
        lambda: g.linear("no", g.input("x"), 1, bias=False), TypeError))), "python_graph.py:", "no_bias=True")
    if sys.version_info >= (3, 10):
        @pl.module
        def without(g):
            g.loss(g.mse(g.conv("c", g.input("x"), 8, bias=False), g.input("x")))
        like("an argument that a function does not have", str(raised(
            lambda: without.record({"x": ("float32", (3, 8))}), TypeError)), "python_graph.py:",
            "conv has no argument bias: a layer without one has no_bias=True; it has name, x, channels, kernel")
        ordered = pl.module(lambda g: g.loss(g.mse(g.conv("c", g.input("x"), 8, 3), g.input("x"))))
        like("too many in order", str(raised(lambda: ordered.record({"x": ("float32", (3, 8))}), TypeError)),
             "conv takes name, x, channels in order, and others by name: kernel=")
    like("a function that there is not", str(in_graph(lambda g, _: raised(lambda: g.maxpool2d(g.input("x")), AttributeError))),
         "there is no g.maxpool2d: did you mean g.max_pool2d")


def ctc_is_the_sum_over_all_alignments():
    logits = rng.uniform(-1, 1, (2, 4, 3)).astype(np.float32)
    targets = np.array([[1, 2], [2, 0]], np.int64)
    lengths = {"steps": np.array([4, 3], np.int64), "long": np.array([2, 1], np.int64)}

    def module(g):
        scale = g.param("scale", (1,), pl.constant(1))
        log_p = g.log_softmax(g.input("x") * scale, -1)
        g.output("p", log_p)
        g.loss(g.ctc(log_p, g.input("y"), g.input("steps"), g.input("long")))
    loss = evaluated(module, {"x": logits, "y": targets, **lengths}).loss
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    want = 0.0
    for k in range(2):
        total, target = 0.0, targets[k, :lengths["long"][k]].tolist()
        for path in itertools.product(range(3), repeat=int(lengths["steps"][k])):
            if [label for label, _ in itertools.groupby(path) if label] == target:
                total += np.prod([p[k, t, label] for t, label in enumerate(path)])
        want -= np.log(total) / len(target) / 2
    ok(f"it is {loss:.5f}", close(loss, want))


def info_nce_is_the_mean_of_two_cross_entropies():
    def module(g):
        scale = g.param("scale", (1,), pl.constant(1))
        g.loss(g.info_nce(g.input("x") * scale, g.input("y"), 0.1))
    a, b = x[:6], rng.uniform(-1, 1, (6, 4)).astype(np.float32)
    loss = evaluated(module, (a, b)).loss
    cosines = (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T / 0.1
    want = np.mean([np.log(np.exp(m).sum(1)) - np.diag(m) for m in (cosines, cosines.T)])
    ok(f"it is {loss:.5f}", close(loss, want))


losses_are_added()
recurrent_layers_have_last_states()
operators_have_further_results()
metrics_are_functions_of_states()
arrays_are_constants()
functions_of_numpy_are_those_of_the_graph()
ctc_is_the_sum_over_all_alignments()
info_nce_is_the_mean_of_two_cross_entropies()
finish()
