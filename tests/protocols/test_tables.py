"""Every state times every event of each conversation, pinned in `snapshots/` for review.

Rewritten by `pytest --update-snapshots`.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from flux_trio.protocols import (
    ACQUIRE,
    ALLOC,
    EXEC_LINK,
    EXECUTION,
    GUEST_NAMESPACE,
    HOOK,
    JOB,
    LINK,
    QUEUE,
    AcquireEvent,
    AllocEvent,
    ExecEvent,
    ExecLinkEvent,
    GroupStream,
    HookEvent,
    InvalidTransition,
    JobState,
    Link,
    LinkEvent,
    LinkState,
    NamespaceEvent,
    QueueEvent,
    Step,
    Table,
)
from flux_trio.protocols.table import STORY_OF_ONE_MAX

SNAPSHOTS = Path(__file__).parent / "snapshots"
TABLES: dict[str, tuple[Table[Any, Any], type[Enum]]] = {
    "job": (JOB, Step),
    "alloc": (ALLOC, AllocEvent),
    "link": (LINK, LinkEvent),
    "acquire": (ACQUIRE, AcquireEvent),
    "execution": (EXECUTION, ExecEvent),
    "exec-link": (EXEC_LINK, ExecLinkEvent),
    "guest-namespace": (GUEST_NAMESPACE, NamespaceEvent),
    "hook": (HOOK, HookEvent),
    "queue": (QUEUE, QueueEvent),
}


def grid(table: Table[Any, Any], events: type[Enum]) -> str:
    """A line an event, a column a state: the state after it, `-` where the event has no place."""
    states = list(table.rows)
    lines = [["event", *(state.name for state in states)]]
    for event in events:
        after = [table.rows[state].get(event) for state in states]
        lines.append([str(event.value), *("-" if s is None else s.name for s in after)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([f"{table.name}: begins in {table.initial.name}", "", *rows, ""])


BEGINNINGS = {Step.SUBMIT}
"""Events with which a conversation begins, so that no state allows them."""


@pytest.mark.parametrize("name", TABLES)
def test_table_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    now = grid(*TABLES[name])
    path = SNAPSHOTS / f"{name}.txt"
    if request.config.getoption("--update-snapshots"):
        path.write_text(now, encoding="utf-8")
    assert path.read_text(encoding="utf-8").splitlines() == now.splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_table_has_a_row_for_every_state_and_leads_to_no_other(name: str) -> None:
    table, events = TABLES[name]
    assert set(table.rows) == set(type(table.initial))
    assert {after for _, _, after in table} <= set(table.rows)
    assert {event for _, event, _ in table} == set(events) - BEGINNINGS


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_be_reached(name: str) -> None:
    table, _ = TABLES[name]
    reached, found = set(), {table.initial}
    while found:
        reached |= found
        found = {after for before, _, after in table if before in reached} - reached
    assert reached == set(table.rows)


def test_pair_that_has_no_row_says_what_was_expected() -> None:
    with pytest.raises(InvalidTransition, match="scheduler: sched-ready in state DETACHED") as info:
        LINK.step(LINK.initial, LinkEvent.READY)
    assert str(info.value).endswith("expected state GREETED")
    assert (info.value.state, info.value.event) == (LINK.initial, LinkEvent.READY)
    with pytest.raises(InvalidTransition, match="expected state NEW or DEPEND or"):
        JOB.step(JobState.INACTIVE, Step.MEMO)
    assert not LINK.allows(LINK.initial, LinkEvent.READY)


def test_conversation_is_named_with_its_last_events_when_a_pair_has_no_row() -> None:
    link = Link()
    for event in (LinkEvent.HELLO, LinkEvent.READY):
        link.step(event, "sched")
    with pytest.raises(InvalidTransition) as info:
        link.step(LinkEvent.READY, "sched")
    assert str(info.value) == (
        "peer sched: scheduler: sched-ready in state READY: "
        "expected state GREETED (after sched-hello, sched-ready)"
    )
    assert link.state is LinkState.READY


def test_story_of_a_conversation_has_a_bound() -> None:
    stream = GroupStream()
    for event in (AcquireEvent.ACQUIRE, AcquireEvent.GROW, *[AcquireEvent.ONLINE] * 99):
        stream.step(event, "default")
    with pytest.raises(InvalidTransition, match=r"^resource group default: ") as info:
        stream.step(AcquireEvent.RELEASE, "default")
    assert str(info.value).count("online") == STORY_OF_ONE_MAX


@pytest.mark.parametrize("name", TABLES)
def test_refusal_is_short_and_names_the_states_that_are_right(name: str) -> None:
    """A user reads it: it says what was expected and what came, not the table."""
    table, events = TABLES[name]
    for state, event in product(table.rows, events):
        if not table.allows(state, event):
            text = str(table.refusal(state, event))
            assert f"{event.value} in state {state.name}: expected" in text
            right = [each for each in table.rows if table.allows(each, event)]
            assert all(each.name in text for each in right)
            assert len(text) < 150


@pytest.mark.parametrize("state", [state for state in JobState if state != JobState.INACTIVE])
def test_every_active_state_takes_exceptions_and_what_changes_nothing(state: JobState) -> None:
    """21.exceptions.2, 21.exceptions.3: a fatal one leads to CLEANUP, a lesser one nowhere."""
    assert JOB.step(state, Step.EXCEPTION_FATAL) == JobState.CLEANUP
    for step in (Step.EXCEPTION_MINOR, Step.MEMO, Step.OTHER):
        assert JOB.step(state, step) == state
