"""A plugin, and jobs driven through their states one step at a time, without a running instance.

Job manager, store and ingest are the real ones, in memory and in virtual time; the harness is
scheduler and execution service, so a job goes on when the test says so. It can be used in a plain
function: what is asynchronous runs in a thread that ends with the block.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import trio
import trio.testing

from flux_trio.broker import ModuleNotStarted
from flux_trio.config import Config, parse_config
from flux_trio.formats import Jobspec
from flux_trio.jobtap import Plugin, PluginError
from flux_trio.messages import FluxError, topics
from flux_trio.testing.fixtures import EPOCH
from flux_trio.testing.harness_job import HarnessJob
from flux_trio.testing.stage import Stage
from flux_trio.trace import Kind, Record

GUEST: Final = 1001
"""Who submits unless the test says: not the instance's owner."""

WAIT_S: Final = 5.0  # of real time, for what a plugin does outside of it
_LOOK_S: Final = 0.005


class Rejected(Exception):
    """A job was refused; the text is what its user sees."""


@dataclass(frozen=True, slots=True)
class HookCall:
    """A plugin was asked: `result` is None when it had nothing to say, `error` when it did well."""

    plugin: str
    hook: str
    jobid: int | None
    result: Any
    error: str | None


class PluginHarness:
    """A job manager with `plugins` and the builtin ones, for the length of a `with` block.

    `config` is a Config or the text of one (TOML): queues, limits, further plugins by name or file.
    `users` tells names and groups of userids: {1001: ("alice", {"physics"})}. Raises PluginError
    for a plugin that cannot be loaded.
    """

    def __init__(
        self,
        *plugins: Plugin,
        config: Config | str = "",
        users: Mapping[int, tuple[str, Iterable[str]]] | None = None,
    ) -> None:
        self._config = parse_config(config) if isinstance(config, str) else config
        self._stage = Stage(plugins, self._config, users or {}, self._take)
        self._up: Future[trio.lowlevel.TrioToken] = Future()
        self._down: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="plugin harness")
        self.calls: list[HookCall] = []
        """Every call of a hook so far, builtin plugins' too, in order."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._down.done():
            trio.from_thread.run_sync(self._stage.end, trio_token=self._up.result())
        self._thread.join()
        self._down.result()

    # --- jobs

    def submit(
        self,
        jobspec: Mapping[str, Any] | None = None,
        *,
        userid: int = GUEST,
        urgency: int = 16,
        attributes: Mapping[str, Any] | None = None,
        **shape: Any,
    ) -> HarnessJob:
        """Submit a job of `userid`; it goes as far as the plugins let it, SCHED at most.

        Without a `jobspec` (RFC 14 object) it is one of `true`; `shape` is what
        `Jobspec.from_command` takes (nnodes, ntasks, cores_per_task, duration…), `attributes` are
        further ones by key (`system.bank`). Raises Rejected.
        """
        if jobspec is None:
            more = dict(attributes or {})
            jobspec = Jobspec.from_command(["true"], cwd="/", attributes=more, **shape).to_json()
        try:
            jobid = self.do(self._stage.submit, userid, dict(jobspec), urgency)
        except FluxError as error:
            raise Rejected(error.text) from None
        return HarnessJob(self, self._stage, jobid)

    def job(self, jobid: int) -> HarnessJob:
        """A job by its id."""
        return HarnessJob(self, self._stage, jobid)

    def calls_of(self, plugin: str, hook: str | None = None) -> list[HookCall]:
        """What `plugin` was asked, all or only `hook`."""
        return [call for call in self.calls if call.plugin == plugin and hook in (None, call.hook)]

    # --- time and the instance

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch; it stands still unless told."""
        elapsed: float = self.do(self._stage.elapsed)
        return EPOCH + elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass, step by step: what is due in between happens when it is due."""
        self.do(self._stage.advance, seconds)

    def has_deadline(self, seconds: float) -> bool:
        """Whether anything waits for a time at most that far away."""
        left: float = self.do(self._stage.next_deadline)
        return left <= seconds

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for what takes real time, a process say. Raises TimeoutError after WAIT_S."""
        for _ in range(round(WAIT_S / _LOOK_S)):
            if condition():
                return
            threading.Event().wait(_LOOK_S)
        raise TimeoutError(f"not after {WAIT_S:g} s: {condition}")

    def request(
        self, topic: str, payload: Mapping[str, Any] | None = None, *, userid: int | None = None
    ) -> dict[str, Any]:
        """Ask a service, a plugin's own say, as the owner or another. Raises FluxError."""
        answer: dict[str, Any] = self.do(self._stage.request, topic, dict(payload or {}), userid)
        return answer

    def query(self, plugin: str) -> dict[str, Any]:
        """What `flux-trio jobtap query` prints."""
        return self.request(topics.JOB_JOBTAP_QUERY, {"name": plugin})

    def remove(self, plugin: str) -> None:
        """Remove a plugin by its name."""
        self.request(topics.JOB_JOBTAP, {"remove": plugin})

    @property
    def log(self) -> list[str]:
        """What was written to the instance's log, oldest first."""
        return self._stage.log_lines()

    # --- the thread

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run an async function where the job manager runs, and all that follows from it."""
        return trio.from_thread.run(self._settled, function, args, trio_token=self._up.result())

    async def _settled(self, function: Callable[..., Awaitable[Any]], args: Iterable[Any]) -> Any:
        try:
            return await function(*args)
        finally:
            await trio.testing.wait_all_tasks_blocked()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self._stage.clock)
        except BaseException as error:  # noqa: BLE001 - it is raised where the block is left
            first = _only(error)
            self._down.set_exception(first)
            if not self._up.done():
                self._up.set_exception(first)
        else:
            self._down.set_result(None)

    async def _main(self) -> None:
        async with self._stage.open():
            await trio.testing.wait_all_tasks_blocked()
            self._up.set_result(trio.lowlevel.current_trio_token())
            await self._stage.ended()

    def _take(self, record: Record) -> None:
        """The trace: keeps the calls."""
        if record.kind == Kind.HOOK and record.data is not None:
            data = record.data
            self.calls.append(
                HookCall(data["plugin"], data["hook"], data["id"], data["result"], data["error"])
            )


def _only(error: BaseException) -> BaseException:
    """What a group of one is about, or a job manager that did not start for a plugin's sake."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ModuleNotStarted) and error.__cause__ is not None:
        cause = _only(error.__cause__)
        return cause if isinstance(cause, PluginError) else error
    return error
