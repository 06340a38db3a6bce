"""Hooks as questions: what the job machine asks of plugins, and what may come back.

The job manager asks through `Plugins.ask`. Plugins that answer at once answer there; for others the
job waits until `HookAnswered` comes, and meanwhile the job's later events wait, except a fatal
exception, which ends the wait. What plugins want done are `Operation`s: those of a hook come in its
answer, others at any time as inputs. Topics are jobtap's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from flux_trio.protocols.job import JobState

CREATE: Final = "job.create"
VALIDATE: Final = "job.validate"
NEW: Final = "job.new"
PRIORITY_GET: Final = "job.priority.get"
UPDATED: Final = "job.update"  # a jobspec-update was applied
INACTIVE_ADD: Final = "job.inactive-add"
INACTIVE_REMOVE: Final = "job.inactive-remove"
DESTROY: Final = "job.destroy"
CONF_UPDATE: Final = "conf.update"
QUERY: Final = "plugin.query"

# Families of topics: the rest of the topic is a dependency's scheme, a jobspec key, an event name.
DEPENDENCY_PREFIX: Final = "job.dependency."
UPDATE_PREFIX: Final = "job.update."
EVENT_PREFIX: Final = "job.event."

# The topic asked after a transition into a state, before that state's action.
STATE_TOPICS: Final = {state: f"job.state.{state.name.lower()}" for state in JobState}


class Unavailable:
    """A priority that a plugin cannot tell yet: the job waits in PRIORITY."""

    def __repr__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = Unavailable()


class JobView(Protocol):
    """What a plugin may read of a job; it is the job itself, so read it when you need it."""

    @property
    def id(self) -> int:
        """The job id."""

    @property
    def userid(self) -> int:
        """Who submitted it."""

    @property
    def urgency(self) -> int:
        """0 to 31."""

    @property
    def priority(self) -> int:
        """The last one logged, 0 before it."""

    @property
    def state(self) -> JobState:
        """Where it is now."""

    @property
    def t_submit(self) -> float:
        """Seconds since the Unix epoch."""

    @property
    def flags(self) -> int:
        """A mask of JobFlag."""

    @property
    def dependencies(self) -> set[str] | None:
        """Descriptions that are open."""

    @property
    def prologs(self) -> set[str] | None:
        """Descriptions that are open."""

    @property
    def epilogs(self) -> set[str] | None:
        """Descriptions that are open."""

    @property
    def has_resources(self) -> bool:
        """Alloc was logged, free was not."""

    @property
    def dependencies_met(self) -> set[str] | None:
        """Descriptions that were open once."""

    @property
    def start_requested(self) -> bool:
        """The execution service was asked to start it, or has."""

    def was_posted(self, name: str) -> bool:
        """Whether an event `name` was logged."""

    @property
    def annotations(self) -> dict[str, Any] | None:
        """All of them (RFC 27, Alloc Annotate)."""

    @property
    def exception(self) -> dict[str, Any] | None:
        """Context of the fatal exception that ended it."""

    @property
    def status(self) -> int | None:
        """Wait status of its finish event."""

    def current_jobspec_bytes(self) -> bytes:
        """JSON, environment left out, updates applied."""

    def resource_set(self) -> dict[str, Any] | None:
        """R without its scheduling key, from RUN on (RFC 20 object)."""

    def queued(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Events (name, context) that are logged once the hook being asked has answered."""


class Jobs(Protocol):
    """The jobs a plugin may look up."""

    def get(self, jobid: int) -> JobView | None:
        """An active job, or one that became inactive a short while ago; None for others."""

    def active(self) -> Iterable[JobView]:
        """All that are not inactive, oldest first."""


# --- operations


class PostEvent(msgspec.Struct, frozen=True):
    """Log an event of a job: a dependency, prolog, epilog, exception, jobspec-update, flags."""

    id: int
    name: str
    context: dict[str, Any]
    plugin: str


class SetPriority(msgspec.Struct, frozen=True):
    """A job's priority, now that the plugin knows it; None: it became unavailable."""

    id: int
    priority: int | None
    plugin: str


class Annotate(msgspec.Struct, frozen=True):
    """Merge annotations into a job's (RFC 27, Alloc Annotate); None removes a key."""

    id: int
    annotations: dict[str, Any]
    plugin: str


class Reprioritize(msgspec.Struct, frozen=True):
    """Ask for the priority of every job in PRIORITY or SCHED again."""

    plugin: str


Operation = PostEvent | SetPriority | Annotate | Reprioritize


# --- questions and answers: structs, since several are made for each change of a job's state


class AskHook(msgspec.Struct, frozen=True):
    """Ask the plugins that handle `topic`; answer with the same `ticket`.

    `args` is the hook's further input: the dependency (dict) of job.dependency.*, the
    `UpdateAsked` of job.update.KEY, the updates (dict) of job.update, the event of job.event.* and
    of the states, the configuration of conf.update. `only` names the one plugin to ask.
    """

    ticket: int
    topic: str
    job: JobView | None
    args: Any = None
    only: str | None = None
    previous: JobState | None = None  # for job.state.*: where it came from


@dataclass(frozen=True, slots=True)
class UpdateAsked:
    """Somebody asks to set the jobspec's `key` to `value`."""

    key: str
    value: Any
    userid: int
    is_owner: bool


class HookAnswer(msgspec.Struct, frozen=True):
    """What the plugins said, together; a later plugin's values overwrite an earlier one's.

    `priority` is None when nobody said one; `reject` is one sentence for the user;
    `error` names the plugin, hook, job and value of one that failed, and the job is held or
    rejected with it. `resource_set` (job.state.sched only) runs the job on that R without a
    scheduler. `handled`, `validated`, `feasible` and `updates` answer job.update.KEY: whether
    anybody knows the key; job.validate is not to be asked again; feasibility is known; further
    jobspec updates that go with it.
    """

    priority: int | Unavailable | None = None
    reject: str | None = None
    error: str | None = None
    operations: tuple[Operation, ...] = ()  # in the order they were called
    resource_set: dict[str, Any] | None = None
    handled: bool = False
    validated: bool = False
    feasible: bool = False
    updates: dict[str, Any] | None = None


class HookAnswered(msgspec.Struct, frozen=True):
    """The answer to the AskHook with this ticket, when it did not come at once."""

    ticket: int
    answer: HookAnswer


class PluginsChanged(msgspec.Struct, frozen=True):
    """A plugin was loaded on the running instance, or one went: input of the job machine.

    A `loaded` one is to be told of the active jobs, in `order`; then all priorities are asked for
    again.
    """

    loaded: str | None = None
    order: str = "none"  # none, state, -state
    ticket: int = 0  # answered by PluginReplayed


class PluginReplayed(msgspec.Struct, frozen=True):
    """The plugin of this ticket has been told of every active job: action of the job machine."""

    ticket: int


class Plugins(Protocol):
    """Whoever dispatches hooks, as the job machine sees it."""

    def handles(self, topic: str) -> bool:
        """Whether any plugin has a handler for `topic`: others need not be asked."""

    def ask(self, question: AskHook) -> HookAnswer | None:
        """The answer; None when it comes later, as HookAnswered."""

    def cancel(self, ticket: int) -> None:
        """Nobody waits for this answer any more."""

    def tell(self, topic: str, job: JobView, args: Any = None) -> None:
        """Tell, without waiting: job.event.*, job.inactive-add, -remove, job.destroy.

        job.event.* goes to those who subscribed to the job.
        """

    def subscribed(self, jobid: int) -> bool:
        """Whether any plugin wants this job's events."""
