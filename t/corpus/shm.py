#!/usr/bin/env python3
"""Writes the seeds of t/fuzz_shm.c into the folder shm/ beside this file."""
import os, struct

RAW, GREETING, MEMORY, BEGIN, ENTERED, FINISHED, CLOSED, WANTS, GIVE_UP = range(9)
JOIN, LEND, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BARRIER = range(7)
MAGIC = 0x506c5331


def order(what, who=0, body=b""):
    return struct.pack("<BBB", what, who, len(body)) + body


def begin(move, count=0):
    return order(BEGIN, move, struct.pack("<I", count)) + order(ENTERED, 1) + order(ENTERED, 2)


def both(what):
    return order(what, 1) + order(what, 2)


def lies(rank, how):
    return rank + 3 * how


met = both(GREETING)
lent = met + order(BEGIN, LEND) + both(MEMORY) + both(ENTERED)
seeds = {
    "meet": met + begin(BARRIER) + begin(BARRIER),
    "few": lent + begin(ALL_REDUCE, 100) + begin(ALL_GATHER, 100) + begin(BROADCAST, 9) + begin(REDUCE_SCATTER, 7),
    "many": lent + begin(ALL_REDUCE, 9000) + both(FINISHED) + begin(ALL_GATHER, 9000) + both(FINISHED) + begin(BARRIER),
    "broadcast": lent + begin(BROADCAST, 9000) + both(FINISHED) + begin(REDUCE_SCATTER, 9000) + both(FINISHED),
    "early": met + order(MEMORY, 1) + order(BEGIN, LEND) + order(MEMORY, 2) + both(ENTERED) + begin(ALL_REDUCE, 9000) + both(FINISHED),
    "half": met + order(BEGIN, LEND) + order(MEMORY, lies(1, 1)) + order(MEMORY, 2) + both(ENTERED),
    "unsealed": met + order(BEGIN, LEND) + order(MEMORY, lies(1, 2)) + order(MEMORY, 2) + both(ENTERED),
    "other": met + order(BEGIN, LEND) + order(MEMORY, lies(1, 4)) + order(MEMORY, 2) + both(ENTERED),
    "nothing": met + order(BEGIN, LEND) + order(MEMORY, lies(1, 8)) + order(MEMORY, 2) + both(ENTERED),
    "small": met + order(BEGIN, LEND) + order(MEMORY, 1, struct.pack("<Q", 4096)) + order(MEMORY, 2) + both(ENTERED) + begin(ALL_REDUCE, 9000),
    "huge": met + order(BEGIN, LEND) + order(MEMORY, 1, struct.pack("<Q", 1 << 60)) + order(MEMORY, 2) + both(ENTERED),
    "hello": order(GREETING, lies(1, 1)) + order(GREETING, lies(2, 2)) + met + begin(BARRIER),
    "wants": lent + order(BEGIN, ALL_REDUCE, struct.pack("<I", 9000)) + order(ENTERED, 1) + order(WANTS, 1, bytes(40)) + order(ENTERED, 2),
    "raw": met + order(RAW, 0, struct.pack("<II", MAGIC, 1)) + order(RAW, 1, struct.pack("<II", MAGIC, 3)) + begin(BARRIER),
    "gone": lent + order(BEGIN, ALL_REDUCE, struct.pack("<I", 9000)) + order(ENTERED, 1) + order(CLOSED, 2),
    "give_up": lent + order(BEGIN, BARRIER) + order(GIVE_UP),
}
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shm")
os.makedirs(folder, exist_ok=True)
for name, data in seeds.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
