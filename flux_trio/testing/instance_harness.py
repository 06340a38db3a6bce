"""An instance as a plain object: a test without Trio settings submits jobs and ends modules.

It is a whole instance with simulated job execution, in memory and in virtual time. The asynchronous
part runs in a thread that ends with the block. Time stands still until the test advances it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from flux_trio.broker import Handle, ModuleSpec
from flux_trio.config import Config, check_edition, parse_config
from flux_trio.cores.job_manager.calls import User
from flux_trio.editions import Edition, flux_kvs
from flux_trio.editions.kvs import Lookup
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import (
    IDS_MAX,
    FormatError,
    Jobspec,
    ResourceSet,
    job_key,
    parse_duration,
    parse_r,
)
from flux_trio.instance import Instance, more_sinks
from flux_trio.jobtap import Plugin, PluginSource, failure_listeners
from flux_trio.lab.properties.plugin_failures import PLUGIN
from flux_trio.lab.stories.telling import unknown_text
from flux_trio.messages import FluxError, service_of, topics
from flux_trio.testing.fakes import Fake, FakeExec, FakeScheduler
from flux_trio.testing.fixtures import EPOCH, USERID, simulated_instance
from flux_trio.testing.instance_job import InstanceJob, check_job, plain_jobspec
from flux_trio.testing.options import wrong_text
from flux_trio.testing.plugins import GivenPlugins, PluginErrors
from flux_trio.testing.trio_thread import TrioThread
from flux_trio.testing.watching import Watched, watched
from flux_trio.trace import Record

WAIT_S: Final = 86_400.0
"""Virtual seconds that `wait` waits for an event, at most."""


class InstanceHarness:
    """An instance in a `with` block; the end of the block judges it by the clauses of the RFCs.

    The default `inventory` has four nodes of four cores. `config` is a Config or its text (TOML);
    `edition`, of the RFCs, is classic or current.
    Each of `plugins` is one, or what makes one: its class, a function, the path of its file. A new
    job manager makes its plugins anew, except those that were given as objects. `users` has names
    and groups by userid: {1001: ("alice", {"physics"})}. The `seed` orders Trio's tasks. `breaking`
    are the clauses that the test breaks on purpose; with None the instance is not judged. Raises
    PluginError for a bad file of a plugin, FormatError for an unknown `edition`, ValueError if
    `breaking` has a name of no clause, TypeError for an option of another type. The end of the
    block raises as `check` does.

    >>> from flux_trio.testing import InstanceHarness
    >>> with InstanceHarness() as instance:
    ...     job = instance.submit(run_s=60)
    ...     instance.crash("sched")
    ...     instance.load("sched")
    ...     instance.wait(job)
    ...     job.names[-1]
    'clean'
    """

    def __init__(
        self,
        *,
        inventory: ResourceSet | None = None,
        config: Config | str = "",
        plugins: Iterable[PluginSource] = (),
        users: Mapping[int, tuple[str, Iterable[str]]] | None = None,
        edition: str | None = None,
        seed: int = 0,
        breaking: Collection[str] | None = (),
    ) -> None:
        options = {
            "config": config,
            "edition": edition,
            "inventory": inventory,
            "plugins": plugins,
            "users": users,
        }
        if text := wrong_text(options):
            raise TypeError(text)
        self._inventory = inventory
        if isinstance(config, str):
            config = parse_config(config, edition=edition)
        elif edition is not None:
            check_edition(edition)
            config = msgspec.structs.replace(config, edition=edition)
        self._config = config
        self._given = GivenPlugins(plugins)
        self.plugins: list[Plugin] = self._given.present
        """The plugins of the present job manager, in the order in which they were given."""
        self._users = {
            userid: User(name, frozenset(groups))
            for userid, (name, groups) in (users or {}).items()
        }
        self._breaking = breaking
        if text := unknown_text(breaking or ()):
            raise ValueError(text)
        self._watched: Watched | None = None
        self._stack = ExitStack()
        self._thread = TrioThread("instance harness", self._open, seed)
        self._opened: Instance
        self._peers: AsyncExitStack
        self._clients: dict[int, Handle] = {}
        self.trace: list[Record] = []
        """The trace so far."""
        self._errors = PluginErrors()
        self.plugin_errors: list[BaseException] = self._errors.found
        """What plugins have raised so far, with their own tracebacks."""

    @property
    def edition(self) -> Edition:
        """The edition of the RFCs that the instance speaks."""
        return self._config.edition_value

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            judging = None
            if self._breaking is not None:
                judging = stack.enter_context(watched(self._breaking))
            context = copy_context()
            context.run(more_sinks.set, (*more_sinks.get(), lambda: self.trace.append))
            context.run(
                failure_listeners.set, (*failure_listeners.get(), self.plugin_errors.append)
            )
            self._thread.start(context)
            stack.callback(self._thread.stop)
            self._watched = judging
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        if error is None:
            self._raise_plugin_error()

    def check(self) -> None:
        """Raise what a plugin or the instance has done wrong since the last check.

        Raises the first error of a plugin, unless `breaking` has PLUGIN, or else ClausesBroken. Of
        an instance at rest a response or event that is still due is a violation. If the instance
        is not judged, nothing is raised.
        """
        __tracebackhide__ = True
        self._raise_plugin_error()
        if self._watched is not None:
            self._watched.check()

    def _raise_plugin_error(self) -> None:
        __tracebackhide__ = True
        if self._breaking is not None and PLUGIN not in self._breaking:
            self._errors.raise_news()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with (
            simulated_instance(
                self._inventory, self._config, self._given.makers, self._users
            ) as self._opened,
            AsyncExitStack() as self._peers,
        ):
            yield

    @property
    def _instance(self) -> Instance:
        self._thread.expect_start()
        return self._opened

    # --- jobs

    def submit(
        self,
        jobspec: Jobspec | Mapping[str, Any] | None = None,
        *,
        run_s: float = 1.0,
        userid: int = USERID,
        urgency: int = 16,
        attributes: Mapping[str, Any] | None = None,
        **shape: Any,
    ) -> InstanceJob:
        """Submit a job. It goes on as far as it can without time.

        The default `jobspec` (a Jobspec, or an RFC 14 object) pretends to run for `run_s` seconds;
        `shape` has arguments of `Jobspec.from_command` (nnodes, ntasks, cores_per_task, duration),
        `attributes` further attributes by key (`system.bank`). With `run_s` inf the job never ends
        by itself. Raises FluxError, ValueError for another `run_s` than seconds from 0, TypeError
        for another jobspec, and for attributes or a shape beside one.
        """
        if jobspec is None:
            run = {"system.exec.test.run_duration": _run_duration(run_s)}
            attributes = run | dict(attributes or {})
        payload = {"jobspec": plain_jobspec(jobspec, attributes, shape), "urgency": urgency}
        return InstanceJob(self, self.request(topics.INGEST_SUBMIT, payload, userid=userid)["id"])

    def wait(self, job: InstanceJob, event: str = "clean") -> None:
        """Let time pass until the job has the event.

        Raises TypeError for what is no job, ValueError for a job of another instance.
        Raises AssertionError if no time is left that could bring it, or after WAIT_S; but first the
        error of a plugin that has raised, if the test does not break that on purpose.
        """
        check_job(self, job)
        end = self.now + WAIT_S
        while event not in job.names:
            left = self._thread.next_deadline()
            if self.now + left > end:
                self._raise_plugin_error()
                raise AssertionError(f"{job} has no event {event}; it has {', '.join(job.names)}")
            self._thread.advance(max(left, 0.0))

    # --- time, requests, records

    @property
    def now(self) -> float:
        """Seconds since the Unix epoch; time stands still except in `advance` and `wait`."""
        return EPOCH + self._thread.elapsed()

    def advance(self, seconds: float) -> None:
        """Advance the time from deadline to deadline, so that timers fire at their times.

        Raises ValueError for a negative number, and for 30 years and more.
        """
        self._thread.advance(seconds)

    def request(
        self, topic: str, payload: Mapping[str, Any] | None = None, *, userid: int | None = None
    ) -> dict[str, Any]:
        """Send a request as the owner or as `userid`; return the payload. Raises FluxError.

        Raises NothingHappens, an AssertionError, if the answer needs time.
        """
        user = USERID if userid is None else userid
        sent = dict(payload or {})
        awaited = f"an answer of {service_of(topic)} to {topic}"
        answer: dict[str, Any] = self._do(self._request, user, topic, sent, awaited=awaited)
        return answer

    @property
    def log(self) -> list[str]:
        """The entries of the instance's log, oldest first."""
        return [str(entry) for entry in list(self._instance.log)]

    def do(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run an async function in the instance's thread; return when all tasks are blocked."""
        return self._do(function, *args)

    def _do(self, function: Callable[..., Awaitable[Any]], *args: Any, awaited: str = "") -> Any:
        """Do this; if it fails, raise the error of a plugin first, which may be the reason."""
        __tracebackhide__ = True
        try:
            return self._thread.do(function, *args, awaited=awaited)
        except (AssertionError, FluxError):
            self._raise_plugin_error()
            raise

    async def _request(self, userid: int, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
        if userid not in self._clients:
            name = "client" if userid == USERID else f"user-{userid}"
            peer = self._instance.connect(name, userid=userid)
            self._clients[userid] = await self._peers.enter_async_context(peer)
        return await self._clients[userid].call(topic, payload)

    # --- modules

    def load(self, name: str) -> None:
        """Load a module. Raises FluxError."""
        self.do(self._instance.supervisor.load, name)

    def unload(self, name: str) -> None:
        """Remove a module in order. Raises FluxError, also for the kvs, which is always needed."""
        self._instance.supervisor.check_removable(name)
        self.do(self._instance.supervisor.remove, name)

    def crash(self, name: str) -> None:
        """End a module with an error. Raises FluxError.

        The instance ends with the kvs: raises `flux_trio.broker.ModuleCrashed`.
        """
        self.do(self._instance.supervisor.kill, name)

    def play(self, name: str, fake: Fake) -> None:
        """Load `fake` in place of the module `name`. Raises TypeError for what is no fake."""
        if not isinstance(fake, Fake):
            raise TypeError(f"expected a FakeScheduler, a FakeExec or another Fake, got {fake!r}")
        self.do(self._play, name, fake)

    async def _play(self, name: str, fake: Fake) -> None:
        supervisor = self._instance.supervisor
        if name in supervisor:
            await supervisor.remove(name)
        supervisor.specs[name] = ModuleSpec(name, fake.run)
        await supervisor.load(name)


def _run_duration(run_s: float) -> float | str:
    """Return it as a jobspec has it: JSON has no infinite number."""
    try:
        return "inf" if parse_duration(run_s) == math.inf else run_s
    except FormatError as error:
        raise error.at("run_s") from None


class PlayedScheduler:
    """A scheduler that grants only when the test says so, loaded in place of the instance's."""

    def __init__(self, instance: InstanceHarness, limit: int | None = None) -> None:
        self._instance = instance
        self.fake = FakeScheduler(limit, edition=instance.edition)
        instance.play(topics.SCHED, self.fake)

    @property
    def asked(self) -> list[int]:
        """The ids of the jobs for which resources were requested so far, in order."""
        return self.fake.asked(topics.SCHED_ALLOC)

    def grant(self, job: InstanceJob, cores: dict[int, int] | None = None) -> None:
        """Allocate cores to a job: `cores` has their number by rank; without it, one free core.

        Raises ValueError for anything but numbers, AssertionError if no core is free; as the other
        calls, TypeError for what is no job, and ValueError for a job of another instance.
        """
        check_job(self._instance, job)
        if cores is not None and not _are_cores(cores):
            raise ValueError(f"expected the number of cores by rank, such as {{0: 2}}, got {cores}")
        self._instance.do(self.fake.grant, job.id, cores)

    def deny(self, job: InstanceJob, note: str = "") -> None:
        self._answer(job, AllocType.DENY, note=note)

    def cancel(self, job: InstanceJob) -> None:
        """Answer a sched.cancel."""
        self._answer(job, AllocType.CANCEL)

    def annotate(self, job: InstanceJob, annotations: Mapping[str, Any]) -> None:
        self._answer(job, AllocType.ANNOTATE, annotations=dict(annotations))

    def _answer(self, job: InstanceJob, kind: AllocType, **more: Any) -> None:
        check_job(self._instance, job)

        async def answer() -> None:
            self.fake.answer(job.id, kind, **more)

        self._instance.do(answer)


def _are_cores(cores: object) -> bool:
    return (
        isinstance(cores, Mapping)
        and bool(cores)
        and all(
            type(rank) is type(ncores) is int and rank >= 0 and 0 < ncores <= IDS_MAX
            for rank, ncores in cores.items()
        )
    )


class PlayedExec:
    """An execution service that answers only when the test says so."""

    def __init__(self, instance: InstanceHarness) -> None:
        self._instance = instance
        self.fake = FakeExec()
        instance.play(topics.JOB_EXEC, self.fake)

    @property
    def asked(self) -> list[int]:
        """The ids of the jobs whose start was requested so far, in order."""
        return [jobid for jobid, _ in self.fake.starts()]

    def start(self, job: InstanceJob) -> None:
        """Report that the shells of a job have started."""
        self._tell(job, "start")

    def finish(self, job: InstanceJob) -> None:
        """Report that the shells have ended with status 0, and that the resources are released."""
        self._tell(job, "finish", "release", ranks=self._ranks_of(job))

    def fail(self, job: InstanceJob) -> None:
        """Raise a fatal exception of a job whose shells did not start; release its resources."""
        self._tell(job, "exception", "release", ranks=self._ranks_of(job))

    def _ranks_of(self, job: InstanceJob) -> str:
        """Return the ranks of R. Raises FluxError if the job has no R."""
        check_job(self._instance, job)
        asked = flux_kvs.look_up(Lookup(job_key(job.id, "R")))
        found = self._instance.request(topics.KVS_LOOKUP, asked)
        return str(parse_r(flux_kvs.value_of(found)).ranks)

    def _tell(self, job: InstanceJob, *kinds: str, **more: str) -> None:
        check_job(self._instance, job)

        async def tell() -> None:
            self.fake.tell(job.id, *kinds, **more)

        self._instance.do(tell)
