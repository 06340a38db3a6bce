"""State tables: the only way to change a conversation's state.

A table has states and events and does not know which side of the conversation uses it. A pair that
is not in the table is an error that names the conversation, the state, and those that allow it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

from flux_trio.formats.meanings import JobId, Meaning
from flux_trio.messages import ProtocolError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Member(Enum):
    """A state or event of a table. It hashes by identity: the hash of Enum is slow."""

    __hash__ = object.__hash__


STORY_MAX: Final = 64
"""Events kept for an error's text, of all jobs of a conversation together."""

STORY_OF_ONE_MAX: Final = 4
"""Events in the text of an error about one conversation."""


class InvalidTransition(ProtocolError):
    """An event that the conversation's table does not allow in this state.

    `expected` says what would have been right: a state for this event, or an event for this state.
    `who` names the job, peer, group or queue; `story` lists its events, the oldest first: the last
    ones are in the text. Both are empty if a `Table` is used by itself.
    """

    def __init__(
        self,
        table: str,
        state: Enum,
        event: Enum,
        expected: str,
        who: str = "",
        story: Sequence[str] = (),
    ) -> None:
        text = f"{table}: {event.value} in state {state.name}: expected {expected}"
        if who:
            text = f"{who}: {text}"
        if story:
            text += f" (after {', '.join(story[-STORY_OF_ONE_MAX:])})"
        super().__init__(text)
        self.table = table
        self.state = state
        self.event = event
        self.expected = expected
        self.who = who

    def with_story(self, who: str = "", story: Sequence[str] = ()) -> InvalidTransition:
        """Return this error with the name of its conversation, or with its last events."""
        return InvalidTransition(
            self.table, self.state, self.event, self.expected, who or self.who, story
        )


class Table(Generic[S, E]):
    """The transitions of one conversation: state, event → next state."""

    def __init__(self, name: str, initial: S, rows: Mapping[S, Mapping[E, S]]) -> None:
        self.name = name
        self.initial = initial
        self.rows = rows

    def step(self, state: S, event: E) -> S:
        """Return the state after `event`; InvalidTransition without a row."""
        try:
            return self.rows[state][event]
        except KeyError:
            raise self.refusal(state, event) from None

    def refusal(
        self, state: S, event: E, who: str = "", story: Sequence[str] = ()
    ) -> InvalidTransition:
        """Build the error for a pair without a row."""
        right = " or ".join(each.name for each, row in self.rows.items() if event in row)
        expected = f"state {right}" if right else "no such event"
        return InvalidTransition(self.name, state, event, expected, who, story)

    def allows(self, state: S, event: E) -> bool:
        """Return whether the table has a row for `event` in `state`."""
        return event in self.rows[state]

    def __iter__(self) -> Iterator[tuple[S, E, S]]:
        for state, row in self.rows.items():
            for event, after in row.items():
                yield state, event, after


class Story(Generic[E]):
    """The last events of one kind of conversation, of all jobs together, for an error's text."""

    events: Annotated[deque[tuple[JobId, E]], Meaning.FOR_PEOPLE]

    def __init__(self) -> None:
        self.events = deque(maxlen=STORY_MAX)

    def step(self, table: Table[S, E], jobid: int, state: S, event: E) -> S:
        """Return the state of job `jobid` after `event`. InvalidTransition names the job."""
        try:
            after = table.rows[state][event]
        except KeyError:
            past = [each.value for its, each in self.events if its == jobid]
            raise table.refusal(state, event, f"job {jobid}", past) from None
        self.events.append((jobid, event))
        return after


class Conversation(Generic[S, E]):
    """The state of one conversation; only steps of its table change it.

    A subclass names the table, and what kind of partner or thing the conversation is about.
    """

    _state: S
    _story: Annotated[deque[E], Meaning.FOR_PEOPLE]

    table: ClassVar[Table[Any, Any]]  # a class variable cannot be generic
    kind: ClassVar[str]

    def __init__(self) -> None:
        self._state = self.table.initial
        self._story = deque(maxlen=STORY_OF_ONE_MAX)

    @property
    def state(self) -> S:
        return self._state

    def step(self, event: E, name: str) -> S:
        """Advance the state and return it; unchanged on InvalidTransition, which has `name`."""
        try:
            after: S = self.table.step(self._state, event)
        except InvalidTransition as error:
            past = [each.value for each in self._story]
            raise error.with_story(f"{self.kind} {name}", past) from None
        self._story.append(event)
        self._state = after
        return after


class JobConversations(Generic[S, E]):
    """The state of each job in one conversation; only steps of its table change a state.

    A subclass names the table. A job in the table's initial state uses no memory.
    """

    _states: dict[JobId, S]
    _story: Story[E]

    table: ClassVar[Table[Any, Any]]  # a class variable cannot be generic

    def __init__(self) -> None:
        self._states = {}
        self._story = Story()

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of jobs outside the initial state; jobs may step during the iteration."""
        return iter(list(self._states))

    def of(self, jobid: int) -> S:
        """Return the state of job `jobid`."""
        state: S = self._states.get(jobid, self.table.initial)
        return state

    def step(self, jobid: int, event: E) -> S:
        """Advance job `jobid` and return its state; on InvalidTransition it is unchanged."""
        table = self.table
        state = self._states.get(jobid, table.initial)
        after: S = self._story.step(table, jobid, state, event)
        if after is table.initial:
            self._states.pop(jobid, None)
        else:
            self._states[jobid] = after
        return after

    def forget(self, jobid: int) -> None:
        """Drop the state of job `jobid`; the caller forgets the job as well."""
        self._states.pop(jobid, None)
