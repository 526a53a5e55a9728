"""library.py - libpaceline, found and initialized, and its errors as exceptions"""
from __future__ import annotations

import ctypes
import json
import math
import os
import re
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import numpy as np

from . import _interface as interface

__all__ = ["Error", "call", "handle", "lib", "options_text", "text_of"]


class Error(Exception):
    """An error of Paceline.

    code: its name, "PL_EINVAL"; where: the actor that failed, or ""; the text says what is wrong and what to do.
    """

    def __init__(self, code: str, text: str, where: str = "") -> None:
        super().__init__(f"{where}: {text}" if where else text)
        self.code, self.where = code, where

    @classmethod
    def of(cls, err: Any) -> "Error":
        text = re.sub(r"^run:\d+:\d+: ", "", err.text.decode(errors="replace"))     # no person wrote that text
        text = re.sub(r"\bpl_(\w+)\(\)", _name_here, text)
        return cls(interface.ERRORS.get(err.code, "PL_E?"), text, err.where.decode())


def _name_here(name_in_c: Any) -> str:
    """A function by its name in Python: pl_cast() is g.cast(), pl_loop_step() is loop.step()."""
    name = name_in_c[1]
    if name.startswith("loop_"):
        return f"loop.{name[5:]}()"
    return f"g.{name}()" if hasattr(interface.Functions, name) else name_in_c[0]


def _load() -> ctypes.CDLL:
    """The library that PACELINE_LIBRARY names, the one of the wheel, or of the system."""
    bundled = Path(__file__).parent / "lib"
    given = os.environ.get("PACELINE_LIBRARY")
    if not given and (bundled / "order.txt").exists():
        os.environ.setdefault("PACELINE_PLUGIN_PATH", str(bundled / "plugins"))     # also for ranks
        for name in (bundled / "order.txt").read_text().split():
            loaded = ctypes.CDLL(str(bundled / name), mode=ctypes.RTLD_GLOBAL)
        for name in (bundled / "formats.txt").read_text().split():
            try:
                ctypes.CDLL(str(bundled / name))                # the engine opens it by its name, and finds it loaded
            except OSError:
                pass                                            # its data says so when it is read
        return loaded
    try:
        return ctypes.CDLL(given or "libpaceline.so.0", mode=ctypes.RTLD_GLOBAL)    # plug-ins use its symbols
    except OSError as error:
        raise ImportError(
            f"the library of Paceline cannot be loaded: {error}. Install the package libpaceline0, or install Paceline "
            "with \"pip install .\" from its tree, or set PACELINE_LIBRARY to the path of libpaceline.so.0, such as "
            "build/.libs/libpaceline.so.0 (and PACELINE_PLUGIN_PATH to the folder of its modules)") from error


lib = _load()
_missing = []
for _name, (_result, _arguments) in interface.FUNCTIONS.items():
    try:
        _function = getattr(lib, _name)
    except AttributeError:
        _missing.append(_name)
        continue
    _function.restype, _function.argtypes = _result, _arguments
if "pl_recorder_new" in _missing:
    raise ImportError(f"the library of Paceline is older than this package: it has no {_missing[0]}(). Update it, or "
                      "set PACELINE_LIBRARY to a newer libpaceline.so.0")


def call(function: Any, *arguments: Any) -> Any:
    """Calls a function whose last parameter is a pl_error_t, and raises its error."""
    err = interface.pl_error_t()
    result = function(*arguments, byref(err))
    if err.code:
        raise Error.of(err)
    return result


def text_of(address: Any) -> str:
    """The text of the library's memory at an address, which is freed; "" for none."""
    if not address:
        return ""
    text = ctypes.string_at(address).decode()
    lib.pl_text_free(address)
    return text


def _plain(value: Any, name: str) -> Any:
    """An option as JSON has it; name: where it stands, for errors."""
    if isinstance(value, Mapping):
        return {key: _plain(each, f"{name}.{key}") for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{name}[{k}]") for k, each in enumerate(value)]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist(), name)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}: a number of an option is finite")
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{name} is a {type(value).__name__}: an option is a number, a text, a component, or a list of these")


def options_text(run: Dict[str, Any], indent: Optional[int] = None) -> bytes:
    """A run as the text of its file. Numbers and arrays of NumPy and paths may be options."""
    calls = run.get("module", {}).get("calls")              # a record, which is plain
    plain = {section: _plain({key: each for key, each in value.items() if each is not calls}
                             if section == "module" else value, section) for section, value in run.items()}
    if calls:
        plain["module"]["calls"] = calls
    return json.dumps(plain, indent=indent).encode()


def handle(value: Any) -> bytes:
    """A Python value as JSON, for an argument of the library."""
    return json.dumps(value, allow_nan=False).encode()


# A launcher that starts processes starts this program again as a rank: pl_init() then works there, and never returns.
_words = [os.fsencode(word) for word in getattr(sys, "orig_argv", sys.argv) or ["python"]]
_vector = (c_char_p * (len(_words) + 1))(*_words, None)
call(lib.pl_init, byref(c_int(len(_words))), byref(ctypes.cast(_vector, POINTER(c_char_p))), c_void_p())
