"""What becomes of each message that a tap sees: it goes on, later or twice, or not at all.

The core has no clock and does no I/O: it takes messages and times, and returns what to pass on and
what to record. What is kept back is data. A message that is kept back is overtaken by those after
it, and the order of all others stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from flux_trio.attach.tap.rules import Direction, Pattern, Rule
from flux_trio.messages import Message
from flux_trio.messages.native import Frame

HELD_MAX: Final = 1024
"""Messages that are kept back at once, by delay and hold. When there are as many, a further one is
passed on at once, and the record says so: a tap neither grows nor loses what it was not told to."""


class PassOn(msgspec.Struct, frozen=True):
    """Send the frame on in its direction; record that it was sent and received."""

    direction: Direction
    frame: Frame
    message: Message


class NoteFault(msgspec.Struct, frozen=True):
    """Record what was done to the message; `what` is the deed, or how keeping it back has ended."""

    what: str
    direction: Direction
    message: Message
    rule: str
    count: int


Action = PassOn | NoteFault


class Kept(msgspec.Struct):
    """A message that is kept back until the time `due`, until a message of `until`, or a word."""

    passing: PassOn
    rule: str
    count: int
    due: float | None
    until: Pattern | None
    seen: int = 0
    """Messages that match `until`, since the message is kept back."""


class TapCore:
    """The rules with their counts, and what is kept back, the oldest first."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._counts = [0] * len(rules)
        self._kept: list[Kept] = []

    @property
    def nkept(self) -> int:
        return len(self._kept)

    def next_due(self) -> float | None:
        """Return when the next message that is delayed goes on; None if none is."""
        return min((each.due for each in self._kept if each.due is not None), default=None)

    def handle(
        self, direction: Direction, frame: Frame, message: Message, now: float
    ) -> list[Action]:
        """Return what becomes of a message, and of those that waited for it."""
        passing = PassOn(direction, frame, message)
        found = self._rule_for(direction, message)
        actions = [passing] if found is None else list(self._done(passing, *found, now))
        return actions + self._released_by(direction, message)

    def due(self, now: float) -> list[Action]:
        """Return what goes on because its delay has ended."""
        return self._let_go(
            [each for each in self._kept if each.due is not None and each.due <= now]
        )

    def release(self) -> list[Action]:
        """Let go of all that is held; what is delayed stays."""
        return self._let_go([each for each in self._kept if each.due is None])

    def end(self) -> list[Action]:
        """Give up what is kept back: the module or the broker has gone."""
        kept, self._kept = self._kept, []
        return [_note("lost", each.passing, each.rule, each.count) for each in kept]

    # --- implementation

    def _rule_for(self, direction: Direction, message: Message) -> tuple[Rule, int] | None:
        """Count the message for every rule; return the first rule that means it, and its number."""
        found = None
        for at, rule in enumerate(self._rules):
            if rule.pattern.matches(direction, message):
                self._counts[at] += 1
                if found is None and rule.pattern.means(self._counts[at]):
                    found = rule, self._counts[at]
        return found

    def _done(self, passing: PassOn, rule: Rule, count: int, now: float) -> Iterator[Action]:
        is_kept = rule.deed in ("delay", "hold")
        if is_kept and len(self._kept) == HELD_MAX:
            yield _note("no room", passing, rule.text, count)
            yield passing
            return
        yield _note(rule.deed, passing, rule.text, count)
        if is_kept:
            due = now + rule.seconds if rule.deed == "delay" else None
            self._kept.append(Kept(passing, rule.text, count, due, rule.until))
        elif rule.deed == "duplicate":
            yield passing
            yield passing

    def _released_by(self, direction: Direction, message: Message) -> list[Action]:
        released = []
        for each in self._kept:
            until = each.until
            if until is None or each.passing.message is message:
                continue
            if until.matches(direction, message):
                each.seen += 1
                if until.means(each.seen):
                    released.append(each)
        return self._let_go(released)

    def _let_go(self, released: list[Kept]) -> list[Action]:
        gone = set(map(id, released))
        self._kept = [each for each in self._kept if id(each) not in gone]
        actions: list[Action] = []
        for each in released:
            actions += [_note("released", each.passing, each.rule, each.count), each.passing]
        return actions


def _note(what: str, passing: PassOn, rule: str, count: int) -> NoteFault:
    return NoteFault(what, passing.direction, passing.message, rule, count)
