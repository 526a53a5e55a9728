#!/usr/bin/env python3
"""Writes the seeds of t/fuzz_shm.c into the folder shm/ beside this file."""
import os, struct

RAW, GREETING, NEW_MEMORY, BEGIN, ENTERED, FINISHED, CLOSED, DESCRIPTOR, ABORT = range(9)
JOIN, ALLOC_BUFFER, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BARRIER = range(7)
HELLO, STOP, RING, MEMORY = range(1, 5)


def order(kind, rank=0, body=b""):
    return struct.pack("<BBB", kind, rank, len(body)) + body


def frame(kind, length=0, number=0, at=65536):
    return struct.pack("<IIQQ", kind, length, number, at)


def begin(move, count=0):
    return order(BEGIN, move, struct.pack("<I", count)) + order(ENTERED, 1) + order(ENTERED, 2)


def both(kind):
    return order(kind, 1) + order(kind, 2)


def lies(rank, how):
    return rank + 3 * how


joined = both(GREETING)
with_buffers = joined + order(BEGIN, ALLOC_BUFFER) + both(NEW_MEMORY) + both(ENTERED)
seeds = {
    "meet": joined + begin(BARRIER) + begin(BARRIER),
    "few": with_buffers + begin(ALL_REDUCE, 100) + begin(ALL_GATHER, 100) + begin(BROADCAST, 9) + begin(REDUCE_SCATTER, 7),
    "many": with_buffers + begin(ALL_REDUCE, 9000) + both(FINISHED) + begin(ALL_GATHER, 9000) + both(FINISHED) + begin(BARRIER),
    "broadcast": with_buffers + begin(BROADCAST, 9000) + both(FINISHED) + begin(REDUCE_SCATTER, 9000) + both(FINISHED),
    "early": joined + order(NEW_MEMORY, 1) + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, 2) + both(ENTERED) + begin(ALL_REDUCE, 9000) + both(FINISHED),
    "half": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, lies(1, 1)) + order(NEW_MEMORY, 2) + both(ENTERED),
    "unsealed": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, lies(1, 2)) + order(NEW_MEMORY, 2) + both(ENTERED),
    "other": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, lies(1, 4)) + order(NEW_MEMORY, 2) + both(ENTERED),
    "nothing": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, lies(1, 8)) + order(NEW_MEMORY, 2) + both(ENTERED),
    "small": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, 1, struct.pack("<Q", 4096)) + order(NEW_MEMORY, 2) + both(ENTERED) + begin(ALL_REDUCE, 9000),
    "huge": joined + order(BEGIN, ALLOC_BUFFER) + order(NEW_MEMORY, 1, struct.pack("<Q", 1 << 60)) + order(NEW_MEMORY, 2) + both(ENTERED),
    "hello": order(GREETING, lies(1, 1)) + order(GREETING, lies(2, 2)) + joined + begin(BARRIER),
    "descriptor": with_buffers + order(BEGIN, ALL_REDUCE, struct.pack("<I", 9000)) + order(ENTERED, 1) + order(DESCRIPTOR, 1, bytes(40)) + order(ENTERED, 2),
    "raw": joined + order(RAW, 0, b"plmesh01" + bytes(32)) + order(RAW, 0, frame(HELLO, 40)) + order(RAW, 1, frame(RING, 1)) + begin(BARRIER),
    "split": joined + order(BEGIN, ALLOC_BUFFER) + order(RAW, lies(1, 1), frame(MEMORY)[:7]) + order(RAW, 1, frame(MEMORY)[7:]) + both(ENTERED),
    "stray": joined + order(RAW, lies(1, 1), frame(RING)) + order(RAW, lies(2, 2), frame(RING)) + begin(BARRIER),
    "many_strays": order(RAW, lies(0, 1), b"plmesh01" + bytes(32)) + joined + order(RAW, lies(1, 1), frame(RING)[:3]) + order(RAW, lies(1, 1), frame(RING)[3:]) + order(RAW, lies(2, 3), frame(RING)) + begin(BARRIER),
    "told": with_buffers + order(RAW, 1, frame(STOP, 4, at=1) + b"why?") + begin(BARRIER),
    "gone": with_buffers + order(BEGIN, ALL_REDUCE, struct.pack("<I", 9000)) + order(ENTERED, 1) + order(CLOSED, 2),
    "abort": with_buffers + order(BEGIN, BARRIER) + order(ABORT),
}
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shm")
os.makedirs(folder, exist_ok=True)
for name, data in seeds.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
