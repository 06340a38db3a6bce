"""One question on its way along the plugins, and what they have said to it so far."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import trio

from flux_trio.jobtap.catalogue import Hook, Returns, hook_of
from flux_trio.jobtap.loaded import Entry
from flux_trio.jobtap.plain import plain
from flux_trio.jobtap.results import is_priority
from flux_trio.jobtap.values import Dependency, UpdateAllowed
from flux_trio.protocols import (
    DEPENDENCY_PREFIX,
    AskHook,
    HookAnswer,
    Operation,
    PostEvent,
    Unavailable,
)

NOTHING_SAID: Final = HookAnswer()
_DEPENDENCY: Final = hook_of(f"{DEPENDENCY_PREFIX}scheme")


class Asking:
    """Collects the answer; a later plugin's values overwrite an earlier one's.

    `done` is called with this and the answer, when it does not come at once.
    """

    __slots__ = (
        "allowed",  # UpdateAllowed of the last that said so
        "arg",  # what handlers get beside the job
        "closed",  # answered, or nobody waits any more
        "done",
        "error",
        "hook",
        "operations",
        "priority",
        "question",
        "reject",
        "resource_set",
        "rest",
        "said",  # the last value that is not of a job's answer: query, custom
        "scope",  # of the async handler that is thinking
    )

    def __init__(
        self,
        question: AskHook,
        hook: Hook,
        chain: list[Entry],
        done: Callable[[Asking, HookAnswer], None],
    ) -> None:
        self.question = question
        self.hook = hook
        self.rest: Iterator[Entry] = iter(chain)
        self.done = done
        self.arg = question.args
        if len(hook.parameters) > 1:  # what others hold, too
            self.arg = copy.deepcopy(self.arg)
            if hook is _DEPENDENCY:
                self.arg = Dependency.of(self.arg)
        self.operations: list[Operation] | None = None
        self.resource_set: dict[str, Any] | None = None
        self.priority: int | Unavailable | None = None
        self.reject: str | None = None
        self.error: str | None = None
        self.allowed: UpdateAllowed | None = None
        self.said: Any = None
        self.closed = False
        self.scope: trio.CancelScope

    def takes(self, said: Any) -> bool:
        """Take a handler's value, which is not None; False for one of a wrong type or range.

        Raises NotAllowed for one that holds what is no JSON.
        """
        match self.hook.returns:
            case Returns.PRIORITY if is_priority(said):
                self.priority = said
            case Returns.ALLOWED if isinstance(said, UpdateAllowed):
                self.allowed = replace(said, updates=plain(said.updates, "updates"))
            case Returns.OBJECT if isinstance(said, dict):
                self.said = said
            case Returns.ANYTHING:
                self.said = said
            case _:
                return False
        return True

    def do(self, operation: Operation) -> None:
        """A handler asks for this."""
        if self.operations is None:
            self.operations = []
        self.operations.append(operation)

    def forget_since(self, mark: int) -> None:
        """A handler failed: what it asked for after the first `mark` operations is not done."""
        if self.operations is not None:
            del self.operations[mark:]

    @property
    def is_decided(self) -> bool:
        """A failure or refusal ends the chain."""
        return self.error is not None or self.reject is not None

    def is_about(self, jobid: int) -> bool:
        """Return whether the question is about this job."""
        return self.question.job is not None and self.question.job.id == jobid

    def posts_to(self, jobid: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events that will be logged to a job with the answer."""
        for each in self.operations or ():
            if isinstance(each, PostEvent) and each.id == jobid:
                yield each.name, each.context

    def answer(self) -> HookAnswer:
        """What all have said; nothing is added after it."""
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
