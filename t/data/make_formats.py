#!/usr/bin/env python3
"""make_formats.py - files that Python's own libraries write, for t/arrays.c, t/safetensors.c and the fuzz seeds

Needs numpy and safetensors; run it where it lies.  What it writes is kept beside it and in ../corpus.
"""
import pathlib
import struct

import numpy as np
from numpy.lib import format as npy
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent
corpus = here.parent / "corpus"


def write_npy(path, array, version=None):
    with open(path, "wb") as file:
        npy.write_array(file, array, version=version)


floats = np.array([[1.5, -2, 0], [3e38, 1e-40, -0.0]], dtype="<f4")
write_npy(here / "numpy.npy", floats)
write_npy(here / "numpy_v3.npy", np.array([-1, 2**62, 0, 7], dtype="<i8"), version=(3, 0))
np.savez(here / "numpy.npz", x=floats, labels=np.array([3, 1], dtype="<i8"))
np.savez_compressed(here / "numpy_packed.npz", x=floats, zeros=np.zeros(500, dtype="u1"))
points = np.random.default_rng(3).normal(size=(100, 2)).astype("<f4")
np.savez_compressed(here / "shapes.npz", x=points, y=(points[:, 0] > points[:, 1]).astype("u1"))
save_file({"weight": floats, "bias": np.array([1, 2, 3], dtype="<i8"), "empty": np.zeros((0, 4), "<f8"),
           "half": np.array([1, 2], dtype="<f2"), "flag": np.array([7], dtype="u1")},
          here / "python.safetensors", metadata={"format": "np", "made by": "tést \"quoted\"\n"})

for kind in ("npy", "safetensors", "idx", "csv"):
    (corpus / kind).mkdir(parents=True, exist_ok=True)
write_npy(corpus / "npy" / "f4.npy", floats)
np.savez_compressed(corpus / "npy" / "packed.npz", x=floats)
write_npy(corpus / "npy" / "f8_v2.npy", np.array(2.5), version=(2, 0))
write_npy(corpus / "npy" / "fortran.npy", np.asfortranarray(floats))
write_npy(corpus / "npy" / "records.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))
write_npy(corpus / "npy" / "u1.npy", np.arange(12, dtype="u1").reshape(1, 2, 1, 2, 3))
save_file({"a": floats, "b": np.array([1], dtype="u1")}, corpus / "safetensors" / "two.safetensors",
          metadata={"k": "v"})
save_file({"none": np.zeros((0,), "<f4")}, corpus / "safetensors" / "empty.safetensors")
(corpus / "idx" / "u8").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(range(8)))
(corpus / "idx" / "f32").write_bytes(struct.pack(">4BI3f", 0, 0, 13, 1, 3, 1.5, -2, 0))
(corpus / "idx" / "i32").write_bytes(struct.pack(">4B2I2i", 0, 0, 12, 2, 2, 1, -1, 1 << 30))
(corpus / "csv" / "plain.csv").write_bytes(b"1,2,3\n4.5,-6e2,0\n")
(corpus / "csv" / "quoted.csv").write_bytes(b'"a ""b""",c\r\n"1",2\r\n3, 4.25 \r\n\r\n')
(corpus / "csv" / "one.csv").write_bytes(b"\xef\xbb\xbf12345678901234567890e-30")
