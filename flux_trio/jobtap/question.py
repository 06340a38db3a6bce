"""The answer to a question that goes along a chain of handlers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from flux_trio.jobtap.catalogue import Hook, Returns
from flux_trio.jobtap.values import Dependency, UpdateAllowed, is_priority, plain, readable
from flux_trio.protocols import (
    AskHook,
    DependencyAsked,
    HookAnswer,
    HookArgs,
    Operation,
    PostEvent,
    Unavailable,
    UpdateApplied,
)

NOTHING_SAID: Final = HookAnswer()


class PendingAnswer:
    """Collects the answer; the values of a later plugin overwrite those of an earlier one."""

    # Most questions end with these defaults, so they are attributes of the class.
    operations: list[Operation] | None = None
    resource_set: dict[str, Any] | None = None
    priority: int | Unavailable | None = None
    reject: str | None = None
    error: str | None = None
    allowed: UpdateAllowed | None = None  # the last one
    said: Any = None  # the last value of a query or a custom topic
    closed = False  # answered or canceled

    def __init__(self, question: AskHook, hook: Hook) -> None:
        self.question = question
        self.hook = hook

    def own_args(self) -> Any:
        """Return the second argument of one handler.

        It is a copy: the handlers of other plugins and the job manager get the same value.
        """
        args = self.question.args
        if len(self.hook.parameters) == 1:
            return args  # a configuration, or what a plugin hands to the others
        return _own_copy(args)

    def add_value(self, said: Any) -> bool:
        """Put the value of a handler into the answer; return False for a wrong type or range.

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
