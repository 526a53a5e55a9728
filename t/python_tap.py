"""python_tap.py - TAP on standard output, for tests in Python"""
import sys

count = failures = 0


def ok(sentence, holds):
    global count, failures
    count, failures = count + 1, failures + (not holds)
    print(f"{'' if holds else 'not '}ok {count} - {sentence}", flush=True)
    return holds


def like(sentence, text, *parts):
    if not ok(sentence, all(part in text for part in parts)):
        print(f"# {text}")


def raised(function, kind=Exception):
    try:
        function()
    except kind as error:
        return error
    return AssertionError("nothing was raised")


def finish():
    print(f"1..{count}")
    sys.exit(failures > 0)
