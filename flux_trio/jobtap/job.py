"""`Job`: the job that a handler gets, a value that never changes.

It shows the job as it was when the hook was asked or the job was looked up. The methods that change
the job are operations; each is checked at the call against the job as it is then. An operation that
is called in a hook goes into the answer of that hook, and is performed when the hook has returned.
At any other time it goes to the job manager as an input. No operation takes effect inside the call.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from flux_trio.config import Config
from flux_trio.formats import Event, Jobspec, cached_for_short, format_fluid
from flux_trio.jobtap.values import NotAllowed, plain, priority_of, read_only
from flux_trio.protocols import (
    Annotate,
    AskHook,
    JobEvent,
    JobState,
    JobView,
    Operation,
    PostEvent,
    SetPriority,
    Unavailable,
)
from flux_trio.protocols.operations import Queued, is_done, is_repeat, refusal

_JOBSPECS_KEPT: Final = 64  # each is parsed once for all plugins of a chain


class Job(msgspec.Struct, frozen=True, eq=False):
    """One job, for one plugin: a value that may be kept and never changes; `view` is for the host.

    `plugin.jobs.get(job.id)` shows the same job as it is now.
    """

    view: JobView
    _question: AskHook | None
    _job_host: JobHost

    def __repr__(self) -> str:
        return f"<Job {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- what it is

    @property
    def id(self) -> int:
        """The job id."""
        return self.view.id

    @property
    def userid(self) -> int:
        """The user who submitted the job."""
        return self.view.userid

    @property
    def urgency(self) -> int:
        """0 to 31; 0 holds the job and 31 expedites it, whatever a plugin says."""
        return self.view.urgency

    @property
    def priority(self) -> int:
        """The last priority that was logged, 0 to 4294967295."""
        return self.view.priority

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.view.state

    @property
    def t_submit(self) -> float:
        """Seconds since the Unix epoch."""
        return self.view.t_submit

    @property
    def flags(self) -> int:
        """A mask of JobFlag (RFC 21, Submit Event)."""
        return self.view.flags

    @property
    def dependencies(self) -> frozenset[str]:
        """The descriptions of the open dependencies."""
        return frozenset(self.view.dependencies or ())

    @property
    def prologs(self) -> frozenset[str]:
        """The descriptions of the open prologs, which hold the start."""
        return frozenset(self.view.prologs or ())

    @property
    def start_requested(self) -> bool:
        """Whether the execution service was asked to start the job, which may be running."""
        return self.view.start_requested

    @property
    def epilogs(self) -> frozenset[str]:
        """The descriptions of the open epilogs, which hold the resources."""
        return frozenset(self.view.epilogs or ())

    @property
    def annotations(self) -> dict[str, Any]:
        """A copy of all annotations (RFC 27, Alloc Annotate)."""
        return copy.deepcopy(self.view.annotations or {})

    @property
    def raw_jobspec(self) -> dict[str, Any]:
        """A copy of the decoded jobspec without the environment, with updates applied."""
        decoded: dict[str, Any] = msgspec.json.decode(self.view.current_jobspec_bytes())
        return decoded

    @property
    def jobspec(self) -> Jobspec:
        """The parsed jobspec (RFC 14), wholly read-only. Raises FormatError if it is malformed."""
        return _parse(self.view.current_jobspec_bytes())

    @property
    def submitted_jobspec(self) -> Jobspec:
        """The jobspec as it was submitted, without updates. Raises FormatError as `jobspec`."""
        return _parse(self.view.submitted_jobspec_bytes())

    @property
    def R(self) -> dict[str, Any] | None:  # noqa: N802 - RFC 20's name for it
        """R (RFC 20) without `scheduling`, from RUN on; None before."""
        return self.view.resource_set()

    @property
    def result(self) -> str | None:
        """In CLEANUP and INACTIVE: completed, failed, canceled or timeout; else None."""
        return _result_of(self.view)

    @property
    def exception(self) -> dict[str, Any] | None:
        """The context of the fatal exception that ended the job (RFC 21, Exception Event)."""
        return copy.deepcopy(self.view.exception)

    # --- why it is here

    @property
    def topic(self) -> str:
        """The topic of the hook that was given this job; "" for a job that was looked up."""
        return self._question.topic if self._question else ""

    @property
    def previous(self) -> JobState | None:
        """In job.state.*: the state before the transition."""
        return self._question.previous if self._question else None

    @property
    def event(self) -> Event | None:
        """In job.state.* and job.event.*: the event that caused the hook."""
        args = self._question.args if self._question else None
        return copy.deepcopy(args) if isinstance(args, Event) else None

    @property
    def plugin(self) -> PluginSelf:
        """The plugin that was given this job; a module plugin uses it in place of `self`."""
        return self._job_host.plugin

    @property
    def data(self) -> dict[str, Any]:
        """The plugin's own data about this job; deleted with the job or the plugin."""
        return self._job_host.data_of(self.view)

    def _now(self) -> Job | None:
        """Return the same job as it is now; None if it is over and cannot be looked up."""
        now = self._job_host.current(self.view)
        return None if now is None else Job(now, None, self._job_host)

    # --- operations; all raise NotAllowed, naming the rule

    def add_dependency(self, description: str) -> None:
        """Hold the job in DEPEND until the dependency is removed; in NEW and DEPEND only.

        Nothing happens if the job has it already. A dependency that was removed cannot be added
        again.
        """
        self.post(JobEvent.DEPENDENCY_ADD, {"description": description})

    def remove_dependency(self, description: str) -> None:
        """Let the job go on, unless another dependency holds it; in NEW and DEPEND only.

        Nothing happens if it was removed already, or if the job has ended.
        """
        self.post(JobEvent.DEPENDENCY_REMOVE, {"description": description})

    def set_priority(self, priority: int | Unavailable) -> None:
        """Set a priority, 0 (held) to 4294967295, outside a priority hook.

        It has no effect unless the job is in PRIORITY or SCHED.
        """
        self._job_host.do(SetPriority(self.id, priority_of(priority), self.plugin.name))

    def prolog_start(self, description: str) -> None:
        """Hold the start of a job in RUN until this prolog has finished."""
        self.post(JobEvent.PROLOG_START, {"description": description})

    def prolog_finish(self, description: str, status: int = 0) -> None:
        """Finish a prolog; `status` is a wait status, for information only."""
        self.post(JobEvent.PROLOG_FINISH, {"description": description, "status": status})

    def epilog_start(self, description: str) -> None:
        """Hold the resources of a job in CLEANUP until this epilog has finished."""
        self.post(JobEvent.EPILOG_START, {"description": description})

    def epilog_finish(self, description: str, status: int = 0) -> None:
        """Finish an epilog; `status` is a wait status, for information only."""
        self.post(JobEvent.EPILOG_FINISH, {"description": description, "status": status})

    def post(self, name: str, context: Mapping[str, Any] | None = None) -> None:
        """Log an event before clean; the events that the job manager itself logs are not allowed.

        Nothing happens if it would open a dependency, prolog or epilog that is open, or remove a
        dependency that was removed.
        """
        wanted = plain(context or {}, str(name))
        now = self._job_host.current(self.view)
        queued = [] if now is None else list(self._job_host.queued(now))
        if is_done(now, name, wanted, queued):
            return
        if now is None:
            raise self._refusal(f"{name}: the job is inactive")
        # a repeat is sent, too: by it a plugin resumes what an earlier process left open
        if not is_repeat(now, name, wanted, queued):
            rule = refusal(now, name, wanted, queued)
            if rule is not None:
                raise self._refusal(rule)
        self._job_host.do(PostEvent(self.id, str(name), wanted, self.plugin.name))

    def event_posted(self, name: str) -> bool:
        """Return whether an event of this name has been logged, or waits to be logged."""
        now = self._job_host.current(self.view) or self.view
        return now.was_posted(name) or any(name == each for each, _ in self._job_host.queued(now))

    def raise_exception(self, type: str, severity: int = 0, note: str = "") -> None:  # noqa: A002 - RFC 21's word
        """Log an exception. Severity 0 ends the job (not in NEW); 1 to 7 record a problem."""
        context = {"type": type, "severity": severity, "note": note}
        self.post(JobEvent.EXCEPTION, context | {"userid": self.plugin.owner})

    def update(self, values: Mapping[str, Any]) -> None:
        """Change the jobspec by keys such as `attributes.system.duration`; before RUN only.

        A job in SCHED goes back to PRIORITY.
        """
        self.post(JobEvent.JOBSPEC_UPDATE, values)

    def set_flag(self, name: str) -> None:
        """Set a flag: waitable, debug, alloc-bypass or immutable."""
        self.post(JobEvent.SET_FLAGS, {"flags": [name]})

    def annotate(self, annotations: Mapping[str, Any]) -> None:
        """Merge annotations into the job's; None removes a key (RFC 27, Alloc Annotate)."""
        now = self._job_host.current(self.view)
        if now is None or now.state == JobState.INACTIVE:
            raise self._refusal("only active jobs have annotations")
        self._job_host.do(Annotate(self.id, plain(annotations, "annotations"), self.plugin.name))

    def allocate(self, resource_set: Mapping[str, Any]) -> None:
        """In job.state.sched: run this job on these resources (RFC 20), without the scheduler."""
        self._job_host.allocate(self._question, plain(resource_set, "R", R_BYTES_MAX))

    def subscribe(self) -> None:
        """Call the plugin's job.event.* handlers for this job from now on."""
        self._job_host.subscribe(self.view)

    def unsubscribe(self) -> None:
        """Stop calling the plugin's job.event.* handlers for this job."""
        self._job_host.unsubscribe(self.id)

    def _refusal(self, rule: str) -> NotAllowed:
        """Return the error of an operation: the hook that runs may be about another job."""
        return NotAllowed(f"job {format_fluid(self.id, 'f58')}: {rule}")


