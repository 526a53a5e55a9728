"""engine.py - engines of the library: threads that wait for their notifications, and their end

An engine has threads and descriptors, and its threads compute with libraries that do not outlive the interpreter. So
it ends at the latest with the program: when it is closed, when the object that has it is dropped, or at exit.
"""
from __future__ import annotations

import _thread
import asyncio
import atexit
import os
import select
import threading
import weakref
from contextlib import contextmanager
from ctypes import c_void_p
from typing import Any, Callable, Generator, Iterator, List, Optional, Sequence, Set, Tuple

from .library import Error, call, lib

_held: Set["_Held"] = set()                                 # engines that are not freed
_is_exiting = False


class _Held:
    """A pl_engine_t, and what its threads use until it is freed. No object that a program drops belongs to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()                       # C takes one thread at a time
        self.uses: List[Any] = []
        self.give_back: List[Callable[[], Any]] = []        # after the engine
        self._freeing, self._process = threading.RLock(), os.getpid()
        self.pointer: Any = c_void_p(call(lib.pl_engine_new, None))
        _held.add(self)

    def free(self) -> None:
        """Ends the engine's runs and returns when it is freed, on any thread and once; not from a notification."""
        if self._process != os.getpid():                    # a fork has no threads of it
            return
        with self._freeing:
            with self.lock:
                pointer, self.pointer = self.pointer, None
            if not pointer:
                return
            try:
                lib.pl_engine_free(pointer)                 # without the lock: a hook that calls stop() must not wait
            finally:
                for give_back in self.give_back:
                    give_back()
                _held.discard(self)

    def drop(self) -> None:
        """Frees the engine on a thread of its own: the collector may run anywhere, also in a hook of the engine."""
        if not self.pointer or self._process != os.getpid():
            return
        try:
            if _is_exiting:
                raise RuntimeError
            _thread.start_new_thread(self.free, ())         # takes no lock of Python's, as threading does
        except RuntimeError:                                # the interpreter ends and starts no thread
            self.free()


@atexit.register
def _free_all() -> None:
    """Before the interpreter and the libraries that the engines compute with are taken down."""
    global _is_exiting
    _is_exiting = True
    for held in list(_held):
        held.free()


def weakly(method: Callable[..., Any], without: int = 0) -> Callable[..., Any]:
    """A method that C calls, which does not keep its object; without it the call does nothing and returns a number."""
    reference = weakref.WeakMethod(method)

    def called(*arguments: Any) -> Any:
        target = reference()
        return target(*arguments) if target else without
    return called


class Engine:
    """An engine whose notifications are delivered on the threads that wait for them, one at a time."""

    def __init__(self, hooks: Sequence[Any] = ()) -> None:
        """hooks: callbacks, whose methods the engine waits for."""
        self._held, self._hooks = _Held(), hooks
        self._waiting: List[Tuple["asyncio.AbstractEventLoop", "asyncio.Future[None]"]] = []
        self._turn, self._news = threading.Lock(), threading.Condition()
        self._notified: Optional[int] = None                # thread on which a notification is
        weakref.finalize(self, self._held.drop).atexit = False

    @property
    def is_open(self) -> bool:
        return self._held.pointer is not None

    def keep(self, *things: Any, give_back: Optional[Callable[[], Any]] = None) -> None:
        """Things that live as long as the engine; give_back is called after it."""
        self._held.uses += things
        if give_back:
            self._held.give_back.append(give_back)

    def close(self) -> None:
        self._held.free()
        self._wake()

    @contextmanager
    def used(self) -> Iterator[Any]:
        """The pointer, for one call of the library; None when the engine is closed."""
        with self._held.lock:
            yield self._held.pointer

    def _deliver(self, is_done: Callable[[], bool]) -> None:
        with self.used() as pointer:
            if is_done():
                return
            if not pointer:
                raise Error("PL_ESTATE", "the engine was closed while the program waited for it")
            self._notified = threading.get_ident()
            try:
                lib.pl_engine_dispatch(pointer)
            finally:
                self._notified = None
        self._wake()

    def _wake(self) -> None:
        """All that wait look again."""
        with self._news:
            self._news.notify_all()
        for loop, future in list(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda future=future: future.done() or future.set_result(None))

    def wait(self, is_done: Callable[[], bool], on_interrupt: Optional[Callable[[], None]] = None) -> None:
        """Delivers notifications until is_done(). on_interrupt takes the first Ctrl-C; any other is raised.

        Of several threads that wait one reads the descriptor, for all of them.
        """
        if threading.get_ident() in (self._notified, *(hook._hook_thread for hook in self._hooks)):
            raise Error("PL_ESTATE", "a function that a run calls cannot wait for that run: call stop(), and return")
        while not is_done():
            try:
                if self._turn.acquire(blocking=False):
                    try:
                        self._poll(1000)
                        self._deliver(is_done)
                    finally:
                        self._turn.release()
                else:
                    with self._news:
                        if not is_done():
                            self._news.wait(0.05)
            except KeyboardInterrupt:
                if not on_interrupt:
                    raise
                on_interrupt()
                on_interrupt = None

    def _poll(self, milliseconds: int) -> None:
        with self.used() as pointer:
            descriptor = lib.pl_engine_fd(pointer) if pointer else -1
        if descriptor >= 0:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(milliseconds)

    async def arrives(self, is_done: Callable[[], bool]) -> None:
        """The same in a loop of asyncio, where several tasks may wait at once."""
        loop = asyncio.get_running_loop()
        while not is_done():
            with self.used() as pointer:
                if not pointer:
                    raise Error("PL_ESTATE", "the engine was closed while the program waited for it")
                descriptor = lib.pl_engine_fd(pointer)
            if not any(each is loop for each, _ in self._waiting):      # one reader, for all that wait in the loop
                loop.add_reader(descriptor, self._deliver, lambda: not self.is_open)
            waiting = loop, loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting[1]
            finally:
                self._waiting.remove(waiting)
                if not any(each is loop for each, _ in self._waiting):
                    loop.remove_reader(descriptor)
