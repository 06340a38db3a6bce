"""The conversation about one job between the job manager and plugins (jobtap).

One question, in order:

    job manager   asks a hook of the plugins that handle it
    plugins       answer, or say that they answer later (POSTPONE)
    job manager   ends the wait (ABANDON), only if a fatal exception comes
    plugins       answer
    job manager   does what the answer says, then what has waited; both may lead to a question

The job manager asks a question. Plugins that can answer at once do so before the job manager
processes any other input. If a plugin answers later, events of the job wait until then; only a
fatal exception does not wait, and it abandons the question. When the answer has come, the job
manager first performs its operations, then processes the waiting events; this may lead to the next
question. Plugins may also hold the job in its state (RFC 21) until a later answer releases it.
"""

from __future__ import annotations

from typing import Final

from flux_trio.protocols.table import Member, Table


class HookState(Member):
    """Whether a question about the job is open, and whether plugins hold the job."""

    FREE = "no question is open"
    ASKED = "asked, plugins may answer at once"
    WAITING = "a plugin takes its time"
    ANSWERED = "what the answer asks for is being done"
    HELD = "held, no question is open"
    HELD_ASKED = "held and asked"
    HELD_WAITING = "held, a plugin takes its time"
    HELD_ANSWERED = "held, the answer is being done"


class HookEvent(Member):
    """Messages between job manager and plugins about a job, and changes of a hold."""

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
        # what an answer asks for may lead to the next question, before anything that waits
        _S.ANSWERED: {_E.ASK: _S.ASKED, _E.DONE: _S.FREE, _E.HOLD: _S.HELD_ANSWERED},
        _S.HELD: {
            _E.ASK: _S.HELD_ASKED,
            _E.HOLD: _S.HELD,  # a second reason to hold it
            _E.RELEASE: _S.FREE,
        },
        # a job that is held is asked about too: its urgency or its jobspec may change
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
"""A question is open: events of the job wait."""

THINKING: Final = frozenset({_S.WAITING, _S.HELD_WAITING})
"""A plugin answers later: a fatal exception ends the wait."""

HOLDING: Final = frozenset({_S.HELD, _S.HELD_ASKED, _S.HELD_WAITING, _S.HELD_ANSWERED})
"""Plugins hold the job."""

BLOCKED: Final = ASKING | HOLDING
"""Actions that are due for the job are not done now."""

AT_REST: Final = frozenset({_S.FREE, _S.HELD})
"""No question is open, and no answer is being processed."""
