"""python_inputs.py - tests of the package in python/, for python.t: what it is given is used as it is, or refused

    python_inputs.py FOLDER
"""
import json
import sys
import warnings
from pathlib import Path

import numpy as np

folder = sys.argv[1]
import paceline as pl                                       # noqa: E402
from python_tap import finish, like, ok, raised             # noqa: E402

rng = np.random.default_rng(3)
x = rng.uniform(-1, 1, (200, 2)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
common = {"default_root_dir": folder, "accelerator": {"name": "cpu", "threads": 1}, "progress": False, "max_epochs": 1}


@pl.module
def net(g, classes=None):
    h = g.linear("fc2", g.relu(g.linear("fc1", g.input("x"), 8)), classes)
    g.output("logits", h)
    g.loss(g.cross_entropy(h, g.input("y")))


def refused(sentence, kind, data, *parts, val=None, **options):
    like(sentence, str(raised(lambda: pl.fit(net, data, val, **{**common, **options}), kind)), *parts)


def a_missing_name_is_no_class():
    for missing in (float("nan"), None, np.nan):
        names = ["a" if each else missing for each in y]
        refused(f"{missing} in a list of texts", ValueError, (x, names), f"no value for {(y == 0).sum()} of 200")
    refused("in an iterator", ValueError, lambda: ((x[k], "a" if k < 100 else float("nan")) for k in range(200)),
            "sample 100: y is nan")
    names = ["a" if each else "nan" for each in y]
    ok("the text \"nan\" is a name", pl.fit(net, (x, names), **common).class_names == ["a", "nan"])
    refused("several texts a sample", TypeError, (x, [["a", "b"]] * 200), "[200, 2]", "one text for each sample")


def masked_values_are_not_trained_on():
    hidden = np.ma.masked_array(x, mask=x > 0.9)
    count = int((x > 0.9).sum())
    words = f"masked at {count} of 400 values", "filled(0)"
    refused("x", ValueError, (hidden, y), "x is", *words)
    refused("x alone, in val, and in a mapping", ValueError, (x, y), "x is", *words, val={"x": hidden, "y": y})
    refused("y", ValueError, (x, np.ma.masked_array(y, mask=y > 0)), "y is masked at")
    refused("rows", ValueError, (list(hidden), y), "x is", *words)
    refused("samples of an iterator", ValueError, lambda: ((hidden[k], int(y[k])) for k in range(200)), "x is masked")
    plain, masked = (pl.fit(net, (each, y), **common) for each in (x, np.ma.masked_array(x)))
    ok("a mask that hides nothing changes nothing", all((plain.weights[n] == masked.weights[n]).all() for n in plain.weights))


def samples_have_values():
    refused("no features", ValueError, (np.zeros((200, 0), np.float32), y), "x has no values: its shape is [200, 0]")
    refused("of an iterator", ValueError, lambda: ((x[k, :0], 1) for k in range(9)), "x has no values")


def texts_and_numbers_are_not_mixed():
    names = np.array(["b", "a"])[y]
    refused("numbers in val", ValueError, (x, names), "val: y has numbers", "pass the names", val=(x, y))
    refused("from an iterator", ValueError, lambda: ((x[k], names[k]) for k in range(200)), "val: y has numbers", val=(x, y))
    refused("texts in val", ValueError, (x, y), "val: y", val=lambda: ((x[k], names[k]) for k in range(200)))
    refused("in arrays too", ValueError, (x, y), "val: y has texts", val=(x, names))
    ends = [k for k in range(200) if y[k] == 0]             # of the class "b", whose number is 1 in training
    whole, part = (pl.fit(net, lambda: ((x[k], names[k]) for k in range(200)), val, **common) for val in (
        (x[ends], names[ends]), lambda: ((x[k], names[k]) for k in ends)))
    names_of_one = pl.fit(net, (x, names), (x[ends], names[ends]), shuffle=False, **common).metrics["val_loss"]
    ok("fewer classes in val keep their numbers", whole.metrics["val_loss"] == part.metrics["val_loss"] == names_of_one)
    ok("texts in both", pl.fit(net, (x, names), (x, names), **common).class_names == ["a", "b"])


def options_may_be_numbers_of_numpy():
    def made(**options):
        trainer = pl.Trainer(net, **{**common, **options})
        return json.loads(trainer.run_file((x, y)))
    run = made(optimizer=pl.adamw(lr=np.float64(.01), betas=np.array([0.8, 0.9])), max_epochs=np.int64(2),
               enable_checkpointing=np.bool_(False), default_root_dir=Path(folder))
    ok("in components and in the trainer", run["optimizer"] == {"name": "adamw", "lr": 0.01, "betas": [0.8, 0.9]}
       and run["trainer"]["max_epochs"] == 2 and run["trainer"]["enable_checkpointing"] is False)
    ok("and a path", run["trainer"]["default_root_dir"] == folder)
    result = pl.fit(net, (x, y), optimizer=pl.adamw(lr=np.float32(.01)), **{**common, "max_epochs": np.int64(2)},
                    batch_size=np.int32(50))
    ok("they train", result.global_step == 8)
    for value in (float("nan"), np.float32("inf")):
        like(f"{value} is refused by its name", str(raised(lambda: made(optimizer=pl.adamw(lr=value)), ValueError)),
             f"optimizer.lr is {value}")
    like("in a list", str(raised(lambda: made(callbacks=[pl.component("early_stopping", min_delta=-np.inf)]), ValueError)),
         "callbacks[0].min_delta is -inf")
    like("what is no option", str(raised(lambda: made(max_epochs=object()), TypeError)), "trainer.max_epochs is a object")
    refused("also by fit()", ValueError, (x, y), "trainer.gradient_clip_val is nan", gradient_clip_val=float("nan"))


def likely_slips_are_named():
    refused("a list of fields", TypeError, [x, y], "a list has samples", "(x, y)")
    refused("a path", TypeError, "points.csv", "pl.csv(path=")
    like("one callback without a list", str(raised(lambda: pl.fit(net, (x, y), callbacks=pl.Callback(), **common), TypeError)),
         "callbacks=[…]")
    refused("inputs and targets apart", ValueError, x, "data=(x, y)", val=y)
    refused("progress that is no function", TypeError, (x, y), "progress is 'yes'", progress="yes")
    like("an option without its name", str(raised(lambda: pl.csv("points.csv"), TypeError)), "csv()", "help(pl.csv)")
    refused("an iterator does not tell its classes", pl.Error, zip(x, y), "pl.stream(iterator, classes=")
    like("a function is named as in Python", str(raised(lambda: pl.fit(net(classes="two"), (x, y), **common), pl.Error)),
         "python_inputs.py:", ": linear: units takes a whole number, not \"two\"")
    for field in (("float", (2,)), ("float32", 2), (2,)):
        like(f"the field {field}", str(raised(lambda: net.save(f"{folder}/no.json", {"x": field}, {"classes": 2}), TypeError)),
             "the field x ", "float32")
    result = pl.fit(net(classes=None), (x, [("a", "b")[each] for each in y]), **common)
    ok("None is a number of the data, also where it is given", result.weights["fc2.weight"].shape[0] == 2)


def warnings_stand_at_the_line_of_the_program():
    result = pl.fit(net, (x, y), **common)
    for use in (lambda: result.predict(x.astype(np.float64)),
                lambda: pl.fit(net, (x.astype(np.float64), y), **common),
                lambda: pl.fit(net(classes=2), zip(x, y), batch_size=64, **common)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            use()
        ok(f"{seen[0].message if seen else 'none'}"[:40], [Path(each.filename).name for each in seen] == ["python_inputs.py"])


def what_comes_back_is_readable():
    trainer = pl.Trainer(net, **common)
    result = trainer.fit((x, y)).wait()
    outputs = trainer.predict(x, result.run_dir).wait()
    ok("a prediction shows its outputs", repr(outputs) == "<Result ok, outputs logits [200, 2]>")
    with pl.Loop(net(classes=2), **{**common, "max_epochs": -1}) as loop:
        answer = loop.train((x[:32], y[:32])).wait()
        like("an answer shows its loss, and a batch has 32 samples unless batch_size says more", repr(answer),
             f"<Answer at step 1: loss {answer.loss:.4g}>")
        ok("or none", repr(loop.barrier().wait()).startswith("<Answer at step ") and "nan" not in repr(loop.barrier().wait()))
        like("and not more", str(raised(lambda: loop.train((x, y)), pl.Error)), "1 to 32 samples")
        like("errors name calls as Python has them", str(raised(lambda: loop.gradients().wait(), pl.Error)),
             "loop.backward()", "loop.step()")
        like("a loop says whether it is open", repr(loop), "<Loop of <Module net(classes=2)>, 0 calls under way>")
    like("or closed", repr(loop), "closed>")
    ok("a model has the path of its weights", repr(result.model) == f"<Model of {result.best_checkpoint or result.run_dir}>")


def requests_of_hooks_take_what_they_have():
    class Enough(pl.Callback):
        def on_train_epoch_end(self, event, request):
            request.stop, request.reason = True, "good enough"

    class Misspelt(pl.Callback):
        def on_train_epoch_end(self, event, request):
            request.stopp = True
    result = pl.fit(net, (x, y), callbacks=[Enough()], **common)
    ok("a reason is a text", result.status == "stopped" and result.reason.endswith("good enough"))
    like("what there is not is an error", str(raised(lambda: pl.fit(net, (x, y), callbacks=[Misspelt()], **common),
                                                     AttributeError)), "no stopp", "stop, ")


def arrays_are_first_weights():
    first = {name: np.zeros_like(array) for name, array in pl.fit(net, (x, y), **common).weights.items()}
    options = {key: value for key, value in common.items() if key != "max_epochs"}
    with pl.Loop(net(classes=2), weights=first, batch_size=200, **options) as loop:
        loss = loop.evaluate((x, y)).wait().loss
        ok("a loop begins with them", abs(loss - np.log(2)) < 1e-6)
    like("a run file needs a file of them", str(raised(lambda: pl.Trainer(net, weights=first).run_file((x, y)), TypeError)),
         "pl.save_weights(path, arrays)")


a_missing_name_is_no_class()
masked_values_are_not_trained_on()
samples_have_values()
texts_and_numbers_are_not_mixed()
options_may_be_numbers_of_numpy()
likely_slips_are_named()
warnings_stand_at_the_line_of_the_program()
what_comes_back_is_readable()
requests_of_hooks_take_what_they_have()
arrays_are_first_weights()
finish()
