"""How old a record is: only time in which somebody could have acted counts."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.judge.engine.monitor import PROMPT_S, Monitor
from flux_trio.lab import Sleep
from flux_trio.trace import SLEEP, Kind, Record


def monitor(*records: tuple[float, Kind, dict[str, Any]]) -> Monitor:
    """A monitor of simulated time that has seen these; the first of them has the place 1."""
    watching = Monitor((), {}, is_simulated=True)
    for n, (t, kind, data) in enumerate(records, 1):
        watching.observe(Record(n, t, kind.value, "broker", data=data))
    return watching


def test_record_is_old_when_parties_had_the_time_to_act_on_it() -> None:
    young = monitor((0.0, Kind.STATE, {}), (PROMPT_S / 2, Kind.STATE, {}))
    assert not young.is_old(1)
    old = monitor((0.0, Kind.STATE, {}), (PROMPT_S, Kind.STATE, {}))
    assert old.is_old(1)


def test_record_does_not_age_while_the_machine_sleeps() -> None:
    slept = [
        (0.0, Kind.STATE, {}),
        (0.1, Kind.FAULT, {"type": SLEEP, "seconds": 30.0}),
        (30.2, Kind.STATE, {}),
    ]
    assert not monitor(*slept).is_old(1)
    assert monitor(*slept, (30.1 + PROMPT_S, Kind.STATE, {})).is_old(1)


def test_record_does_not_age_when_the_wall_clock_is_set() -> None:
    after = [(0.0, Kind.STATE, {}), (3600.0, Kind.CLOCK, {"by": 3600.0})]
    assert not monitor(*after).is_old(1)
    assert monitor(*after, (3600.0 + PROMPT_S, Kind.STATE, {})).is_old(1)


def test_record_ages_while_another_fault_lasts() -> None:
    lingers = (0.1, Kind.FAULT, {"type": "linger", "seconds": 30.0})
    assert monitor((0.0, Kind.STATE, {}), lingers, (30.2, Kind.STATE, {})).is_old(1)


def test_fault_sleep_is_recorded_by_this_name() -> None:
    recorded = msgspec.to_builtins(Sleep(when=1, seconds=30.0))
    assert (recorded["type"], recorded["seconds"]) == (SLEEP, 30.0)
