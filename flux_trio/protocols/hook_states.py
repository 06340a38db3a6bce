"""The conversation about one job between the job manager and plugins (jobtap).

A question goes out, and plugins that answer at once do so before the job manager takes in anything
else. While one takes its time, what comes for the job waits, except a fatal exception, which
abandons the question. When the answer is there, what it asks for is done, then what waited; that
may ask the next question. Meanwhile plugins may hold the job in its state (RFC 21), until a later
answer releases it.
"""

from __future__ import annotations

from typing import Final

from flux_trio.protocols.table import Member, Table


class HookState(Member):
    """Whether plugins are asked about a job, and whether they hold it."""

    FREE = "no question is open"
    ASKED = "asked, plugins may answer at once"
    WAITING = "a plugin takes its time"
    ANSWERED = "what the answer asks for is being done"
    HELD = "held, no question is open"
    HELD_ASKED = "held and asked"
    HELD_WAITING = "held, a plugin takes its time"
    HELD_ANSWERED = "held, the answer is being done"


class HookEvent(Member):
    """What passes between the two about a job."""

    ASK = "ask"
    POSTPONE = "a plugin answers later"
    ANSWER = "answer"
    ABANDON = "fatal exception, no answer is waited for"
    DONE = "done, and nothing waits"
    HOLD = "plugins hold the job"
    RELEASE = "plugins release the job"


_S, _E = HookState, HookEvent

HOOK: Table[HookState, HookEvent] = Table(
    "hook",
    HookState.FREE,
    {
        _S.FREE: {_E.ASK: _S.ASKED, _E.HOLD: _S.HELD},
        _S.ASKED: {_E.ANSWER: _S.ANSWERED, _E.POSTPONE: _S.WAITING},
        _S.WAITING: {_E.ANSWER: _S.ANSWERED, _E.ABANDON: _S.ANSWERED},
        _S.ANSWERED: {
            _E.ASK: _S.ASKED,
            _E.DONE: _S.FREE,
            _E.HOLD: _S.HELD_ANSWERED,
        },
        _S.HELD: {
            _E.ASK: _S.HELD_ASKED,
            _E.HOLD: _S.HELD,  # for another reason
            _E.RELEASE: _S.FREE,
        },
        _S.HELD_ASKED: {_E.ANSWER: _S.HELD_ANSWERED, _E.POSTPONE: _S.HELD_WAITING},
        _S.HELD_WAITING: {_E.ANSWER: _S.HELD_ANSWERED, _E.ABANDON: _S.HELD_ANSWERED},
        _S.HELD_ANSWERED: {
            _E.ASK: _S.HELD_ASKED,
            _E.DONE: _S.HELD,
            _E.HOLD: _S.HELD_ANSWERED,
            _E.RELEASE: _S.ANSWERED,
        },
    },
)

ASKING: Final = frozenset({_S.ASKED, _S.WAITING, _S.HELD_ASKED, _S.HELD_WAITING})
"""A question is open: what comes for the job waits."""

THINKING: Final = frozenset({_S.WAITING, _S.HELD_WAITING})
"""A plugin takes its time: a fatal exception ends the wait."""

HOLDING: Final = frozenset({_S.HELD, _S.HELD_ASKED, _S.HELD_WAITING, _S.HELD_ANSWERED})
"""Plugins hold the job."""

AT_REST: Final = frozenset({_S.FREE, _S.HELD})
"""No question is open, and nothing of an answer is being done."""
