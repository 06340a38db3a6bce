"""Simulated runs of a whole instance: what becomes of jobs, and that a seed says it all."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import trio

from flux_trio import jobtap
from flux_trio.formats import FormatError
from flux_trio.sim import (
    Depth,
    JobFacts,
    Outcome,
    SimulationStalled,
    WorkloadJob,
    make_machine,
    read_workload,
    simulate,
)
from flux_trio.trace import Record, record_to_json

LASSEN = Path(__file__).parents[1] / "data" / "workloads" / "lassen-100.csv"
T0 = 1534934333.0  # any time


def job(
    name: str, nnodes: int, elapsed_s: float, timelimit_s: float, after_s: float = 0.0
) -> WorkloadJob:
    """Whole nodes of 4 cores, submitted `after_s` seconds after the first."""
    return WorkloadJob(name, nnodes, 4 * nnodes, 0, timelimit_s, T0 + after_s, elapsed_s)


def starts(jobs: list[JobFacts]) -> dict[str, float | None]:
    """Seconds from the first submit to each start."""
    return {each.name: None if each.t_start is None else each.t_start - T0 for each in jobs}


# b needs the whole machine and waits for a; c is small and short enough to be over before a is.
BACKFILL = [job("a", 3, 100, 100), job("b", 4, 50, 60, 1), job("c", 1, 60, 80, 2)]


def test_first_in_first_out_keeps_the_order_of_submission() -> None:
    result = simulate(BACKFILL, make_machine(4, 4), "fifo")
    assert starts(result.jobs) == {"a": 0, "b": 100, "c": 150}
    assert result.metrics.makespan_s == 210


def test_easy_fills_the_hole_without_delaying_the_head_of_the_queue() -> None:
    result = simulate(BACKFILL, make_machine(4, 4), "easy")
    assert starts(result.jobs) == {"a": 0, "b": 100, "c": 2}
    assert result.metrics.makespan_s == 150
    assert result.metrics.utilisation == pytest.approx((12 * 100 + 16 * 50 + 4 * 60) / (16 * 150))


def test_easy_does_not_start_what_would_delay_the_head_of_the_queue() -> None:
    long = [*BACKFILL[:2], job("c", 1, 60, 120, 2)]  # its limit, not its end, is what is known
    assert starts(simulate(long, make_machine(4, 4), "easy").jobs)["c"] == 150


def test_a_job_ends_at_its_time_limit() -> None:
    one, other = simulate([job("a", 1, 31, 30), job("b", 1, 30, 31)], make_machine(2, 4)).jobs
    assert (one.outcome, one.run_s) == (Outcome.TIMEOUT, 30)
    assert one.note == "resource allocation expired"
    assert (other.outcome, other.run_s) == (Outcome.COMPLETED, 30)


def test_a_job_that_is_too_large_for_the_machine_is_denied_and_the_others_go_on() -> None:
    result = simulate([job("a", 5, 10, 10), job("b", 4, 10, 10, 1)], make_machine(4, 4))
    denied, completed = result.jobs
    assert (denied.outcome, denied.t_start, denied.t_end) == (Outcome.DENIED, None, T0)
    assert denied.note
    assert completed.outcome == Outcome.COMPLETED
    assert result.metrics.outcomes[Outcome.DENIED] == 1


def test_jobs_without_a_limit_without_a_duration_and_without_nodes() -> None:
    jobs = [
        WorkloadJob("endless", 1, 4, 0, 0.0, T0, 5000.0),
        WorkloadJob("empty", 1, 4, 0, 60.0, T0, 0.0),
        WorkloadJob("anywhere", None, 6, 0, 60.0, T0, 30.0),
    ]
    result = simulate(jobs, make_machine(4, 4))
    assert [each.outcome for each in result.jobs] == [Outcome.COMPLETED] * 3
    assert [each.run_s for each in result.jobs] == [5000, 0, 30]


@functools.cache
def trace_of(seed: int, depth: Depth = "stack") -> tuple[bytes, list[JobFacts]]:
    """The whole trace of 100 jobs of Lassen on a machine that makes them wait."""
    jobs = read_workload(LASSEN.read_text().splitlines())
    lines: list[bytes] = []

    def keep(record: Record) -> None:
        lines.append(record_to_json(record))

    result = simulate(jobs, make_machine(20, 40), "easy", seed, sinks=[keep], depth=depth)
    return b"\n".join(lines), result.jobs


@pytest.mark.in_part(2)
@pytest.mark.parametrize(("depth", "is_drawn"), [("stack", True), ("cores", False)])
def test_seed_draws_the_order_on_the_stack_alone(depth: Depth, *, is_drawn: bool) -> None:
    """What may happen in any order."""
    (one, jobs), (other, jobs_other) = trace_of(1, depth), trace_of(2, depth)
    assert (one != other) is is_drawn
    assert [each.name for each in jobs] == [each.name for each in jobs_other]


def test_a_run_over_a_month_ends_all_jobs_three_of_them_by_their_limit() -> None:
    result = simulate(read_workload(LASSEN.read_text().splitlines()), make_machine(20, 40))
    assert result.metrics.outcomes[Outcome.TIMEOUT] == 3
    assert result.metrics.outcomes[Outcome.DENIED] == 2  # of 40 and of 90 nodes
    assert result.metrics.outcomes[Outcome.COMPLETED] == 95
    assert result.metrics.makespan_s > 30 * 86400


def test_progress_counts_up_to_all_jobs() -> None:
    told: list[tuple[int, int]] = []
    simulate(BACKFILL, make_machine(4, 4), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3, 3)
    assert told == sorted(told)


class Ponder(jobtap.Plugin):
    """Never makes up its mind about the job named b."""

    name = "ponder"

    @jobtap.on("job.state.priority")
    async def prioritize(self, job: jobtap.Job) -> None:
        if job.jobspec.attribute("system.job.name") == "b":
            await trio.sleep_forever()


def test_jobs_that_will_never_end_are_an_error_that_names_them() -> None:
    with pytest.raises(SimulationStalled) as caught:
        simulate(BACKFILL, make_machine(4, 4), plugins=[Ponder()])
    text = str(caught.value)
    assert text.startswith("1 of 3 jobs have not ended and nothing has happened for 160 s: b. ")


class Hold(jobtap.Plugin):
    """Gives every job this priority."""

    name = "hold"

    def __init__(self, priority: int | jobtap.Unavailable) -> None:
        self.priority = priority

    @jobtap.on("job.state.priority", "job.priority.get")
    def prioritize(self, _job: jobtap.Job) -> int | jobtap.Unavailable:
        return self.priority


@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize(
    ("priority", "why"),
    [
        (0, "it is held: plugins gave it priority 0; hold says 0"),
        (jobtap.UNAVAILABLE, "priority unavailable; hold says the priority is unavailable"),
    ],
)
def test_why_the_first_job_waits_is_said_when_jobs_will_never_end(
    depth: Depth, priority: int | jobtap.Unavailable, why: str
) -> None:
    with pytest.raises(SimulationStalled) as caught:
        simulate(BACKFILL, make_machine(4, 4), plugins=[Hold(priority)], depth=depth)
    assert str(caught.value) == (
        "3 of 3 jobs have not ended and nothing has happened for 160 s: a, b, c. "
        f"Job a waits: {why}. The log ends with: nothing"
    )


class Prolog(jobtap.Plugin):
    """Lets the job named b go first, and holds its start for ever."""

    name = "prolog"

    @jobtap.on("job.state.priority")
    def prioritize(self, job: jobtap.Job) -> int:
        return 20 if job.jobspec.attribute("system.job.name") == "b" else 10

    @jobtap.on("job.state.run")
    def run(self, job: jobtap.Job) -> None:
        job.prolog_start("for ever")


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_the_scheduler_is_asked_too_why_a_job_waits(depth: Depth) -> None:
    jobs = [job("a", 4, 50, 60), job("b", 4, 50, 60)]
    with pytest.raises(SimulationStalled, match=r" Job a waits: insufficient resources\. "):
        simulate(jobs, make_machine(4, 4), plugins=[Prolog()], depth=depth)


class Small(jobtap.Plugin):
    """Takes no job of more than three nodes."""

    name = "small"

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if (job.jobspec.nnodes or 0) > 3:
            raise jobtap.Reject("too large")


def test_a_job_that_a_plugin_rejects_is_denied_and_the_others_go_on() -> None:
    result = simulate(BACKFILL, make_machine(4, 4), plugins=[Small()])
    assert [each.outcome for each in result.jobs] == [
        Outcome.COMPLETED,
        Outcome.DENIED,
        Outcome.COMPLETED,
    ]
    assert result.jobs[1].note.endswith("too large")


LONGEST_S = 12725 * 86400


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_jobs_that_lie_further_apart_than_job_ids_reach_are_refused(depth: Depth) -> None:
    far = [job("a", 1, 10, 60), job("b", 1, 10, 60, LONGEST_S)]
    result = simulate(far, make_machine(1, 4), depth=depth)
    assert starts(result.jobs) == {"a": 0, "b": LONGEST_S}
    too_far = [job("a", 1, 10, 60), job("b", 1, 10, 60, LONGEST_S + 86400)]
    with pytest.raises(FormatError, match=r"^job b, submit_s: expected .* got 12726\.0 days$"):
        simulate(too_far, make_machine(1, 4), depth=depth)


def test_an_empty_workload_has_nothing_to_tell() -> None:
    result = simulate([], make_machine(4, 4))
    assert result.jobs == []
    assert result.metrics.njobs == 0


@pytest.mark.real
@pytest.mark.in_part(2)
@pytest.mark.parametrize("depth", ["stack", "cores"])
def test_the_same_seed_gives_the_same_trace_in_another_process(depth: Depth) -> None:
    """Strings hash differently in each process: nothing may follow the order of a set of them."""
    program = (
        "from hashlib import sha256; from tests.sim.test_run import trace_of; "
        f"print(sha256(trace_of(1, {depth!r})[0]).hexdigest())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "42"},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    assert other.stdout.strip() == sha256(trace_of(1, depth)[0]).hexdigest()


@pytest.mark.parametrize(("nnodes", "cores", "gpus"), [(1, 1, 0), (1, 4, 1), (3, 1, 2)])
def test_a_machine_may_be_as_small_as_one_core(nnodes: int, cores: int, gpus: int) -> None:
    machine = make_machine(nnodes, cores, gpus)
    assert (machine.nnodes, machine.ncores, machine.ngpus) == (
        nnodes,
        nnodes * cores,
        nnodes * gpus,
    )
