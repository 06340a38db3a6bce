"""The workers of `flux-trio fuzz`, and the signals that end it: Ctrl-C and SIGTERM."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType

from flux_trio.jobtap import OwnProcess, own_process


@contextmanager
def workers_of(make: Callable[[], Executor]) -> Iterator[Executor]:
    """Let the executor that `make` returns work; SIGTERM raises KeyboardInterrupt meanwhile.

    Only the first SIGTERM does, and later ones are ignored for good, so that a report can be
    written: timeout(1) sends two, one to the process and one to its group. A terminal sends SIGINT
    to the workers as well. They do not take it: processes that are begun in `make` ignore it.
    """
    terminated = signal.signal(signal.SIGTERM, _terminate)
    try:
        with _without_interrupts():
            executor = make()
        with executor:
            yield executor
    finally:
        if signal.getsignal(signal.SIGTERM) == _terminate:
            signal.signal(signal.SIGTERM, terminated)


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether SIGINT or SIGTERM has come; a SIGINT after that interrupts.

    The world under way is played to its end, so that there is a plan to tell of.
    """
    noted: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        if noted and signum == signal.SIGINT:
            raise KeyboardInterrupt
        noted.append(signum)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(noted)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def processes(nworkers: int) -> Executor:
    """Return a pool of processes that import flux-trio anew: no state of this one is in them.

    They end when this process does, however it ends.
    """
    context = multiprocessing.get_context("spawn")
    pool = _Processes(nworkers, context, initializer=_begin)
    for _ in range(nworkers):
        pool.submit(int)  # now a process begins, unless an earlier one waits already
    return pool


class _Processes(ProcessPoolExecutor):
    """Drops at its end what no process has begun.

    Python's pool fails with InvalidStateError if others cancel its futures and a process is killed.
    """

    def __exit__(self, *_error: object) -> None:
        self.shutdown(cancel_futures=True)


@contextmanager
def new_process() -> Iterator[Executor]:
    """Yield a pool of one process that has played nothing yet."""
    with _without_interrupts():
        pool = processes(1)
    with pool:
        yield pool


@contextmanager
def _without_interrupts() -> Iterator[None]:
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupted)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("flux_trio.lab")
    own_process.set(OwnProcess())  # a plugin that does not return ends the worker
    gc.freeze()  # what was imported stays: no collection looks through it when a plugin is removed
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
