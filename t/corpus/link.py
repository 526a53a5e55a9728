#!/usr/bin/env python3
"""Writes the seeds of t/fuzz_link.c into the folder link/ beside this file."""
import json, os, struct

JOIN, WELCOME, REFUSE, BEAT, MESSAGE, LEAVE, DISMISS = range(7)
TO_RANK, ORDER = 2, 4


def frame(kind, rank=0, sequence=0, received=0, sender=9, text="", to=0, identity=1, incarnation=2):
    head = b"PLLINK" + struct.pack("<BBQQIiQQII", 2, kind, 7, sender, incarnation, rank, sequence, received, 0, 0)
    body = head + text.encode()
    return struct.pack("<BBB", to, identity, len(body)) + body


def order(what):
    return struct.pack("<BBB", ORDER, what, 0)


said = json.dumps({"about": "n1", "world_size": 3, "traits": {"isa": "avx2"}})
join = frame(JOIN, text=said)
other = frame(JOIN, 1, sender=11, identity=2, text=said)
there = frame(WELCOME, sender=6, to=TO_RANK)
seeds = {
    "join": join + other,
    "messages": join + b"".join(frame(MESSAGE, sequence=n, text="x" * n) for n in range(1, 9)),
    "repeated": join + frame(MESSAGE, sequence=1) + frame(MESSAGE, sequence=1) + frame(MESSAGE, sequence=3),
    "again": join + order(0) + frame(BEAT, received=1) + frame(JOIN, received=1, identity=3, text=said),
    "leave": join + frame(MESSAGE, sequence=1) + frame(LEAVE, sequence=2) + join,
    "dismiss": join + order(1) + frame(BEAT, received=1) + frame(BEAT),
    "renew": join + order(18) + frame(MESSAGE, sequence=1) + order(3) + other,
    "rank": there + order(4) + frame(BEAT, sender=6, received=1, to=TO_RANK) + frame(MESSAGE, sender=6, sequence=1, to=TO_RANK),
    "dismissed": there + frame(DISMISS, sender=6, sequence=1, text="over", to=TO_RANK),
    "refused": frame(REFUSE, sender=5, text="no", to=TO_RANK),
    "traits": join + frame(JOIN, 1, sender=12, identity=4, text=said.replace("avx2", "sse2")),
    "odd": frame(JOIN, text='{"about": 1}') + frame(JOIN, 9, text=said) + frame(BEAT, identity=9, incarnation=1),
}
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "link")
os.makedirs(folder, exist_ok=True)
for name, data in seeds.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
