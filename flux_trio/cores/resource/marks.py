"""Targets that one event of `resource.eventlog` (RFC 18) marks and another clears. Pure.

The marks are folded from the eventlog: `drains` and `downs` say what a mark holds.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

import msgspec

from flux_trio.cores.resource.targets import Hosts
from flux_trio.cores.state import Part
from flux_trio.formats import Event, Idset, converted


class Context(msgspec.Struct, frozen=True):
    """The keys that the context of an event about targets has."""

    idset: str
    nodelist: str | None = None


ContextT = TypeVar("ContextT", bound=Context)
MarkT = TypeVar("MarkT")


class Marks(Part, Generic[ContextT, MarkT]):
    """The marked targets."""

    marking: ClassVar[str]  # name of the event that marks targets
    clearing: ClassVar[str]  # name of the event that clears them

    _marks: dict[int, MarkT]

    def __init__(self, hosts: Hosts, context: type[ContextT]) -> None:
        self._hosts = hosts
        self._context_type = context
        self._marks = {}

    def clear(self) -> None:
        """Forget all marks."""
        self._marks = {}

    @property
    def targets(self) -> Idset:
        return Idset.of(self._marks)

    def apply(self, event: Event) -> None:
        """Fold one event; events with other names change nothing. Raises FormatError."""
        if event.name not in (self.marking, self.clearing):
            return
        context = converted(event.context or {}, self._context_type)
        if not self._counts(context):
            return
        for target in self._hosts.find(context.idset, context.nodelist):
            before = self._marks.pop(target, None)
            if event.name == self.marking:
                self._marks[target] = self._mark(event.timestamp, context, before)

    @abstractmethod
    def _counts(self, context: ContextT) -> bool:
        """Return whether an event with this context is one of ours."""

    @abstractmethod
    def _mark(self, timestamp: float, context: ContextT, before: MarkT | None) -> MarkT:
        """Return the mark that an event gives to a target; `before` is its mark until then."""

    def by_idset(self) -> dict[str, MarkT]:
        """Return the marks; targets with equal marks are one idset."""
        alike: dict[MarkT, list[int]] = {}
        for target in sorted(self._marks):
            alike.setdefault(self._marks[target], []).append(target)
        return {str(Idset.of(targets)): mark for mark, targets in alike.items()}


def ranks(targets: Idset) -> str:
    """Return `targets` for an error text."""
    return f"rank{'s' if len(targets) > 1 else ''} {targets}"