def _read(jobspec: bytes) -> Jobspec:
    return read_only(Jobspec.parse_general(jobspec))


_parse = cached_for_short(_read, maxsize=_JOBSPECS_KEPT)


def _result_of(view: JobView) -> str | None:
    if view.state not in (JobState.CLEANUP, JobState.INACTIVE):
        return None
    if view.exception is not None:
        return {"cancel": "canceled", "timeout": "timeout"}.get(view.exception["type"], "failed")
    if view.status is None:
        return "failed"
    return "completed" if view.status == 0 else "failed"


T = TypeVar("T")

R_BYTES_MAX = 2**22  # enough for 16,384 nodes that are all different


class JobLookup(Protocol):
    """`Plugin.jobs`: the jobs as they are now, by id."""

    def get(self, jobid: int) -> Job | None:
        """Return a job that is active, or became inactive a short while ago; else None."""

    def active(self) -> Iterator[Job]:
        """Yield all active jobs, oldest first."""

    def result(self, jobid: int) -> str | None:
        """Return how a job in CLEANUP or INACTIVE ended: completed, failed, canceled, timeout."""


class Host(Protocol):
    """The parts of the instance that a loaded plugin can use."""

    @property
    def owner(self) -> int:
        """The instance owner's userid."""

    @property
    def users(self) -> Any:
        """The user database."""

    @property
    def config(self) -> Config:
        """The instance's configuration."""

    @property
    def jobs(self) -> JobLookup:
        """Jobs by id."""

    def now(self) -> float:
        """Seconds since the Unix epoch, by the instance's clock."""

    def passed(self) -> float:
        """Seconds since some moment."""

    def clock_look_s(self) -> float:
        """How long to wait at most before asking `now` again."""

    def log(self, level: int, text: str) -> None:
        """Write to the instance's log."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `function` in the plugin's nursery."""

    def call(self, topic: str, args: Any = None) -> Any:
        """Ask the other plugins."""

    async def rpc(self, topic: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask a service of the instance."""

    def listen(self, topic: str, *, wanted: bool) -> None:
        """Start or stop calling the handler of a topic."""

    def reprioritize_all(self) -> None:
        """Compute all priorities again."""


class PluginSelf(Host, Protocol):
    """The part of `Plugin` that authors use: the type of `Job.plugin`."""

    name: str
    conf: dict[str, Any]

    def read_conf(self, shape: type[T]) -> T:
        """Return `conf` as a msgspec struct. Raises Reject."""


class JobHost(Protocol):
    """The part of the plugin host that a `Job` uses."""

    @property
    def plugin(self) -> PluginSelf:
        """The plugin that was given the job."""

    def do(self, operation: Operation) -> None:
        """Put an operation into the answer of the hook that runs, else send it as an input."""

    def current(self, view: JobView) -> JobView | None:
        """Return the job of `view` as it is now; None if it is over and cannot be looked up."""

    def queued(self, view: JobView) -> Queued:
        """Return the events that wait to be logged, including those of the hook that runs."""

    def allocate(self, question: AskHook | None, resource_set: dict[str, Any]) -> None:
        """Run the job of `question` on these resources. Raises NotAllowed."""

    def data_of(self, view: JobView) -> dict[str, Any]:
        """Return the plugin's data about a job."""

    def subscribe(self, view: JobView) -> None:
        """Tell the plugin of this job's events. Raises NotAllowed if the job is inactive."""

    def unsubscribe(self, jobid: int) -> None:
        """Do not tell the plugin of this job's events any more."""
