"""What the context of each event must hold (RFC 21, Event Descriptions)."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import Event, FormatError
from flux_trio.protocols import JobEvent, check_context

EXCEPTION = {"type": "cancel", "severity": 0, "note": ""}

GOOD: list[tuple[str, Any]] = [
    ("submit", {"userid": 1, "urgency": 16, "flags": 0, "version": 1}),
    ("submit", {"userid": 1, "urgency": 31, "flags": 2}),
    ("jobspec-update", {"attributes.system.duration": 1}),
    ("resource-update", {"expiration": 1}),
    ("resource-update", {"expiration": 1.5}),
    ("validate", None),
    ("set-flags", {"flags": ["debug"]}),
    ("dependency-add", {"description": "x"}),
    ("dependency-remove", {"description": "x"}),
    ("priority", {"priority": 4294967295}),
    ("urgency", {"urgency": 0, "userid": 1}),
    ("alloc", None),
    ("alloc", {"annotations": {}}),
    ("prolog-start", {"description": "p"}),
    ("prolog-finish", {"description": "p", "status": 256}),
    ("epilog-start", {"description": "p"}),
    ("epilog-finish", {"description": "p", "status": 0}),
    ("free", None),
    ("start", {}),
    ("release", {"ranks": "all", "final": True}),
    ("finish", {"status": 0}),
    ("clean", None),
    ("exception", EXCEPTION),
    ("exception", EXCEPTION | {"userid": 1, "wait_status": 9}),
    ("memo", {"anything": [1]}),
    ("of-somebody-else", {"anything": None}),
]

BAD: list[tuple[str, Any, str]] = [
    ("submit", {"urgency": 16, "flags": 0}, "submit: expected the key userid"),
    ("submit", {"userid": 1, "urgency": 32, "flags": 0}, "submit.urgency: "),
    ("jobspec-update", None, "jobspec-update: expected at least one key path"),
    ("resource-update", {"expiration": "soon"}, "resource-update.expiration: "),
    ("set-flags", {"flags": 2}, "set-flags.flags: expected array"),
    ("dependency-add", {}, "dependency-add: expected the key description"),
    ("dependency-remove", {"description": 1}, "dependency-remove.description: "),
    ("priority", {"priority": 4294967296}, "priority.priority: "),
    ("priority", {"priority": -1}, "priority.priority: "),
    ("urgency", {"urgency": 16}, "urgency: expected the key userid"),
    ("alloc", {"annotations": "x"}, "alloc.annotations: expected object"),
    ("prolog-start", None, "prolog-start: expected the key description"),
    ("prolog-finish", {"description": "p"}, "prolog-finish: expected the key status"),
    ("epilog-finish", {"status": 0}, "epilog-finish: expected the key description"),
    ("free", {"x": 1}, "free: expected only the keys of the format"),
    ("start", {"x": 1}, "start: expected only"),
    ("clean", {"x": 1}, "clean: expected only"),
    ("release", {"ranks": [0], "final": True}, "release.ranks: "),
    ("release", {"ranks": "0"}, "release: expected the key final"),
    ("finish", {}, "finish: expected the key status"),
    ("exception", {"severity": 0, "note": ""}, "exception: expected the key type"),
    ("exception", {"type": "x", "note": ""}, "exception: expected the key severity"),
    ("exception", EXCEPTION | {"severity": 8}, "exception.severity: "),
    ("exception", EXCEPTION | {"userid": "me"}, "exception.userid: "),
]


@pytest.mark.parametrize(("name", "context"), GOOD)
def test_context_as_the_rfc_has_it_is_taken(name: str, context: Any) -> None:
    check_context(Event(1.0, name, context))


@pytest.mark.parametrize(("name", "context", "error"), BAD)
def test_context_that_is_not_says_which_key(name: str, context: Any, error: str) -> None:
    """21.events.8, 21.events.18, 21.events.20-33, 21.exceptions.1: required keys, their types and
    bounds.
    """
    with pytest.raises(FormatError) as info:
        check_context(Event(1.0, name, context))
    assert str(info.value).startswith(error)


def test_place_of_the_event_can_be_named() -> None:
    with pytest.raises(FormatError, match=r"^line 3: expected the key status"):
        check_context(Event(1.0, "finish", {}), "line 3")


def test_every_event_of_the_rfc_is_shown_above() -> None:
    unchecked = {JobEvent.INVALIDATE, JobEvent.DEPEND, JobEvent.FLUX_RESTART}
    assert {name for name, _ in GOOD} - {"of-somebody-else"} == set(JobEvent) - unchecked
