"""Dependencies of each scheme, by hand: no plugin here knows them."""

from __future__ import annotations

from flux_trio.trace import Record
from tests.support.judged import Trace, hand_made, made_event
from tests.support.scenarios import made_scenario

WELL, BADLY, NEVER, SUITED = 1, 2, 3, 4  # jobs: how they end; the last depends on the others
UNSUITED = 5
EPOCH = 1e9


def submitted(job: int) -> list[Record]:
    """A job comes to DEPEND."""
    submit = made_event(job, "submit", userid=1000, urgency=16, flags=0, version=1)
    return [submit, made_event(job, "validate")]


def ran(job: int, status: int) -> list[Record]:
    """A job comes through its life from DEPEND on."""
    return [
        made_event(job, "depend"),
        made_event(job, "priority", priority=16),
        made_event(job, "alloc"),
        made_event(job, "start"),
        made_event(job, "finish", status=status),
        made_event(job, "release", ranks="0", final=True),
        made_event(job, "free"),
        made_event(job, "clean"),
    ]


def failed(job: int, kind: str) -> list[Record]:
    """A job ends by an exception before it was anything."""
    raised = made_event(job, "exception", type=kind, severity=0, note="")
    return [raised, made_event(job, "clean")]


def added(job: int, description: str) -> Record:
    return made_event(job, "dependency-add", description=description)


def removed(job: int, description: str) -> Record:
    return made_event(job, "dependency-remove", description=description)


@made_scenario
def dependencies() -> Trace:
    """Jobs that end well, badly and before they start; two that wait for them."""
    met = [f"after=f{WELL + 1}", f"afterany=f{BADLY + 1}", f"afterok=f{WELL + 1}"]
    met += [f"afternotok=f{BADLY + 1}", f"begin-time={EPOCH + 20}"]
    return hand_made(
        *(record for job in (WELL, BADLY, NEVER, SUITED, UNSUITED) for record in submitted(job)),
        *(added(SUITED, each) for each in met),
        added(UNSUITED, f"after=f{NEVER + 1}"),
        *ran(WELL, 0),
        *ran(BADLY, 256),
        *failed(NEVER, "cancel"),
        *(removed(SUITED, each) for each in met),
        *failed(UNSUITED, "dependency"),
        *ran(SUITED, 0),
        epoch=EPOCH,
    )
