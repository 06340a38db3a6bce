"""States of ended jobs as numbers: they say what the states said, and take a few bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.judge import Monitor
from flux_trio.judge.engine.packed import Packed, Packing
from flux_trio.judge.rules import ALL_RULES, rfc27_hello
from flux_trio.judge.views.eventlogs import LOG, Log
from flux_trio.judge.views.execution import STARTS, Start, is_open
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.sim import make_machine, read_workload, simulate
from flux_trio.trace import Kind, Record

EVEN = Packing(lambda n: n // 2 if n % 2 == 0 else None, lambda n: 2 * n)
"""Even states are packed."""
JOBS = 10_000
BYTES_MAX = 21  # two arrays of eight bytes, and the room that they keep
PACKED_MAX = 3  # views that keep an ended job: 64 bytes of it in all
LASSEN = Path(__file__).parents[1] / "data" / "workloads" / "lassen-10000.csv"

KEYS = st.one_of(st.integers(-2, 20), st.sampled_from(["a", "b", None]))


@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 99)))))
def test_packed_states_are_a_dictionary(steps: list[tuple[Any, int | None]]) -> None:
    packed, plain = Packed(EVEN), {}
    for key, state in steps:
        if state is None:
            assert packed.pop(key, None) == plain.pop(key, None)
        else:
            packed[key] = plain[key] = state
    assert dict(packed.items()) == plain
    assert sorted(packed.values()) == sorted(plain.values())
    assert (len(packed), bool(packed), set(packed)) == (len(plain), bool(plain), set(plain))
    assert all(key in packed and packed.get(key) == packed[key] for key in plain)
    assert "none" not in packed
    packed.clear()
    assert not packed


@pytest.mark.parametrize("status", [0, 256, 65_535])
@pytest.mark.parametrize("fatal", [0, 70])
def test_a_log_of_an_ended_job_still_says_how_it_ended(status: int, fatal: int) -> None:
    log = Log(3, validated=4, started=20, finished=60, status=status, fatal=fatal, ended=90)
    states = Packed(LOG.packing)
    states[7] = log
    found = states[7]
    assert (found.ended, found.status) == (90, status)
    for name in ("validated", "started", "finished", "released", "freed", "excepted", "fatal"):
        assert bool(getattr(found, name)) == bool(getattr(log, name))


@pytest.mark.parametrize("status", [-1, 65_536])
def test_a_log_that_is_no_number_is_kept_as_it_is(status: int) -> None:
    log = Log(3, finished=60, status=status, ended=90)
    states = Packed(LOG.packing)
    states[7] = log
    assert states[7] is log


@pytest.mark.parametrize("fatal", [(), (("fatal", 45),)])
def test_a_start_is_packed_when_its_final_release_has_come(fatal: tuple[Any, ...]) -> None:
    received = (("final", 50),)
    states = Packed(STARTS.packing)
    states[7] = started = Start(30, 31)
    assert states[7] is started
    states[7] = Start(30, 31, said=(*fatal, ("final", 49)), received=received)
    assert not states.unpacked
    assert not is_open(states[7])
    assert states[7].place("final") == 50
    assert bool(states[7].place("fatal")) is bool(fatal)


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (LOG, Log(3, started=20, finished=60, released=70, ended=90)),
        (STARTS, Start(30, 31, said=(("final", 49),), received=(("final", 50),))),
    ],
)
def test_an_ended_job_takes_few_bytes(view, state) -> None:
    states = Packed(view.packing)
    tracemalloc.start()
    for jobid in range(JOBS):
        states[jobid + 2**40] = state
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / JOBS <= BYTES_MAX


def test_a_monitor_keeps_an_ended_job_in_three_packed_views_alone() -> None:
    jobs = read_workload(LASSEN.read_text().splitlines()[:21], LASSEN.name)
    monitor = Monitor(ALL_RULES, {}, is_simulated=True)
    ended: set[int] = set()

    def observe(record: Record) -> None:
        monitor.observe(record)
        if record.kind == Kind.EVENT and record.data and record.data["name"] == "clean":
            ended.add(record.data["id"])

    simulate(jobs, make_machine(792, 40, 4), "easy", sinks=[observe])
    assert len(ended) == len(jobs)
    left = {
        each.clause if each in ALL_RULES else each.name: key
        for each, states in monitor.states.items()
        for key in getattr(states, "unpacked", states)
        for part in (key if isinstance(key, tuple) else (key,))
        if part in ended
    }
    assert left == {}
    packed = [states for states in monitor.states.values() if isinstance(states, Packed)]
    assert len([states for states in packed if len(states)]) <= PACKED_MAX


def test_what_a_hello_told_of_is_forgotten_at_the_next() -> None:
    monitor = Monitor(rfc27_hello.RULES.all, {})
    reported = monitor.states[rfc27_hello.REPORTED]
    said = {"matchtag": 1, "flags": STREAMING, "routes": ("sched",)}
    hello = Request(topics.SCHED_HELLO, None, **said)
    answer = Response(topics.SCHED_HELLO, {"id": 7}, **said)
    monitor.observe(Record(1, 0.0, Kind.RECV, "job-manager", "sched", 0, hello))
    monitor.observe(Record(2, 0.0, Kind.SEND, "job-manager", "sched", 0, answer))
    assert list(reported) == [7]
    monitor.observe(Record(3, 0.0, Kind.RECV, "job-manager", "sched", 0, hello))
    assert list(reported) == []
