"""RFC 21, Event Descriptions: what an event must hold, and what an eventlog may hold besides."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import Event, FormatError, parse_eventlog
from flux_trio.protocols import (
    InvalidTransition,
    JobEvent,
    JobFlag,
    JobState,
    check_context,
    replay,
)
from tests.support.eventlogs import T_SUBMIT, event, inactive, pending, running, submitted

STATES = {
    JobState.NEW: [submitted()],
    JobState.DEPEND: pending()[:2],
    JobState.PRIORITY: pending()[:3],
    JobState.SCHED: pending(),
    JobState.RUN: running(),
    JobState.CLEANUP: [*running(), event("finish", status=0)],
}

# The keys of each event, with a value of each key that is not allowed.
KEYS: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "set-flags": {"flags": (["debug"], [2, "debug"])},
    "dependency-add": {"description": ("after-start=1", [1, None])},
    "urgency": {"urgency": (16, [-1, 32, "16"]), "userid": (1000, ["ali", None])},
    "prolog-start": {"description": ("test", [7, None])},
    "prolog-finish": {"description": ("test", [7, None]), "status": (0, ["0", None])},
    "epilog-start": {"description": ("test", [7, None])},
    "epilog-finish": {"description": ("test", [7, None]), "status": (0, ["0", None])},
    "resource-update": {"expiration": (1234, ["1234", None])},
}


def keys_are_required_and_checked(name: str) -> None:
    good = {key: value for key, (value, _) in KEYS[name].items()}
    check_context(event(name, **good))
    for key, (_, bad_values) in KEYS[name].items():
        with pytest.raises(FormatError, match=key):
            check_context(event(name, **{k: v for k, v in good.items() if k != key}))
        for bad in bad_values:
            with pytest.raises(FormatError, match=key):
                check_context(event(name, **(good | {key: bad})))


def test_set_flags_has_an_array_of_names():
    """21.events.14: and the job has those flags from then on."""
    keys_are_required_and_checked("set-flags")
    job = replay(1, [submitted(flags=0), event("set-flags", flags=["debug"])])
    assert job.flags == JobFlag.DEBUG


def test_urgency_has_a_value_from_0_to_31_and_who_asked():
    """21.events.20"""
    keys_are_required_and_checked("urgency")


def test_prologs_have_a_description_and_an_integer_status_at_their_end():
    """21.events.23, 21.events.24"""
    keys_are_required_and_checked("prolog-start")
    keys_are_required_and_checked("prolog-finish")


def test_epilogs_have_a_description_and_an_integer_status_at_their_end():
    """21.events.26"""
    keys_are_required_and_checked("epilog-start")
    keys_are_required_and_checked("epilog-finish")


def test_dependencies_have_a_description():
    keys_are_required_and_checked("dependency-add")


def test_resource_update_has_an_expiration_and_the_job_has_the_last():
    """21.events.11"""
    keys_are_required_and_checked("resource-update")
    updates = [event("resource-update", expiration=at) for at in (2000, 3000)]
    assert replay(1, [*running(), *updates]).expiration == 3000.0


def test_memo_replaces_keys_and_null_removes_them():
    """21.events.38"""
    memos = [
        event("memo", uri="ssh://a", note={"a": 1}, other=1),
        event("memo", uri="ssh://b", note={"b": 2}, other=None),
    ]
    assert replay(1, [submitted(), *memos]).memo == {"uri": "ssh://b", "note": {"b": 2}}


@pytest.mark.parametrize("state", STATES)
def test_unknown_events_change_nothing_in_any_state(state: JobState):
    """21.events.1, 21.events.39: those that start with "debug." among them."""
    events = STATES[state]
    before = replay(1, events)
    for name in ("debug.alloc-request", "solar-eclipse"):
        check_context(event(name, anything=1))
        after = replay(1, [*events, event(name, anything=1)])
        assert (after.state, after.has_resources) == (state, before.has_resources)


def test_unknown_keys_are_left_alone_unless_the_context_is_to_be_empty():
    """21.events.2"""
    check_context(event("finish", status=0, mood="good"))
    job = replay(1, [*running(), event("finish", status=9, mood="good")])
    assert (job.state, job.status) == (JobState.CLEANUP, 9)
    for name in ("start", "free", "clean"):
        with pytest.raises(FormatError, match="got the key mood"):
            check_context(event(name, mood="good"))


@pytest.mark.parametrize("name", [each for each in JobEvent if each != JobEvent.SUBMIT])
def test_nothing_follows_clean(name: JobEvent):
    """21.states.8: INACTIVE is left by no event."""
    last = Event(T_SUBMIT + 9, name, {"severity": 0, "description": "x", "flags": []})
    with pytest.raises(InvalidTransition):
        replay(1, [*inactive(), last])


def test_eventlogs_of_earlier_versions_are_read():
    """21.criteria.9: no version in submit, no userid in exception, no annotations, no note."""
    text = """\
{"timestamp":1552593348.07,"name":"submit","context":{"urgency":16,"userid":5588,"flags":0}}
{"timestamp":1552593348.08,"name":"validate"}
{"timestamp":1552593348.09,"name":"depend"}
{"timestamp":1552593348.10,"name":"priority","context":{"priority":16}}
{"timestamp":1552593348.11,"name":"alloc"}
{"timestamp":1552593348.12,"name":"start"}
{"timestamp":1552593348.13,"name":"exception","context":{"type":"oom","severity":0}}
{"timestamp":1552593348.14,"name":"finish","context":{"status":9}}
{"timestamp":1552593348.15,"name":"release","context":{"ranks":"all","final":true}}
{"timestamp":1552593348.16,"name":"free"}
{"timestamp":1552593348.17,"name":"clean"}
"""
    events = parse_eventlog(text)
    for each in events:
        check_context(each)
    job = replay(1, events)
    assert (job.state, job.userid, job.status) == (JobState.INACTIVE, 5588, 9)
