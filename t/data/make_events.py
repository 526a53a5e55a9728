"""make_events.py - t/data/events.tfevents: records as TensorBoard's own protocol buffers have them

Needs tensorboard (made with 2.21) and numpy.  t/events.c writes the same and compares bytes.
"""
import os
import sys

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import metadata as hparams, plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

BINS = 64


def histogram(values):
    values = np.asarray(values, np.float32).astype(np.float64)
    least, greatest = values.min(), values.max()
    width = (greatest - least) / BINS
    limits = [least + width * (k + 1) for k in range(BINS - 1)] + [greatest]
    bins = [0.0] * BINS
    for x in values:
        at = (x - least) / width if width > 0 else 0
        bins[int(at) if at < BINS else BINS - 1] += 1
    return summary_pb2.HistogramProto(min=least, max=greatest, num=len(values), sum=sum(values),
                                      sum_squares=sum(values * values), bucket_limit=limits, bucket=bins)


def text(value):
    metadata = summary_pb2.SummaryMetadata()
    metadata.plugin_data.plugin_name = "text"
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[value.encode()],
                                    tensor_shape=tensor_shape_pb2.TensorShapeProto(
                                        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]))
    return {"tensor": tensor, "metadata": metadata}


def session(tag, **content):
    data = plugin_data_pb2.HParamsPluginData(**content)
    metadata = hparams.create_summary_metadata(data)
    metadata.plugin_data.content = data.SerializeToString(deterministic=True)       # maps in order of their keys
    return {"tag": tag, "tensor": hparams.NULL_TENSOR, "metadata": metadata}


def start(time, **options):
    info = plugin_data_pb2.SessionStartInfo(start_time_secs=time)
    for name, value in options.items():
        kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(info.hparams[name], kind, value)
    return info


def summary(*values):
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(**value) for value in values])


events = [
    event_pb2.Event(wall_time=1763690000.25, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=1763690000.5, step=51, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START)),
    event_pb2.Event(wall_time=1763690001, step=100, summary=summary(
        {"tag": "train_loss", "simple_value": 0.1}, {"tag": "epoch", "simple_value": 0.0},
        {"tag": "val_loss", "simple_value": float("nan")})),
    event_pb2.Event(wall_time=1763690002, summary=summary(dict(tag="notes/text_summary", **text("*é* is fine")))),
    event_pb2.Event(wall_time=1763690003, step=1 << 40, summary=summary(
        {"tag": "fc1.weight", "histo": histogram([0.5 * k * k - 3 * k for k in range(20)])})),
    event_pb2.Event(wall_time=1763690004, step=3, summary=summary({"tag": "one", "histo": histogram([2.5, 2.5])})),
    event_pb2.Event(wall_time=1763690005, summary=summary(session(
        "_hparams_/session_start_info", session_start_info=start(1763690005, lr=0.001, name="adamw", nesterov=False)))),
    event_pb2.Event(wall_time=1763690006, summary=summary(session(
        "_hparams_/session_end_info", session_end_info=plugin_data_pb2.SessionEndInfo(status=1, end_time_secs=1763690006)))),
]
path = os.path.join(os.path.dirname(sys.argv[0]), "events.tfevents")
with open(path, "wb") as out:
    writer = RecordWriter(out)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
print(os.path.getsize(path), "bytes")
