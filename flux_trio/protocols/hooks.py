"""Hooks as questions: what the job manager asks plugins, and the possible answers.

A question is an output of the job manager's core (`AskHook`), its answer an input
(`HookAnswered`). Plugins that can answer at once do so before the core gets any other input.
Otherwise the job waits, and its later events wait too, except a fatal exception, which ends the
wait. An `Operation` is a change that a plugin requests. Operations called in a hook come with its
answer; others come as inputs at any time. The topics are those of jobtap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from flux_trio.formats import Event
from flux_trio.formats.glob import glob_matches, is_glob
from flux_trio.formats.meanings import JobId, Json
from flux_trio.protocols.job import JobState

if TYPE_CHECKING:  # no command that asks one thing needs the tables of a configuration
    from flux_trio.config import Config

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
EXPLAIN: Final = "job.explain"

# Prefixes of topics; a dependency's scheme, a jobspec key or an event name follows.
DEPENDENCY_PREFIX: Final = "job.dependency."
UPDATE_PREFIX: Final = "job.update."
EVENT_PREFIX: Final = "job.event."

# The topic of each state: asked after a transition into it, before that state's action.
STATE_TOPICS: Final = {state: f"job.state.{state.name.lower()}" for state in JobState}


class Unavailable:
    """A plugin does not know the priority yet: the job waits in PRIORITY."""

    def __repr__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = Unavailable()


class JobView(Protocol):
    """The part of a job that a plugin may read: a value that never changes."""

    @property
    def id(self) -> int:
        """The job id."""

    @property
    def userid(self) -> int:
        """The user who submitted it."""

    @property
    def urgency(self) -> int:
        """0 to 31."""

    @property
    def priority(self) -> int:
        """The last priority logged; 0 before the first."""

    @property
    def state(self) -> JobState:
        """The state of the job when the view was made."""

    @property
    def t_submit(self) -> float:
        """Seconds since the Unix epoch."""

    @property
    def flags(self) -> int:
        """A mask of JobFlag."""

    @property
    def dependencies(self) -> Set[str] | None:
        """Descriptions of dependencies that are not satisfied yet."""

    @property
    def prologs(self) -> Set[str] | None:
        """Descriptions of prologs that run now."""

    @property
    def epilogs(self) -> Set[str] | None:
        """Descriptions of epilogs that run now."""

    @property
    def has_resources(self) -> bool:
        """Alloc was logged and free was not."""

    @property
    def dependencies_met(self) -> Set[str] | None:
        """Descriptions of dependencies that were satisfied or removed."""

    @property
    def start_requested(self) -> bool:
        """A start request was sent to the execution service, or the job has started."""

    def was_posted(self, name: str) -> bool:
        """Return whether an event `name` was logged."""

    @property
    def annotations(self) -> dict[str, Any] | None:
        """All annotations (RFC 27, Alloc Annotate)."""

    @property
    def exception(self) -> dict[str, Any] | None:
        """Context of the fatal exception that ended the job."""

    @property
    def status(self) -> int | None:
        """Wait status of its finish event."""

    def current_jobspec_bytes(self) -> bytes:
        """Return the jobspec as JSON, without environment, with updates applied."""

    def submitted_jobspec_bytes(self) -> bytes:
        """Return the jobspec as JSON, without environment, as it was submitted."""

    def resource_set(self) -> dict[str, Any] | None:
        """Return R (RFC 20) without its scheduling key; None before RUN."""

    def queued(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return events (name, context) that wait for the answer of a hook of the job."""


class Jobs(Protocol):
    """The jobs that a plugin may look up."""

    def get(self, jobid: int) -> JobView | None:
        """Return a job that is active, or became inactive a short while ago; else None."""

    def active(self) -> Iterable[JobView]:
        """Return all active jobs, oldest first."""


# --- operations


class PostEvent(msgspec.Struct, frozen=True):
    """Log an event of a job: a dependency, prolog, epilog, exception, jobspec-update, flags."""

    id: JobId
    name: str
    context: dict[str, Json]
    plugin: str


class SetPriority(msgspec.Struct, frozen=True):
    """Set a job's priority after the hook; None means that it became unavailable."""

    id: JobId
    priority: int | None
    plugin: str


class Annotate(msgspec.Struct, frozen=True):
    """Merge annotations into a job's annotations (RFC 27, Alloc Annotate); None removes a key."""

    id: JobId
    annotations: dict[str, Json]
    plugin: str


class Reprioritize(msgspec.Struct, frozen=True):
    """Ask again for the priority of every job in PRIORITY or SCHED."""

    plugin: str


Operation = PostEvent | SetPriority | Annotate | Reprioritize


# --- questions and answers: structs for speed, since each change of state makes several


class DependencyAsked(msgspec.Struct, frozen=True, gc=False):
    """The further input of job.dependency.*: an entry of the jobspec's dependencies."""

    entry: dict[str, Json]


class UpdateAsked(msgspec.Struct, frozen=True):
    """A user asks to set the jobspec's `key` to `value`."""

    key: str
    value: Json
    userid: int
    is_owner: bool


class UpdateApplied(msgspec.Struct, frozen=True, gc=False):
    """The further input of job.update: the new values, by jobspec key."""

    updates: dict[str, Json]


HookArgs: TypeAlias = "DependencyAsked | UpdateAsked | UpdateApplied | Event | Config | None"
"""The further input of a hook: `UpdateAsked` for job.update.KEY, an event for job.event.* and for
the states, the configuration for conf.update, None for hooks that only have a job."""


