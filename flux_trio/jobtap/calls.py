"""What the host gets from the instance, the record of one call, and a question to all plugins.

A question goes along the chain of plugins, and has their answers so far.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.formats import format_fluid
from flux_trio.jobtap.catalogue import Hook, Returns
from flux_trio.jobtap.loaded import Entry
from flux_trio.jobtap.plain import plain, readable
from flux_trio.jobtap.results import is_priority, shown
from flux_trio.jobtap.tasks import Work
from flux_trio.jobtap.values import Dependency, UpdateAllowed
from flux_trio.messages import Errno, FluxError
from flux_trio.protocols import (
    AskHook,
    DependencyAsked,
    HookAnswer,
    HookArgs,
    JobView,
    Operation,
    PostEvent,
    Unavailable,
    UpdateApplied,
)

CANCELED: Final = "canceled"
"""The error, in the trace, of a call whose answer is no longer awaited; it is not a failure."""


async def _no_rpc(topic: str, _payload: dict[str, Any] | None) -> dict[str, Any]:
    raise FluxError(Errno.ENOSYS, f"nobody answers {topic}")


class HostServices(msgspec.Struct, frozen=True):
    """The parts of the instance that the host uses.

    `post` sends an input to the job manager; `note_all` puts records into the trace, and
    `is_traced` says whether somebody reads them; `now` is the instance's clock; `owner` is the
    instance owner's userid and `users` the user database. `abandon` is told the names of the tasks
    that went on when the host ended.
    """

    post: Callable[[Any], None]
    note_all: Callable[[str, Sequence[dict[str, Any]]], None]
    is_traced: Callable[[], bool]
    now: Callable[[], float]
    log: Callable[[int, str], None]
    rpc: Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]] = _no_rpc
    owner: int = 0
    users: Any = None
    abandon: Callable[[list[str]], None] = lambda _names: None


class NoJobs:
    """The `Jobs` of a host without a job manager: there are no jobs."""

    def get(self, _jobid: int) -> JobView | None:
        """Return None."""
        return None

    def active(self) -> Iterable[JobView]:
        """Return no job."""
        return ()


class Call(NamedTuple):
    """One call of a handler: how many operations there were before it, and when it began."""

    entry: Entry
    mark: int
    began: float
    t_began: float

    @property
    def times(self) -> tuple[float, float]:
        """When the call began, by the instance's clock and by the real clock."""
        return self.began, self.t_began


def note_of(
    plugin: str, hook: str, jobid: int | None, result: Any, error: str | None, duration: float
) -> dict[str, Any]:
    """Return the trace record of a call; `duration` is in seconds."""
    return {
        "plugin": plugin,
        "hook": hook,
        "id": jobid,
        "result": result,
        "error": error,
        "duration": duration,
    }


def notes_of_many(
    entry: Entry, hook: str, views: Sequence[JobView], said: Sequence[Any], duration: float
) -> list[dict[str, Any]]:
    """Return the trace records of a call about many jobs; `duration` is for each of them."""
    common = note_of(entry.plugin, hook, None, None, None, duration)
    return [
        {**common, "id": view.id, "result": value if type(value) is int else shown(value)}
        for view, value in zip(views, said, strict=True)
    ]


def blame(entry: Entry, hook: str, view: JobView | None, problem: str) -> str:
    """Return a text that names plugin, hook, job and problem."""
    return f"plugin {entry.owner.name} failed in {hook}{of_job(view)}: {problem}"


def of_job(view: JobView | None) -> str:
    """Return a text that names the job behind what is done for it, if there is one."""
    return "" if view is None else f" for job {format_fluid(view.id, 'f58')}"


NOTHING_SAID: Final = HookAnswer()


class Asking:
    """Collects the answer; the values of a later plugin overwrite those of an earlier one.

    `done` is called with this object and the answer, if the answer does not come at once.
    """

    # Most questions end with these defaults, so they are attributes of the class.
    operations: list[Operation] | None = None
    resource_set: dict[str, Any] | None = None
    priority: int | Unavailable | None = None
    reject: str | None = None
    error: str | None = None
    allowed: UpdateAllowed | None = None  # the last one
    said: Any = None  # the last value of a query or a custom topic
    closed = False  # answered or canceled
    work: Work  # the task of the async handler that runs

    def __init__(
        self,
        question: AskHook,
        hook: Hook,
        chain: Sequence[Entry],
        done: Callable[[Asking, HookAnswer], None],
    ) -> None:
        self.question = question
        self.hook = hook
        self.rest: Iterator[Entry] = iter(chain)
        self.done = done

    def own_args(self) -> Any:
        """Return the second argument of one handler.

        It is a copy: the handlers of other plugins and the job manager get the same value.
        """
        args = self.question.args
        if len(self.hook.parameters) == 1:
            return args  # a configuration, or what a plugin hands to the others
        return _own_copy(args)

    def takes(self, said: Any) -> bool:
        """Take the value of a handler, which is not None; return False for a wrong type or range.

        Raises NotAllowed for a value that JSON cannot hold.
        """
        match self.hook.returns:
            case Returns.PRIORITY if is_priority(said):
                self.priority = said
            case Returns.ALLOWED if isinstance(said, UpdateAllowed):
                self.allowed = replace(said, updates=plain(said.updates, "updates"))
            case Returns.OBJECT if isinstance(said, dict):
                self.said = said
            case Returns.TEXT if isinstance(said, str):
                self.said = readable(said)
            case Returns.ANYTHING:
                self.said = said
            case _:
                return False
        return True

    def do(self, operation: Operation) -> None:
        """Put an operation of a handler into the answer."""
        if self.operations is None:
            self.operations = []
        self.operations.append(operation)

    def forget_since(self, mark: int) -> None:
        """Drop all operations but the first `mark`: the handler that called them failed."""
        if self.operations is not None:
            del self.operations[mark:]

    @property
    def is_decided(self) -> bool:
        """Whether a handler has failed or refused, which ends the chain."""
        return self.error is not None or self.reject is not None

    def is_about(self, jobid: int) -> bool:
        """Return whether the question is about this job."""
        return self.question.job is not None and self.question.job.id == jobid

    def posts_to(self, jobid: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events (name, context) that the answer posts to a job."""
        for each in self.operations or ():
            if isinstance(each, PostEvent) and each.id == jobid:
                yield each.name, each.context

    def answer(self) -> HookAnswer:
        """Close the question and return the combined answer."""
        self.closed = True
        allowed = self.allowed
        if (
            self.reject is None
            and self.error is None
            and self.operations is None
            and self.resource_set is None
            and allowed is None
        ):  # nearly always
            return NOTHING_SAID if self.priority is None else HookAnswer(self.priority)
        return HookAnswer(
            priority=self.priority,
            reject=self.reject,
            error=self.error,
            operations=tuple(self.operations or ()),
            resource_set=self.resource_set,
            handled=allowed is not None,
            validated=allowed is not None and allowed.validated,
            feasible=allowed is not None and allowed.feasible,
            updates=dict(allowed.updates) if allowed is not None else None,
        )


def _own_copy(args: HookArgs) -> Any:
    """Return the argument that handlers get."""
    match args:
        case DependencyAsked(entry):
            return Dependency.of(copy.deepcopy(entry))
        case UpdateApplied(updates):
            return copy.deepcopy(updates)
        case _:
            return copy.deepcopy(args)
