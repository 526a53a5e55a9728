#!/usr/bin/env python3
"""Writes the seeds of t/fuzz_tcp.c into the folder tcp/ beside this file."""
import os, struct

RAW, GREETING, FRAME, BEGIN, ENTERED, CLOSED, SHUT, GIVE_UP = range(8)
HELLO, ABORT, ENTER, GIVE, RESULT, FINISH = range(1, 7)
JOIN, LEND, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BARRIER = range(7)
SEGMENT = 128 << 10


def order(kind, rank=0, body=b""):
    return struct.pack("<BBB", kind, rank, len(body)) + body


def frame(rank, kind, length=0, at=0, number=0):
    return order(FRAME, rank, struct.pack("<IIQQ", kind, length, number, at))


def begin(move, count=0):
    return order(BEGIN, move, struct.pack("<I", count)) + order(ENTERED, 1) + order(ENTERED, 2)


met = order(GREETING, 1) + order(GREETING, 2)
lent = met + begin(LEND)
count = 100000
chunk = (count + 2) // 3 // 16 * 16 + 16
own = 4 * chunk


def segments(kind, rank, bytes=own):
    return b"".join(frame(rank, kind, min(SEGMENT, bytes - at), at // SEGMENT) for at in range(0, bytes, SEGMENT))


last = 4 * (count - 2 * chunk)
gives = segments(GIVE, 1) + segments(GIVE, 2)
results = segments(RESULT, 1) + segments(RESULT, 2, last)
tells = frame(1, RESULT) + frame(1, RESULT, at=1) + frame(2, RESULT) + frame(2, RESULT, at=1)
seeds = {
    "meet": b"\0" + met + begin(BARRIER) + begin(BARRIER),
    "few": b"\0" + lent + begin(ALL_REDUCE, 100) + begin(ALL_GATHER, 100) + begin(BROADCAST, 9) + begin(REDUCE_SCATTER, 7),
    "many": b"\0" + lent + begin(ALL_REDUCE, count) + gives + results + begin(BARRIER),
    "scatter": b"\0" + lent + begin(REDUCE_SCATTER, count) + gives + tells + begin(BARRIER),
    "gather": b"\0" + lent + begin(ALL_GATHER, count) + results + begin(BARRIER),
    "mate": b"\x04" + lent + begin(ALL_REDUCE, count) + segments(GIVE, 2) + segments(RESULT, 2, last) + frame(1, FINISH) + begin(BARRIER),
    "mates": b"\x02" + lent + begin(ALL_GATHER, count) + segments(RESULT, 1) + frame(2, FINISH) + begin(BARRIER),
    "abort": b"\0" + lent + order(BEGIN, BARRIER) + frame(2, ABORT, 10, 1) + begin(BARRIER),
    "lost": b"\0" + lent + begin(ALL_REDUCE, count) + segments(GIVE, 1) + order(CLOSED, 2),
    "shut": b"\0" + lent + order(SHUT, 1) + begin(BARRIER),
    "stranger": b"\0" + order(RAW, 0, b"plmesh01" + bytes(32)) + order(RAW, 0, struct.pack("<IIQQ", HELLO, 40, 0, 0)) + met + begin(BARRIER),
    "lies": b"\0" + lent + order(BEGIN, ALL_REDUCE, struct.pack("<I", count)) + frame(1, ENTER, 0xffffffff) + frame(2, GIVE, SEGMENT, 99),
    "early": b"\0" + lent + frame(1, ENTER, 40, number=1) + frame(2, GIVE, 4) + begin(ALL_REDUCE, 5000),
    "deaf": b"\x80" + lent + order(BEGIN, ALL_GATHER, struct.pack("<I", 200000)) + order(ENTERED, 1) + order(GIVE_UP),
    "give_up": b"\0" + lent + begin(ALL_REDUCE, count) + order(GIVE_UP),
}
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tcp")
os.makedirs(folder, exist_ok=True)
for name, data in seeds.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
