"""`Job`: what a handler holds of a job. It reads the job itself, as it is at that moment, and what
it asks for is checked at the call.

An operation called while a hook runs goes into that hook's answer, and is done when the hook has
returned; called at any other time it goes to the job machine. Nothing happens inside the call.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from flux_trio.formats import Event, Jobspec, format_fluid
from flux_trio.jobtap.errors import NotAllowed
from flux_trio.jobtap.plain import plain, read_only
from flux_trio.jobtap.results import priority_of
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
from flux_trio.protocols.operations import Queued, is_repeat, refusal

if TYPE_CHECKING:
    from flux_trio.jobtap.plugin import Plugin

R_BYTES_MAX = 2**22  # of 16,384 nodes that have nothing in common
_JOBSPECS_KEPT = 64  # parsed once for all plugins of a chain, and its next states


class Keeper(Protocol):
    """What a job's handle needs of the host: the record of the plugin that holds it."""

    plugin: Plugin

    def do(self, operation: Operation) -> None:
        """Put it into the answer of the hook that runs, else to the job machine."""

    def queued(self, view: JobView) -> Queued:
        """What waits to be logged, with what the hook that runs has asked for."""

    def allocate(self, question: AskHook | None, resource_set: dict[str, Any]) -> None:
        """Run the job of `question` on these resources. Raises NotAllowed."""

    def data_of(self, view: JobView) -> dict[str, Any]:
        """What the plugin keeps for a job."""

    def subscribe(self, view: JobView) -> None:
        """Tell the plugin of this job's events."""

    def unsubscribe(self, jobid: int) -> None:
        """No longer."""


