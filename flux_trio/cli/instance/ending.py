"""How a process that runs an instance ends, whatever holds it up.

An instance ends in steps, and each has a limit (`Ending.step`). A thread watches: after SAY_S it
says what the process waits for, and at the limit it ends the process. So does a second signal, at
once. What was acknowledged to somebody is durable, so that such an end loses no more than SIGKILL
does: nothing.

Python takes a signal in the main thread alone, between two instructions. If code in C runs there
that does not come back, Python's handler in C still writes into the pipe of `set_wakeup_fd`, and
another thread, which reads it, ends the process after INSTANCE_S. It needs Python's lock: code in C
that keeps the lock and waits holds up even this.

Tasks of plugins that were abandoned (`jobtap.tasks`) do not end, and Trio waits for them: when all
else has ended, the process ends without them.
"""

from __future__ import annotations

import atexit
import faulthandler
import math
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

import trio

from flux_trio.jobtap.lock_timers import leave_note
from flux_trio.jobtap.loop_watch import held, plugins_have_run
from flux_trio.jobtap.tasks import going_on
from flux_trio.process.console import STDERR

SAY_S: Final = 1.0  # a step that takes longer is named
INSTANCE_S: Final = 40.0  # for an instance to end its modules; it gives up after TAKE_DOWN_S
SPARE_S: Final = 5.0  # from the end of a wait that gives up to the end of the process
LEFT_S: Final = 5.0  # for what plugins have left behind, when all else has ended
FORCED: Final = 1  # exit code of a process that was ended before it had ended by itself


class Step(NamedTuple):
    """What the process waits for, and for how many seconds at most."""

    what: Callable[[], str]
    limit_s: float
    code: int = FORCED


class Ending:
    """The signals of the process and the steps of its end.

    `clean_up` removes what must not stay when the process is ended, such as a temporary directory.
    `note` is the file that tells the next process which plugins were in the way.
    While `forwards` is set, signals are for somebody else, and do not end anything by themselves.
    """

    def __init__(
        self, clean_up: Callable[[], None] = lambda: None, note: Path | None = None
    ) -> None:
        self.note = note
        self.forwards = False
        self._clean_up = clean_up
        self._step: Step | None = None
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._threads: set[threading.Thread] = set()  # those of a time before plugins
        self._is_told = False  # a signal to end has come
        self._token: trio.lowlevel.TrioToken | None = None
        self._early: list[int] = []  # signals that came before Trio ran
        self._taken = threading.Event()  # a signal was, in the main thread
        self._send, self._receive = trio.open_memory_channel[int](math.inf)  # two at most count

    @contextmanager
    def taking(self, signums: Iterable[int]) -> Iterator[None]:
        """Take these signals in this block, in the main thread."""
        self._threads = set(threading.enumerate())
        self._came, self._woken = os.pipe()
        for end in (self._came, self._woken):
            os.set_blocking(end, False)
        threading.Thread(target=self._wait_for_signals, daemon=True).start()
        before = {signum: signal.signal(signum, self._on_signal) for signum in signums}
        try:
            yield
        finally:
            if plugins_have_run():
                atexit.register(faulthandler.dump_traceback_later, LEFT_S, exit=True)
            self._step = None
            self._changed.set()
            for signum, handler in before.items():
                signal.signal(signum, handler)
            os.close(self._woken)

    def signals(self) -> AsyncIterator[int]:
        """Return the signals that come; called once, when Trio runs."""
        self._token = trio.lowlevel.current_trio_token()
        # In the place of Trio's pipe, which Trio sets when it begins and takes back when it ends:
        # what wakes the thread wakes Trio.
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        # a child that receives a signal must not be taken for this process
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        for signum in self._early:
            self._send.send_nowait(signum)
        return self._receive

    def step(self, what: Callable[[], str], limit_s: float, code: int = FORCED) -> None:
        """Wait for `what` from now on; after the limit the process ends with `code`."""
        self._step = Step(what, limit_s, code)
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ending", daemon=True)
            self._thread.start()

    def left_behind(self) -> list[str]:
        """Return the names of tasks for which Trio would wait, and of threads for Python."""
        threads = set(threading.enumerate()) - self._threads
        return [*going_on(), *sorted(f"thread {each.name}" for each in threads if not each.daemon)]

    def all_has_ended(self, code: int) -> None:
        """Leave what plugins have left behind: all else has ended, in order."""
        if names := self.left_behind():
            self.leave(code, f"has ended; left behind: {'; '.join(names)}")
        self.step(lambda: "tasks and generators of plugins", LEFT_S, code)

    def leave(self, code: int, text: str) -> NoReturn:
        """End the process at once, from any thread."""
        try:
            STDERR.write(f"flux-trio: {text}")
            if self.note is not None and (held() or going_on()):
                leave_note(self.note, text.partition("\n")[0])
            self._clean_up()
            sys.stdout.flush()
        finally:
            os._exit(code)

    # --- in the main thread

    def _take(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._came, 1 << 16)
        self._taken.set()

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._take()
        if self._is_told and self._step is not None and not self.forwards:
            waits = f"ended at once by a second signal; it waited for {_awaited(self._step)}"
            self.leave(FORCED, waits)
        self._is_told = self._is_told or not (self.forwards and signum == signal.SIGINT)
        if self._step is not None:
            self._say(self._step)
        elif not self.forwards:
            self.step(lambda: "the instance", INSTANCE_S)
        if self._token is None:
            self._early.append(signum)
        else:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._send.send_nowait, signum)

    def _say(self, step: Step) -> None:
        which = "another" if self._is_told else "a second"
        with suppress(RuntimeError):  # it may interrupt another line
            STDERR.write(
                f"flux-trio: waits for {_awaited(step)}, at most {step.limit_s:g} s; "
                f"{which} signal ends it at once"
            )

    # --- in the thread

    def _watch(self) -> None:
        while (step := self._step) is not None:
            self._changed.clear()
            if self._step is not step or self._changed.wait(SAY_S):
                continue
            self._say(step)
            if not self._changed.wait(step.limit_s - SAY_S):
                text = f"ended after {step.limit_s:g} s: it waited for {_awaited(step)}"
                self.leave(step.code, text)

    def _wait_for_signals(self) -> None:
        came = select.poll()
        came.register(self._came, select.POLLIN)
        while any(events & select.POLLIN for _, events in came.poll()):
            with suppress(trio.RunFinishedError):  # the system may give a signal to any thread
                if self._token is not None:
                    self._token.run_sync_soon(self._take, idempotent=True)
            if not self._taken.wait(INSTANCE_S):
                text = f"ended {INSTANCE_S:g} s after a signal that its main thread did not take"
                frame = sys._current_frames()[threading.main_thread().ident or 0]
                where = "".join(traceback.format_stack(frame)).rstrip()
                self.leave(FORCED, f"{'; '.join([text, *held()])}\n{where}")
            self._taken.clear()
        os.close(self._came)


def _awaited(step: Step) -> str:
    """Return what a step waits for, and the tasks of plugins that may be the reason."""
    try:
        what = step.what()
    except RuntimeError:  # it reads in this thread what the main thread changes
        what = "the instance"
    return "; ".join([what, *held(), *going_on()])
