"""Jobs as futures: `FluxTrioExecutor` is a `concurrent.futures.Executor` whose work are jobs.

It has the names of flux-core's FluxExecutor, so that a workflow written for that runs here.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import anyio

from flux_trio.client.client import Client, open_client
from flux_trio.client.errors import ClientError, check_process
from flux_trio.client.find import find_instance
from flux_trio.client.jobs import Job, JobFailed, Result, command_jobspec
from flux_trio.formats import Event, FormatError, Jobspec
from flux_trio.jobtap.failures import attempt, describe
from flux_trio.messages import FluxError
from flux_trio.process.loop_thread import LoopThread, run_asyncio

JOBS_MAX: Final = 1000
"""Jobs of one executor that the instance has at a time: each needs an open request."""

CALLED: Final = "flux_trio.client.function_runner"

Finding: TypeAlias = Callable[[], Awaitable[Job]]
Ending: TypeAlias = Callable[[Result, Job], Any]
Heard: TypeAlias = "Callable[[FluxTrioFuture, Event], object]"


class ExecutorEnded(ClientError):
    """The executor ended before the job."""


class ResultUnreadable(ClientError):
    """What a function returned or raised cannot be pickled, or cannot be unpickled here.

    The text has what is known of it; the cause, if there is one, says why it cannot be unpickled.
    """


class FunctionRaised(Exception):
    """The function of a job raised the cause of this exception."""


class FluxTrioFuture(Future[Any]):
    """The future of a job; its result is the job's exit code, or what a callable returned."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._job: Future[int] = Future()
        self._events: list[Event] = []
        self._callbacks: dict[str, list[Heard]] = defaultdict(list)

    def jobid(self, timeout: float | None = None) -> int:
        """Wait until the job is submitted, at most `timeout` seconds; return its id.

        Raises TimeoutError, CancelledError if the future was cancelled before, and the error of
        the submission; ConnectionLost in a fork of the process, where nothing ends the wait.
        """
        self._check_process(self._job)
        return self._job.result(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result as that of `Future`; ConnectionLost in a fork, as for `jobid`."""
        self._check_process(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error as that of `Future`; ConnectionLost in a fork, as for `jobid`."""
        self._check_process(self)
        return super().exception(timeout)

    def _check_process(self, waited_for: Future[Any]) -> None:
        """Raise ConnectionLost if only the thread of another process could end a wait."""
        if not waited_for.done():
            check_process(self._pid)

    def add_jobid_callback(self, callback: Callable[[FluxTrioFuture], object]) -> FluxTrioFuture:
        """Call `callback` with this future when the job has its id; at once if it has."""
        self._job.add_done_callback(lambda _: callback(self))
        return self

    def add_event_callback(self, event: str, callback: Heard) -> FluxTrioFuture:
        """Call `callback` with this future and each event of that name, also those that have come.

        It is called in the thread of the executor, and must not wait for a future.
        """
        with self._lock:
            self._callbacks[event].append(callback)
            past = [each for each in self._events if each.name == event]
        for each in past:
            self._tell(callback, each)
        return self

    def cancel(self) -> bool:
        """Cancel the future if its job was not submitted yet; return whether it is cancelled."""
        cancelled = super().cancel()
        if cancelled:
            self._job.cancel()
        return cancelled

    def _submitted(self, job: Job) -> None:
        self._job.set_running_or_notify_cancel()
        self._job.set_result(job.id)

    def _has(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
            callbacks = tuple(self._callbacks[event.name])
        for callback in callbacks:
            self._tell(callback, event)

    def _tell(self, callback: Heard, event: Event) -> None:
        """Call a callback as `Future` calls those for its end: it logs what they raise."""
        came: Future[None] = Future()
        came.add_done_callback(lambda _: callback(self, event))
        came.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if not self._job.done():
            self._job.set_exception(error)
        self.set_exception(error)


class FluxTrioExecutor(Executor):
    """Submits jobs and completes their futures, in a thread of its own.

    `uri` and `token` are as for `connect`. At most `jobs_max` jobs are submitted at a time; the
    futures of the others are pending, and may be cancelled. A program that ends without `shutdown`
    waits for its futures, as with other executors. Raises NoInstance and AccessDenied.
    """

    def __init__(
        self, uri: str | None = None, token: str = "", *, jobs_max: int = JOBS_MAX
    ) -> None:
        self._pid = os.getpid()
        # what a function of the program raises there is of this module (`called`)
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        address = find_instance(os.environ) if uri is None else (uri, token)
        self._futures: set[FluxTrioFuture] = set()  # those that are not done
        self._numbers = itertools.count()
        self._is_shut = False
        self._lock = threading.Lock()
        with ExitStack() as opened:
            self._files = Path(opened.enter_context(TemporaryDirectory(prefix="flux-trio-")))
            loop = LoopThread("flux-trio executor", lambda: open_client(*address), run_asyncio)
            self._client: Client = loop.start()
            opened.callback(loop.stop)
            self._portal = loop.portal
            self._room = self._portal.call(partial(anyio.Semaphore, jobs_max))
            # A callback, which runs in the event loop, may submit: that must not wait for the loop.
            self._starter = opened.enter_context(ThreadPoolExecutor(1))
            self._opened = opened.pop_all()
        atexit.register(self.shutdown)

    def submit(
        self,
        work: Callable[..., Any] | Jobspec | dict[str, Any] | Sequence[str],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> FluxTrioFuture:
        """Submit a job, and return its future.

        `work` is a jobspec, or a command: a list of words, to which `kwargs` has the shape of
        `Jobspec.from_command`. It may be a function, too, which a job calls with `args` and
        `kwargs`: all of it, and what it returns, has to be picklable. `urgency` and `flags` are
        those of the submission. Raises RuntimeError after `shutdown`, ConnectionLost in a fork of
        the process that opened this executor, and TypeError for a command that is one text.

        The future raises JobFailed if the job was ended before it had an exit code, FluxError if it
        was refused, what the function has raised, and ResultUnreadable if that, or what it
        returned, could not be brought here.
        """
        urgency, flags = kwargs.pop("urgency", 16), kwargs.pop("flags", 0)
        ends: Ending = _exit_code
        if callable(work):
            path = self._files / str(next(self._numbers))
            _write_call(path, work, args, kwargs)
            jobspec: Jobspec | dict[str, Any] = command_jobspec(
                [sys.executable, "-m", CALLED, str(path)]
            )
            ends = partial(_returned, path)
        elif isinstance(work, Jobspec | dict):
            jobspec = work
        else:
            jobspec = command_jobspec(work, **kwargs)
        return self._start(lambda: self._client.submit(jobspec, urgency, flags), ends)

    def attach(self, jobid: int | str) -> FluxTrioFuture:
        """Return a future of a job that was submitted before."""

        async def find() -> Job:
            return self._client.job(jobid)

        return self._start(find, _exit_code)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs; with `wait`, return when all are over.

        With `cancel_futures`, jobs that are not submitted yet are not. In a fork of the process
        that opened this executor nothing is done: the jobs are those of that process.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_shut = True
            running = list(self._futures)
        if cancel_futures:
            for future in running:
                future.cancel()
        if wait:
            wait_for(running)
            self._opened.close()
            atexit.unregister(self.shutdown)
        else:
            threading.Thread(target=self.shutdown, daemon=False).start()

    def _start(self, find: Finding, ends: Ending) -> FluxTrioFuture:
        check_process(self._pid)
        future = FluxTrioFuture()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._futures.add(future)
        self._starter.submit(self._portal.start_task_soon, self._run, future, find, ends)
        return future

    async def _run(self, future: FluxTrioFuture, find: Finding, ends: Ending) -> None:
        try:
            async with self._room:
                if not future.set_running_or_notify_cancel():
                    return
                job = await find()
                future._submitted(job)
                result = await job.wait(future._has)
                future.set_result(ends(result, job))
        except FunctionRaised as raised:
            future.set_exception(raised.__cause__)
        except (ClientError, FluxError, FormatError, OSError) as error:
            future._fail(error)
        finally:
            if not future.done():
                future._fail(ExecutorEnded("the executor has ended"))
            with self._lock:
                self._futures.discard(future)


def result_file(path: Path) -> Path:
    """Return the file with what the call in `path` returned and raised."""
    return path.with_suffix(".result")


def _exit_code(result: Result, job: Job) -> int:
    return result.exit_code(str(job))


def _write_call(path: Path, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Write what `function_runner` calls. Raises what pickle raises, and OSError."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    with path.open("wb") as file:
        pickle.dump((sys.path, main), file)
        pickle.dump((function, args, kwargs), file)


def _returned(path: Path, result: Result, job: Job) -> Any:
    """Return what the function returned, or raise what it raised; remove its files."""
    answer = result_file(path)
    try:
        what, pickled = pickle.loads(answer.read_bytes())
    except FileNotFoundError:
        how = result.text or f"its process ended with exit code {result.returncode}"
        raise JobFailed(f"job {job}: {how}, before the function returned") from None
    finally:
        path.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    if pickled is None:
        raise ResultUnreadable(f"job {job}: {what}")
    said, why_not = attempt(pickle.loads, pickled)
    if why_not is not None:
        raise ResultUnreadable(
            f"job {job}: {what}, which cannot be unpickled: {describe(why_not)}"
        ) from why_not
    value, error = said
    if error is not None:
        raise FunctionRaised from error
    return value
