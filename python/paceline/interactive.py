"""interactive.py - a person at a terminal or in a notebook: progress as one line, interrupts, names of cells

What a notebook is asked for, its kernel has loaded: no package of Jupyter is needed.
"""
from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Type

from .library import Error, lib

_UPDATE_SECONDS = 0.1                                       # between updates in a notebook


def is_notebook() -> bool:
    return "ipykernel" in sys.modules


def place_of(path: str, line: int) -> str:
    """A line of the user's program: "net.py:12", or "In[8]:12" of a cell."""
    try:
        cell = sys.modules["IPython"].get_ipython().compile.format_code_name(path)
    except (KeyError, AttributeError):                      # no notebook, or an old one
        cell = None
    return f"{cell[1] if cell else Path(path).name}:{line}"


def restarts_not(launcher: str) -> None:
    """Refuses a launcher that starts the program again where a person types it."""
    if is_notebook() or hasattr(sys, "ps1"):
        raise Error("PL_EUNSUPPORTED", f"launcher=\"{launcher}\" starts this program again for each rank, and what is "
                                       "typed into a notebook or an interpreter is no program: write it to a file, or use "
                                       "launcher=\"inline\"")


@contextmanager
def interrupts_stop(stop: Callable[[str], None], is_done: Callable[[], bool]) -> Iterator[None]:
    """The first interrupt of a notebook's kernel ends a run that a cell awaits; otherwise it cancels the cell, and the
    result would be lost."""
    if not is_notebook() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before, is_stopped = signal.getsignal(signal.SIGINT), False

    def interrupted(*arguments: Any) -> None:
        nonlocal is_stopped
        is_first = not is_stopped and not is_done()
        is_stopped = True
        if is_first:
            stop("Ctrl-C")
        if callable(before) and (not is_first or hasattr(before, "stops_run")):     # also the cell's other runs
            before(*arguments)
    interrupted.stops_run = True                            # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, before)


class ProgressLine:
    """Progress of a run as one line: rewritten on a terminal, updated in a notebook."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._is_notebook = is_notebook()
        self._shown, self._late = 0.0, ""                   # late: the newest line, if it is not shown

    @classmethod
    def if_seen(cls) -> Optional[Type["ProgressLine"]]:
        is_seen = is_notebook() or (sys.stderr and sys.stderr.isatty())
        return cls if is_seen and lib.pl_rank() == 0 else None

    def __call__(self, report: Mapping[str, Any]) -> None:
        total = f"/{report['batches']}" if report["batches"] else ""
        stage = {"validate": "validation ", "validated": "validation "}.get(report["event"], "")
        names = sorted((name for name, value in report.items() if isinstance(value, float)), key=self._rank)
        values = "  ".join(f"{name} {report[name]:.4g}" for name in names)
        line = f"epoch {report['epoch'] + 1}  {stage}batch {report['batch']}{total}  step {report['step']}  {values}"
        if not self._is_notebook:
            self._write(line, "\n" * (report["event"] == "epoch"))
        elif time.monotonic() - self._shown >= _UPDATE_SECONDS:
            self._display(line)
        else:
            self._late = line

    @staticmethod
    def _rank(name: str) -> int:
        """The order of metrics, because a narrow terminal cuts the last ones."""
        first = 0 if name.startswith("val_") else 1 if name.startswith("train_") else 2
        return 3 if name in ("grad_norm", "lr") or name.startswith("lr") else first

    @staticmethod
    def _write(line: str, end: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + line[:width].ljust(width) + end)
        sys.stderr.flush()

    def _display(self, line: str) -> None:
        from IPython.display import display                 # type: ignore[import-not-found]
        self._shown, self._late = time.monotonic(), ""
        if self._handle is None:
            self._handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": line}, raw=True)

    def end(self) -> None:
        if not self._is_notebook:
            sys.stderr.write("\r")
        elif self._late:
            self._display(self._late)
