"""Traces that have not all that a replay needs, or that of another version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from flux_trio._version import __version__
from flux_trio.cores.sched.core import SchedCore
from flux_trio.lab.world.recorded import CoreNotMade, Difference, RecordedInstance, Unreplayable
from flux_trio.testing import InstanceHarness
from flux_trio.testing.fakes import FakeScheduler
from tests.support.recording_much import edited, everything
from tests.support.replayed import Kept, recording, replayed


@pytest.fixture(autouse=True, scope="module")
def _is_recorded() -> None:
    """Before a test changes a core: whichever comes first in this process has it recorded."""
    everything()


def test_module_without_turns_is_named() -> None:
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(breaking=None) as instance:
        instance.play("sched", FakeScheduler())
        instance.submit(run_s=5.0)
    difference, replay = replayed(kept[0].lines())
    assert difference is None
    assert [each.module for each in replay.unrecorded] == ["sched"]
    assert replay.unrecorded[0].last is not None


def test_module_without_turns_for_a_while_is_named_with_that_while() -> None:
    kept: list[Kept] = []
    with recording(kept), InstanceHarness(breaking=None) as instance:
        specs = instance._instance.supervisor.specs
        recorded = specs["sched"]
        for _ in range(2):
            instance.play("sched", FakeScheduler())
            instance.crash("sched")
            instance.load("sched")
            instance.unload("sched")
            specs["sched"] = recorded
            instance.load("sched")
            instance.wait(instance.submit(run_s=5.0))
    lines = kept[0].lines()
    difference, replay = replayed(lines)
    assert difference is None, str(difference)
    told = [
        (record["data"]["what"], record["n"])
        for record in map(msgspec.json.decode, lines)
        if record["kind"] == "module" and record["data"]["module"] == "sched"
    ]
    assert [what for what, _ in told[2:6]] == ["started", "crashed", "started", "removed"]
    assert [str(each) for each in replay.unrecorded] == [
        "sched is not replayed: its turns are not recorded, "
        f"from record {told[first][1]} to record {told[first + 3][1]}"
        for first in (2, 8)
    ]


def test_trace_that_begins_later_cannot_be_replayed() -> None:
    lines = everything()
    start = next(at for at, line in enumerate(lines) if '"kind":"turn"' in line)
    rest = (*lines[:start], *lines[start + 1 :])
    with pytest.raises(Unreplayable, match="the trace does not have the start of kvs"):
        replayed(rest)


def test_trace_that_ends_at_any_record_has_no_difference() -> None:
    lines = everything()
    for end in range(1, len(lines), 97):
        difference, _ = replayed(lines[:end])
        assert difference is None, (end, str(difference))


def start_of(party: str, edit: Callable[[dict[str, Any]], object]) -> Iterator[str]:
    """The trace of version 9.9, with the data of the start of a core edited."""

    def found(record: dict[str, Any]) -> bool:
        if record["kind"] != "turn" or record["party"] != party:
            return False
        record["data"]["version"] = "9.9"
        edit(record["data"])
        return True

    return edited(everything(), found)


STATES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (
        lambda state: state.update({"core.new": {}}),
        "the state has core.new, which the core does not have",
    ),
    (lambda state: state["core._context"].pop("calls"), "the state of core._context lacks calls"),
    (
        lambda state: state["core._context"].update(old=1),
        "the state of core._context has old, which the part does not have",
    ),
]


@pytest.mark.parametrize(("edit", "text"), STATES)
def test_state_of_another_version_is_refused_with_the_version(
    edit: Callable[[dict[str, Any]], object], text: str
) -> None:
    match = rf"turn of sched after record \d+, written by flux-trio 9\.9 .*: {text}"
    with pytest.raises(Unreplayable, match=match):
        replayed(start_of("sched", lambda data: edit(data["state"])))


def test_error_of_a_constructor_is_told_with_its_place() -> None:
    def other(data: dict[str, Any]) -> None:
        data["args"] = ["tuple", [["tuple", [7]], ["dict", 0, []]]]

    with pytest.raises(CoreNotMade) as caught:
        replayed(start_of("sched", other))
    assert re.fullmatch(
        rf"the core of sched cannot be made in this version, {re.escape(__version__)}: "
        r"AttributeError: 'int' object has no attribute '\w+' "
        r"\(flux_trio/cores/sched/\w+\.py:\d+\); flux-trio 9\.9 wrote the trace",
        str(caught.value),
    )


def test_error_of_a_core_that_takes_up_its_state_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: SchedCore) -> None:
        raise KeyError(type(self).__name__)

    monkeypatch.setattr(SchedCore, "taken_up", fail)
    with pytest.raises(CoreNotMade, match=r": KeyError: 'SchedCore' \(.*in_part\.py:\d+\)$"):
        replayed(everything())


def test_difference_reads_as_a_sentence() -> None:
    difference = Difference("sched", 7, "request a.b.payload.id", "1", "2")
    assert str(difference) == (
        "sched differs at request a.b.payload.id, record 7: expected 1, got 2"
    )
    assert RecordedInstance().nturns == 0
