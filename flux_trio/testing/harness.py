"""A harness for plugins: it drives jobs through their states one step at a time.

Job manager, store and ingest are the real ones, in memory and in virtual time. The harness plays
the scheduler and the execution service, so a job goes on when the test says so. A plain function
can use it: the asynchronous part runs in a thread that ends with the block.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from flux_trio.config import Config, parse_config
from flux_trio.formats import Jobspec
from flux_trio.jobtap import PluginSource, failure_listeners, made
from flux_trio.messages import FluxError, topics
from flux_trio.testing.fixtures import EPOCH
from flux_trio.testing.harness_job import HarnessJob
from flux_trio.testing.instance_job import plain_jobspec
from flux_trio.testing.options import wrong_text
from flux_trio.testing.plugins import PluginErrors
from flux_trio.testing.stage import Stage
from flux_trio.testing.trio_thread import TrioThread
from flux_trio.trace import Kind, Record

GUEST: Final = 1001
"""The default submitter of jobs, who is not the instance owner."""

WAIT_S: Final = 60.0
"""Real seconds, for work of a plugin outside virtual time: only what hangs takes so long."""
_LOOK_S: Final = 0.005


class Rejected(Exception):
    """A job was refused; the text is what its user sees."""


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call of a hook; `result` or `error` is None if the plugin returned or raised nothing."""

    plugin: str
    hook: str
    jobid: int | None
    result: Any
    error: str | None


class PluginHarness:
    """A job manager with `plugins` and the builtin plugins, in a `with` block.

    Each of `plugins` is one, or what makes one: its class, a function, the path of its file.
    `config` is a Config or its text (TOML): queues, limits, further plugins by name or file.
    `users` has names and groups by userid: {1001: ("alice", {"physics"})}. Raises PluginError
    for a plugin that cannot be loaded, TypeError for an option of another type.

    A plugin that fails fails the test: the call that made it fail, or the end of the block, raises
    the plugin's own error, or HandlerFailed if the plugin raised none. With `may_fail` errors are
    only kept in `plugin_errors`.
    """

    def __init__(
        self,
        *plugins: PluginSource,
        config: Config | str = "",
        users: Mapping[int, tuple[str, Iterable[str]]] | None = None,
        may_fail: bool = False,
    ) -> None:
        if text := wrong_text({"config": config, "users": users}):
            raise TypeError(text)
        self._config = parse_config(config) if isinstance(config, str) else config
        self._stage = Stage([*map(made, plugins)], self._config, users or {}, self._keep)
        # Nobody judges it: its scheduler takes shortcuts, for example acquires no resources.
        self._context = Context()
        self._errors = PluginErrors()
        self.plugin_errors: list[BaseException] = self._errors.found
        """The errors of plugins so far, with their own tracebacks."""
        self._context.run(failure_listeners.set, (self.plugin_errors.append,))
        self._thread = TrioThread("plugin harness", self._stage.open)
        self._may_fail = may_fail
        self.calls: list[HookCall] = []
        """Every call of a hook so far in order, including builtin plugins."""

    def __enter__(self) -> Self:
        self._thread.start(self._context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.stop()
        if error is None:
            self.check()

    # --- jobs

    def submit(
        self,
        jobspec: Jobspec | Mapping[str, Any] | None = None,
        *,
        userid: int = GUEST,
        urgency: int = 16,
        attributes: Mapping[str, Any] | None = None,
        **shape: Any,
    ) -> HarnessJob:
        """Submit a job of `userid`; it goes on until a plugin holds it, or until SCHED.

        The default `jobspec` (a Jobspec, or an RFC 14 object) runs `true`; `shape` has arguments of
        `Jobspec.from_command` (nnodes, ntasks, cores_per_task, duration…), `attributes` further
        attributes by key (`system.bank`). Raises Rejected, TypeError for another jobspec, and for
        attributes or a shape beside one.
        """
        asked = plain_jobspec(jobspec, attributes, shape)
        try:
            jobid = self.do(self._stage.submit, userid, asked, urgency)
        except FluxError as error:
            raise Rejected(error.text) from None
        return HarnessJob(self, self._stage, jobid)

    def job(self, jobid: int) -> HarnessJob:
        """Return a job that was submitted, by its id."""
        return HarnessJob(self, self._stage, jobid)

    def calls_of(self, plugin: str, hook: str | None = None) -> list[HookCall]:
        """Return the calls of `plugin`, all or only those of `hook`."""
        return [call for call in self.calls if call.plugin == plugin and hook in (None, call.hook)]

    # --- time and the instance

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch; time stands still except in `advance`."""
        return EPOCH + self._thread.elapsed()

    def advance(self, seconds: float) -> None:
        """Advance the time from deadline to deadline, so that timers fire at their times.

        Raises ValueError for a negative number, and for 30 years and more.
        """
        self._thread.advance(seconds)
        self.check()

    def has_deadline(self, seconds: float) -> bool:
        """Whether a task waits for a deadline at most `seconds` away."""
        return self._thread.next_deadline() <= seconds

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait in real time, for example for a process. Raises TimeoutError after WAIT_S."""
        for _ in range(round(WAIT_S / _LOOK_S)):
            if condition():
                return
            threading.Event().wait(_LOOK_S)
        raise TimeoutError(f"not after {WAIT_S:g} s: {condition}")

    def request(
        self, topic: str, payload: Mapping[str, Any] | None = None, *, userid: int | None = None
    ) -> dict[str, Any]:
        """Send a request as the owner or as `userid`; return the payload. Raises FluxError."""
        answer: dict[str, Any] = self.do(self._stage.request, topic, dict(payload or {}), userid)
        return answer

    def query(self, plugin: str) -> dict[str, Any]:
        """Return the data that `flux-trio jobtap query` prints."""
        return self.request(topics.JOB_JOBTAP_QUERY, {"name": plugin})

    def remove(self, plugin: str) -> None:
        """Remove a plugin by name, or those that match a glob. Raises FluxError if none does."""
        self.request(topics.JOB_JOBTAP, {"remove": plugin})

    @property
    def log(self) -> list[str]:
        """The entries of the instance's log, oldest first."""
        self._thread.expect_start()
        return self._stage.log_lines()

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run an async function in the job manager's thread; return when all tasks are blocked."""
        __tracebackhide__ = True
        try:
            answer = self._thread.do(function, *args)
        except FluxError:
            self.check()  # it may be the reason
            raise
        self.check()
        return answer

    def check(self) -> None:
        """Raise the first error of a plugin since the last call; each call does so at its end."""
        __tracebackhide__ = True
        if not self._may_fail:
            self._errors.raise_news()

    def _keep(self, record: Record) -> None:
        """Keep the hook calls of the trace; a Sink."""
        if record.kind == Kind.HOOK and record.data is not None:
            data = record.data
            self.calls.append(
                HookCall(data["plugin"], data["hook"], data["id"], data["result"], data["error"])
            )