class AskHook(msgspec.Struct, frozen=True, gc=False):
    """Ask the plugins that handle `topic`; the answer has the same `ticket`.

    `only` limits the question to one plugin.
    """

    ticket: int
    topic: str
    job: JobView | None
    args: HookArgs = None
    only: str | None = None
    previous: JobState | None = None  # for job.state.*: the state before the transition


class AskJobs(msgspec.Struct, frozen=True):
    """Ask the plugins that handle `topic` about many jobs: one question for each, in order.

    The question about jobs[i] has the ticket `ticket` + i. `JobsAnswered` has the answers.
    """

    ticket: int
    topic: str
    jobs: tuple[JobView, ...]

    def questions(self) -> Iterator[AskHook]:
        """Yield the questions one by one."""
        for place, job in enumerate(self.jobs):
            yield AskHook(self.ticket + place, self.topic, job)


class HookAnswer(msgspec.Struct, frozen=True, gc=False):
    """The combined answer of the plugins; a later plugin's values overwrite an earlier one's.

    `priority` is None if no plugin set one. `reject` is one sentence for the user. `error` names
    the plugin, hook, job and value of a failure; the job is held or rejected with this text.
    `resource_set` (job.state.sched only) runs the job on that R without a scheduler. `handled`,
    `validated`, `feasible` and `updates` answer job.update.KEY: a plugin knows the key;
    job.validate is not needed again; feasibility is known; further jobspec updates to apply.
    """

    priority: int | Unavailable | None = None
    reject: str | None = None
    error: str | None = None
    operations: tuple[Operation, ...] = ()  # in the order of the calls
    resource_set: dict[str, Json] | None = None
    handled: bool = False
    validated: bool = False
    feasible: bool = False
    updates: dict[str, Json] | None = None


class HookAnswered(msgspec.Struct, frozen=True, gc=False):
    """The answer to the AskHook with this ticket: input of the job manager."""

    ticket: int
    answer: HookAnswer


class HookPostponed(msgspec.Struct, frozen=True, gc=False):
    """The answer to the AskHook with this ticket comes later: input of the job manager."""

    ticket: int


class JobsAnswered(msgspec.Struct, frozen=True):
    """The answers to the AskJobs with this ticket, one for each job: input of the job manager.

    An answer that is None comes later, as `HookAnswered`.
    """

    ticket: int
    answers: tuple[HookAnswer | None, ...]


class CancelHook(msgspec.Struct, frozen=True):
    """The job manager no longer waits for the answer with this ticket: its output."""

    ticket: int


class NotifyPlugins(msgspec.Struct, frozen=True, gc=False):
    """Notify plugins without an answer: output of the job manager.

    The topics are job.event.*, job.inactive-add, -remove and job.destroy. job.event.* goes only to
    the plugins that subscribed to the job.
    """

    topic: str
    job: JobView
    args: HookArgs = None


PluginAction = AskHook | AskJobs | CancelHook | NotifyPlugins
"""Outputs of the job manager for plugins. They are processed before its next input; the reply to an
AskHook is `HookAnswered` or `HookPostponed`, the reply to an AskJobs is `JobsAnswered`."""

PluginReply = HookAnswered | HookPostponed | JobsAnswered


class PluginsChanged(msgspec.Struct, frozen=True):
    """A plugin was loaded on the running instance, or removed: input of the job manager.

    The job manager tells a `loaded` plugin about the active jobs, in `order`; then it asks for all
    priorities again.
    """

    loaded: str | None = None
    order: str = "none"  # none, state, -state
    ticket: int = 0  # answered by PluginReplayed


class PluginReplayed(msgspec.Struct, frozen=True):
    """Every active job was presented to the plugin of this ticket: output of the job manager."""

    ticket: int


class PluginInterests(msgspec.Struct, frozen=True):
    """The interests of plugins: the first input of a turn of the job manager.

    `topics` are all topics and globs that a plugin handles now, None if they have not changed.
    `subscribed` are the jobs that got their first subscription since the last of these inputs,
    `unsubscribed` the jobs whose last subscription ended since then. `notes` says whether the notes
    of events in the trace have a reader, None if that has not changed; at first they have one.
    `of_many` comes with `topics`: the topics for which all handlers answer for many jobs in one
    call.
    """

    topics: tuple[str, ...] | None = None
    subscribed: tuple[JobId, ...] = ()
    unsubscribed: tuple[JobId, ...] = ()
    notes: bool | None = None
    of_many: tuple[str, ...] = ()


def handles(pattern: str, topic: str) -> bool:
    """Return whether a handler of `pattern`, a topic or a glob of topics, handles `topic`.

    A glob that is broader than job.dependency. matches no dependency: a plugin that handles every
    hook does not support every dependency scheme.
    """
    if not is_glob(pattern):
        return topic == pattern
    if topic.startswith(DEPENDENCY_PREFIX) and not pattern.startswith(DEPENDENCY_PREFIX):
        return False
    return glob_matches(pattern, topic)


class Plugins(Protocol):
    """The dispatcher of hooks, as the job manager's service sees it."""

    def news(self) -> PluginInterests | None:
        """Return the changes since the last call; None without a change."""

    def ask(self, question: AskHook) -> HookAnswer | None:
        """Return the answer; None if it comes later, as HookAnswered."""

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        """Return the answers about many jobs; a plugin is asked about one job after another."""

    def cancel(self, ticket: int) -> None:
        """Stop waiting for this answer."""

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:
        """Notify without waiting: see `NotifyPlugins`."""
