"""What a kill could do wrong would be found."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flux_trio.formats import Event, format_fluid
from flux_trio.sim import make_machine
from tests.kill.findings import (
    Kept,
    ended_badly,
    half_purged,
    missing,
    overlapping,
    reused,
    run_twice,
    without_a_sign,
)
from tests.kill.lives import Memory
from tests.support.eventlogs import ending, inactive, raised, running

ID = 77
NAME = format_fluid(ID, "f58")
TASK = f"{NAME} 0"


def kept(jobid: int = ID, events: list[Event] | None = None, output: str = NAME) -> Kept:
    return Kept(jobid, inactive() if events is None else events, make_machine(1, 1), output)


def at(jobid: int, t: float) -> Kept:
    return kept(jobid, inactive(t))


def badly(job: Kept, ran: tuple[str, ...] = (TASK,), **memory: Any) -> list[str]:
    remembered, jobs = Memory(**memory), {job.id: job}
    return ended_badly(remembered, jobs) + without_a_sign(remembered, jobs, Counter(ran))


def test_a_sound_job_is_no_finding() -> None:
    memory = Memory(submitted=[ID])
    assert [*missing(memory, {ID: kept()}), *reused(memory), *badly(kept())] == []
    assert run_twice(Counter([TASK, f"{NAME} 1"])) == []


def test_a_job_that_is_not_known_is_missing() -> None:
    (text,) = missing(Memory(submitted=[ID]), {})
    assert text == f"job {NAME} was acknowledged and is not known"


def test_a_cancel_that_is_not_in_the_eventlog_is_missing() -> None:
    memory = Memory(submitted=[ID], canceled={ID})
    assert len(missing(memory, {ID: kept()})) == 1
    assert missing(memory, {ID: kept(events=[*running(), raised("cancel")])}) == []


def test_a_purge_that_did_not_happen_or_only_half_is_found() -> None:
    asked = Memory(submitted=[ID], asked_to_purge={ID})
    assert missing(asked, {}) == []
    assert half_purged(asked, {ID: kept()}, {ID}) == []
    assert half_purged(asked, {}, set()) == []
    assert len(half_purged(asked, {}, {ID})) == 1
    done = Memory(submitted=[ID], asked_to_purge={ID}, purged={ID})
    assert half_purged(done, {}, set()) == []
    assert len(half_purged(done, {ID: kept()}, {ID})) == 1


def test_an_id_that_was_given_twice_is_found() -> None:
    assert reused(Memory(submitted=[ID, ID])) == [f"id {NAME} was given to 2 jobs"]


def test_a_task_that_was_started_twice_is_found() -> None:
    assert run_twice(Counter([TASK, TASK])) == [f"task {TASK!r} was started 2 times"]


def test_a_job_that_is_not_over_failed_or_left_no_sign_is_found() -> None:
    assert "is not over" in badly(kept(events=running()))[0]
    assert "did not end well" in badly(kept(events=inactive(status=256)))[0]
    assert "did not run once" in badly(kept(events=[*running(), *running()[-1:], *ending()]))[0]
    assert "left no sign" in badly(kept(), ran=())[0]
    assert "left no sign" in badly(kept(output=""))[0]
    assert badly(kept(events=inactive(status=15)), asked_to_cancel={ID}) == []


def test_a_core_that_two_jobs_held_at_once_is_found() -> None:
    "A job holds its cores from alloc, a second after its submission, to free, three later."
    assert overlapping([at(1, 1000), at(2, 1003)]) == []
    assert len(overlapping([at(2, 1002.9), at(1, 1000)])) == 1
