"""Violations of RFC 21, Event Descriptions: contexts."""

from __future__ import annotations

from typing import Any

from tests.support.judged import REMOVED, Trace, edit_note, find_event
from tests.support.planted import Planted

PLANTED = Planted()


def bad_context(clause: str, scenario: str, event: str, key: str, *values: Any) -> None:
    """One violation a value: the first such event has it for `key`; the trace ends with it."""
    for value in values:

        def change(trace: Trace, value: Any = value) -> Trace:
            found = find_event(trace, event)
            context = {**found.data["context"], key: value}
            if value is REMOVED:
                del context[key]
            return edit_note(trace, found, context=context)[: found.n]

        text = f"without {key}" if value is REMOVED else f"{key} {value!r}"
        change.__name__ = f"{clause}: {event} {text}"
        PLANTED.violation(clause, scenario, cut=True)(change)


bad_context("21.events.4", "everyday", "submit", "urgency", REMOVED, 32, -1, "16")
bad_context("21.events.5", "everyday", "submit", "userid", REMOVED, "root", -1)
bad_context("21.events.6", "everyday", "submit", "flags", REMOVED, [], None)
bad_context("21.events.7", "everyday", "submit", "version", REMOVED, 2, "1")
bad_context("21.events.11", "updates", "resource-update", "expiration", REMOVED, "0", 1e9, 2**40)
bad_context("21.events.14", "held_up", "set-flags", "flags", REMOVED, "debug", [1])
bad_context("21.events.15", "held_up", "dependency-add", "description", REMOVED, 1)
bad_context("21.events.18", "everyday", "priority", "priority", REMOVED, -1, 4294967296, 1.0)
bad_context("21.events.20", "everyday", "urgency", "urgency", REMOVED, 32, 21)
bad_context("21.events.20", "everyday", "urgency", "userid", REMOVED, "root", 7)
bad_context("21.events.21", "everyday", "alloc", "annotations", None, [], "rank0")
bad_context("21.events.23", "held_up", "prolog-start", "description", REMOVED, 1)
bad_context("21.events.25", "held_up", "epilog-start", "description", REMOVED, 1)
bad_context("21.events.24", "held_up", "prolog-finish", "description", REMOVED, 1)
bad_context("21.events.24", "held_up", "prolog-finish", "status", REMOVED, "0")
bad_context("21.events.26", "held_up", "epilog-finish", "description", REMOVED, 1)
bad_context("21.events.26", "held_up", "epilog-finish", "status", REMOVED, None)
bad_context("21.events.29", "everyday", "release", "ranks", REMOVED, 0, "none")
bad_context("21.events.29", "everyday", "release", "final", REMOVED, 1)
bad_context("21.events.30", "everyday", "finish", "status", REMOVED, "0", 0.0)
bad_context("21.events.32", "everyday", "exception", "type", REMOVED, 0)
bad_context("21.exceptions.1", "everyday", "exception", "severity", 9)
bad_context("21.events.33", "everyday", "exception", "severity", REMOVED, -1, 8, "0")
bad_context("21.events.34", "everyday", "exception", "note", REMOVED, None)
bad_context("21.events.35", "everyday", "exception", "userid", "1000", None, -1)

bad_context("21.events.36", "everyday", "exception", "wait_status", 256)
bad_context("21.events.36", "task_exit", "exception", "wait_status", "256")

EMPTY = {"validate": 12, "depend": 17, "free": 27, "start": 28}
for name, number in EMPTY.items():
    bad_context(f"21.events.{number}", "everyday", name, "why", "no reason")
bad_context("21.events.19", "manager_reload", "flux-restart", "why", "no reason")


def context_is(clause: str, scenario: str, event: str, context: Any) -> None:
    """The event has this context."""

    def change(trace: Trace) -> Trace:
        found = find_event(trace, event)
        return edit_note(trace, found, context=context)[: found.n]

    change.__name__ = f"{clause}: {event} with {context!r}"
    PLANTED.violation(clause, scenario, cut=True)(change)


context_is("21.events.8", "updates", "jobspec-update", {})
context_is("21.events.8", "updates", "jobspec-update", {"attributes..duration": 1})
context_is("21.events.38", "held_up", "memo", {})
context_is("21.events.38", "held_up", "memo", ["key", "value"])