class Job:
    """One job, for one plugin. Keep it as long as you like; `view` is the host's."""

    __slots__ = ("_keeper", "_question", "view")

    def __init__(self, keeper: Keeper, view: JobView, question: AskHook | None) -> None:
        self._keeper = keeper
        self.view = view
        self._question = question

    def __repr__(self) -> str:
        return f"<Job {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- what it is

    @property
    def id(self) -> int:
        """The job id."""
        return self.view.id

    @property
    def userid(self) -> int:
        """Who submitted it."""
        return self.view.userid

    @property
    def urgency(self) -> int:
        """0 to 31; 0 holds the job and 31 expedites it, whatever a plugin says."""
        return self.view.urgency

    @property
    def priority(self) -> int:
        """The last one given, 0 to 4294967295."""
        return self.view.priority

    @property
    def state(self) -> JobState:
        """Where it is now; during a hook it does not change."""
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
        """What it waits for now, by description."""
        return frozenset(self.view.dependencies or ())

    @property
    def prologs(self) -> frozenset[str]:
        """Those that hold its start now, by description."""
        return frozenset(self.view.prologs or ())

    @property
    def start_requested(self) -> bool:
        """Whether it may be running: the execution service has been asked to start it."""
        return self.view.start_requested

    @property
    def epilogs(self) -> frozenset[str]:
        """Those that hold its resources now, by description."""
        return frozenset(self.view.epilogs or ())

    @property
    def annotations(self) -> dict[str, Any]:
        """All there are (RFC 27, Alloc Annotate)."""
        return copy.deepcopy(self.view.annotations or {})

    @property
    def raw_jobspec(self) -> dict[str, Any]:
        """The jobspec as JSON has it, without the environment, updates applied; a copy."""
        decoded: dict[str, Any] = msgspec.json.decode(self.view.current_jobspec_bytes())
        return decoded

    @property
    def jobspec(self) -> Jobspec:
        """The same, parsed (RFC 14), to be read only. Raises FormatError for one that is none."""
        return _parse(self.view.current_jobspec_bytes())

    @property
    def R(self) -> dict[str, Any] | None:  # noqa: N802 - RFC 20's name for it
        """Its resources from RUN on (an RFC 20 object without `scheduling`), None before."""
        return self.view.resource_set()

    @property
    def result(self) -> str | None:
        """In CLEANUP and INACTIVE: completed, failed, canceled or timeout; None before."""
        return _result_of(self.view)

    @property
    def exception(self) -> dict[str, Any] | None:
        """Context of the fatal exception that ended it (RFC 21, Exception Event)."""
        return None if self.view.exception is None else dict(self.view.exception)

    # --- why it is here

    @property
    def plugin(self) -> Plugin:
        """The plugin that holds this handle: what a module plugin has in place of `self`."""
        return self._keeper.plugin

    @property
    def topic(self) -> str:
        """The hook this handle was given to, "" for one that was looked up."""
        return self._question.topic if self._question else ""

    @property
    def previous(self) -> JobState | None:
        """In job.state.*: the state it came from."""
        return self._question.previous if self._question else None

    @property
    def event(self) -> Event | None:
        """In job.state.* and job.event.*: the event that caused this."""
        args = self._question.args if self._question else None
        return copy.deepcopy(args) if isinstance(args, Event) else None

    @property
    def data(self) -> dict[str, Any]:
        """The plugin's own, for this job; gone with the job or the plugin."""
        return self._keeper.data_of(self.view)

    # --- what may be done with it; all raise NotAllowed, naming the rule

    def add_dependency(self, description: str) -> None:
        """Hold the job in DEPEND until this is removed; in NEW and DEPEND.

        Silent when it is there already. One that was removed cannot be added again.
        """
        self.post(JobEvent.DEPENDENCY_ADD, {"description": description})

    def remove_dependency(self, description: str) -> None:
        """The job need not wait for this any more; in NEW and DEPEND."""
        self.post(JobEvent.DEPENDENCY_REMOVE, {"description": description})

    def set_priority(self, priority: int | Unavailable) -> None:
        """A priority from 0 (held) to 4294967295, when it is known outside a priority hook.

        Without effect unless the job is in PRIORITY or SCHED.
        """
        self._keeper.do(SetPriority(self.id, priority_of(priority), self.plugin.name))

    def prolog_start(self, description: str) -> None:
        """Hold the start of a job in RUN until this prolog has finished."""
        self.post(JobEvent.PROLOG_START, {"description": description})

    def prolog_finish(self, description: str, status: int = 0) -> None:
        """A prolog has ended; `status` is a wait status, for information only."""
        self.post(JobEvent.PROLOG_FINISH, {"description": description, "status": status})

    def epilog_start(self, description: str) -> None:
        """Hold the resources of a job in CLEANUP until this epilog has finished."""
        self.post(JobEvent.EPILOG_START, {"description": description})

    def epilog_finish(self, description: str, status: int = 0) -> None:
        """An epilog has ended; `status` is a wait status, for information only."""
        self.post(JobEvent.EPILOG_FINISH, {"description": description, "status": status})

    def post(self, name: str, context: Mapping[str, Any] | None = None) -> None:
        """Log an event; not one by which the job manager moves a job, and not after clean.

        Silent when it would open a dependency, prolog or epilog that is open.
        """
        wanted = plain(context or {}, str(name))
        queued = list(self._keeper.queued(self.view))
        # a repeat is told all the same: so the plugin goes on with what an earlier life left open
        if not is_repeat(self.view, name, wanted, queued):
            rule = refusal(self.view, name, wanted, queued)
            if rule is not None:
                raise NotAllowed(rule)
        self._keeper.do(PostEvent(self.id, str(name), wanted, self.plugin.name))

    def event_posted(self, name: str) -> bool:
        """Whether an event of this name was logged, or is about to be."""
        queued = self._keeper.queued(self.view)
        return self.view.was_posted(name) or any(name == each for each, _ in queued)

    def raise_exception(self, type: str, severity: int = 0, note: str = "") -> None:  # noqa: A002 - RFC 21's word
        """Log an exception; severity 0 ends the job, 1 to 7 only record. Not fatal in NEW."""
        context = {"type": type, "severity": severity, "note": note}
        self.post(JobEvent.EXCEPTION, context | {"userid": self.plugin.owner})

    def update(self, values: Mapping[str, Any]) -> None:
        """Change the jobspec, by key such as `attributes.system.duration`; before RUN.

        A job in SCHED goes back to PRIORITY.
        """
        self.post(JobEvent.JOBSPEC_UPDATE, values)

    def set_flag(self, name: str) -> None:
        """Set a flag: waitable, debug, alloc-bypass or immutable."""
        self.post(JobEvent.SET_FLAGS, {"flags": [name]})

    def annotate(self, annotations: Mapping[str, Any]) -> None:
        """Merge annotations into the job's; None removes a key (RFC 27, Alloc Annotate)."""
        if self.state == JobState.INACTIVE:
            raise NotAllowed("only active jobs have annotations")
        self._keeper.do(Annotate(self.id, plain(annotations, "annotations"), self.plugin.name))

    def allocate(self, resource_set: Mapping[str, Any]) -> None:
        """In job.state.sched: run this job on these resources (RFC 20), without the scheduler."""
        self._keeper.allocate(self._question, plain(resource_set, "R", R_BYTES_MAX))

    def subscribe(self) -> None:
        """From now on, job.event.* of this job is told to the plugin."""
        self._keeper.subscribe(self.view)

    def unsubscribe(self) -> None:
        """End that."""
        self._keeper.unsubscribe(self.id)


@functools.lru_cache(maxsize=_JOBSPECS_KEPT)
def _parse(jobspec: bytes) -> Jobspec:
    return read_only(Jobspec.parse_general(jobspec))


def _result_of(view: JobView) -> str | None:
    if view.state not in (JobState.CLEANUP, JobState.INACTIVE):
        return None
    if view.exception is not None:
        return {"cancel": "canceled", "timeout": "timeout"}.get(view.exception["type"], "failed")
    if view.status is None:
        return "failed"
    return "completed" if view.status == 0 else "failed"
