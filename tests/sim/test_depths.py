"""Simulated runs at both depths: the cores alone give what the services of an instance give."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Request, topics
from flux_trio.sim import (
    Depth,
    JobFacts,
    Outcome,
    SimulationResult,
    SimulationStalled,
    WorkloadJob,
    deal_users,
    make_machine,
    read_workload,
    simulate,
)
from flux_trio.trace import Kind, Record

LASSEN = Path(__file__).parents[1] / "data" / "workloads" / "lassen-100.csv"
T0 = 1534934333.0  # any time
POLICIES: tuple[str, ...] = ("fifo", "easy", "conservative")


def lassen() -> list[WorkloadJob]:
    """Jobs of a real log."""
    return read_workload(LASSEN.read_text().splitlines())


def crowd(count: int, seed: int) -> list[WorkloadJob]:
    """Jobs of all sizes; many are submitted at the same moment, and many end at the same one."""
    draw = random.Random(seed)
    return [
        WorkloadJob(
            name=str(place),
            nnodes=(nnodes := draw.choice((None, 1, 1, 2, 5, 9, 20, 21))),
            ncores=(nnodes or 1) * draw.choice((1, 3, 4)),
            ngpus=0,
            timelimit_s=draw.choice((0.0, 5.0, 10.0, 60.0)),
            submit_s=T0 + draw.choice((0.0, 0.0, 1.0, 10.0, 15.0, 40.25)),
            elapsed_s=draw.choice((0.0, 5.0, 10.0, 30.5)),
        )
        for place in range(count)
    ]


LOGS = {
    "lassen": (lassen()[:50], make_machine(20, 40)),
    "crowd": (crowd(80, 1), make_machine(20, 4)),
    "small machine": (crowd(60, 2), make_machine(2, 4)),
}


class Placed:
    """Keeps R of each job, as the scheduler commits it (a sink)."""

    def __init__(self) -> None:
        self.by_job: dict[str, Any] = {}

    def __call__(self, record: Record) -> None:
        message = record.message
        if (
            record.kind == Kind.SEND
            and record.party == "sched"
            and isinstance(message, Request)
            and message.topic == topics.KVS_COMMIT
            and isinstance(message.payload, dict)
        ):
            for _, key, value in message.payload["ops"]:
                self.by_job[key] = value


def both(
    jobs: list[WorkloadJob],
    machine: Any,
    policy: str,
    seed: int = 0,
    plugins: tuple[type[jobtap.Plugin], ...] = (),
    **more: Any,
) -> SimulationResult:
    """Run at both depths; start, end, outcome, priorities and R of each job are the same."""
    ran: dict[Depth, tuple[SimulationResult, Placed]] = {}
    depths: tuple[Depth, Depth] = ("cores", "stack")
    for depth in depths:
        placed = Placed()
        loaded = [each() for each in plugins]
        result = simulate(
            jobs, machine, policy, seed, sinks=[placed], depth=depth, plugins=loaded, **more
        )
        assert result.depth == depth
        ran[depth] = result, placed
    (cores, placed), (stack, placed_on_stack) = ran["cores"], ran["stack"]
    assert cores.jobs == stack.jobs
    assert placed.by_job == placed_on_stack.by_job
    started = sum(job.t_start is not None for job in cores.jobs)
    assert len(placed.by_job) == started > 0
    assert cores.shares == stack.shares
    return cores


@pytest.mark.in_part(4)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("log", LOGS)
def test_each_job_starts_and_ends_as_on_the_stack(log: str, policy: str) -> None:
    jobs, machine = LOGS[log]
    result = both(jobs, machine, policy)
    assert {Outcome.COMPLETED, Outcome.DENIED} <= {job.outcome for job in result.jobs}


@pytest.mark.parametrize("seed", [1, 2])
def test_no_order_of_the_tasks_on_the_stack_makes_a_difference(seed: int) -> None:
    both(crowd(80, seed), make_machine(20, 4), "easy", seed)


LIMITED = parse_config(
    """
    [queues.short]
    [queues.long]
    [policy]
    jobspec.defaults.system.queue = "short"
    limits.job-size.max.nnodes = 9
    [sched]
    mode = "limited"
    limit = 3
    """
)


def test_queues_and_limits_of_a_configuration_are_kept() -> None:
    result = both(crowd(80, 5), make_machine(20, 4), "easy", config=LIMITED)
    assert any("nnodes" in job.note for job in result.jobs if job.outcome == Outcome.DENIED)


def test_where_the_order_within_a_moment_decides_the_cores_have_one_of_the_orders() -> None:
    """In limited mode it matters whether a job ends before or after the next one is offered."""
    jobs, machine = crowd(80, 4), make_machine(20, 4)

    def ran(depth: Depth, seed: int) -> list[JobFacts]:
        return simulate(jobs, machine, "easy", seed, depth=depth, config=LIMITED).jobs

    on_stack = [ran("stack", seed) for seed in range(4)]
    assert any(each != on_stack[0] for each in on_stack)
    assert ran("cores", 0) in on_stack


class Turned(jobtap.Plugin):
    """Gives the longest jobs the highest priority, and holds no user's job for others."""

    name = "turned"

    @jobtap.on("job.state.priority")
    def prioritize(self, job: jobtap.Job) -> int:
        return 16 + int(job.jobspec.duration)

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if job.jobspec.nnodes == 5:
            raise jobtap.Reject("five is not taken")

    @jobtap.on("job.state.inactive")
    def turn(self, _job: jobtap.Job) -> None:
        self.reprioritize_all()


class Shares(jobtap.Plugin):
    """Has shares, counts the jobs of users, and raises now and then."""

    name = "shares"

    def __init__(self) -> None:
        self.jobs_of: dict[int, int] = {}

    @jobtap.on("job.new")
    def new(self, job: jobtap.Job) -> None:
        self.jobs_of[job.userid] = self.jobs_of.get(job.userid, 0) + 1

    @jobtap.on("job.state.inactive")
    def ended(self, job: jobtap.Job) -> None:
        if job.jobspec.nnodes == 9:
            raise ValueError("nine")

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        return {"shares": {str(userid): count for userid, count in self.jobs_of.items()}}


def test_plugins_are_asked_and_told_as_on_the_stack() -> None:
    jobs = deal_users(crowd(100, 5), 4, 5)
    result = both(jobs, make_machine(20, 4), "easy", plugins=(Turned, Shares))
    assert any("five is not taken" in job.note for job in result.jobs)
    assert sum(result.shares.values()) == sum("five" not in job.note for job in result.jobs)


@functools.cache
def trace_of(depth: Depth) -> list[Record]:
    """The trace of some jobs of users."""
    records: list[Record] = []
    jobs = deal_users(lassen()[:40], 3, 1)
    simulate(jobs, make_machine(20, 40), "easy", depth=depth, sinks=[records.append])
    return records


def test_no_clause_is_broken_at_the_cores() -> None:
    monitor = Monitor(ALL_RULES, load_clauses())
    found = [each for record in trace_of("cores") for each in monitor.observe(record)]
    assert found + monitor.finish() == []


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_a_trace_says_what_ran(depth: Depth) -> None:
    said = [each.data for each in trace_of(depth) if each.party == "simulation"]
    assert said == [{"what": "simulated", "depth": depth}]


class Ponders(jobtap.Plugin):
    """Waits before it says a priority."""

    name = "ponders"

    @jobtap.on("job.state.priority")
    async def prioritize(self, job: jobtap.Job) -> int:
        await trio.sleep(3)
        return job.urgency


async def soon() -> None:
    """A task."""


class Begins(jobtap.Plugin):
    """Begins a task with its first job."""

    name = "begins"

    @jobtap.on("job.new")
    def new(self, _job: jobtap.Job) -> None:
        self.start_soon(soon)


class BeginsAtOnce(jobtap.Plugin):
    """Begins a task when it is loaded."""

    name = "begins-at-once"

    def loaded(self) -> None:
        self.start_soon(trio.sleep_forever)


FEW = [WorkloadJob(name, 1, 4, 0, 60.0, T0, 5.0) for name in "ab"]


@pytest.mark.parametrize("make", [Ponders, BeginsAtOnce])
def test_a_plugin_that_waits_takes_the_run_to_the_stack(make: type[jobtap.Plugin]) -> None:
    result = simulate(FEW, make_machine(2, 4), plugins=[make()])
    assert result.depth == "stack"
    assert [job.outcome for job in result.jobs] == [Outcome.COMPLETED] * 2
    with pytest.raises(jobtap.PluginError, match=f"plugin {make().name} may wait"):
        simulate(FEW, make_machine(2, 4), plugins=[make()], depth="cores")


def test_a_plugin_file_with_async_functions_takes_the_run_to_the_stack(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(
        "from flux_trio import jobtap\n"
        "async def wait() -> None: ...\n"
        "class Slow(jobtap.Plugin):\n"
        "    @jobtap.on('job.new')\n"
        "    def new(self, job: jobtap.Job) -> None:\n"
        "        self.start_soon(wait)\n"
    )
    config = parse_config(f"[[job-manager.plugins]]\nload = '{path}'\n")
    assert simulate(FEW, make_machine(2, 4), config=config).depth == "stack"


def test_a_plugin_that_waits_all_the_same_ends_the_run_and_is_told_where_it_could() -> None:
    with pytest.raises(jobtap.PluginError, match=r"plugin begins waits: .* depth stack"):
        simulate(FEW, make_machine(2, 4), plugins=[Begins()])
    result = simulate(FEW, make_machine(2, 4), plugins=[Begins()], depth="stack")
    assert [job.outcome for job in result.jobs] == [Outcome.COMPLETED] * 2


class Holds(jobtap.Plugin):
    """Never lets the job named b go."""

    name = "holds"

    @jobtap.on("job.state.depend")
    def depend(self, job: jobtap.Job) -> None:
        if job.jobspec.attribute("system.job.name") == "b":
            job.add_dependency("godot")


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_jobs_that_will_never_end_are_named_at_both_depths(depth: Depth) -> None:
    text = r"1 of 2 jobs have not ended and nothing has happened for 65 s: b\."
    with pytest.raises(SimulationStalled, match=text):
        simulate(FEW, make_machine(2, 4), plugins=[Holds()], depth=depth)


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_a_plugin_that_cannot_be_loaded_is_the_same_error_at_both_depths(depth: Depth) -> None:
    config = parse_config("[[job-manager.plugins]]\nload = '/no/such.py'\n")
    with pytest.raises((ExceptionGroup, jobtap.PluginError)) as caught:
        simulate(FEW, make_machine(2, 4), config=config, depth=depth)
    assert "job-manager.plugins[0]: no plugin /no/such.py" in str(caught.getrepr())


def test_gaps_between_submissions_are_no_stall() -> None:
    jobs = [WorkloadJob(str(n), 1, 4, 0, 60.0, T0 + n * 1e6, 5.0) for n in range(3)]
    result = both(jobs, make_machine(1, 4), "fifo")
    assert [job.wait_s for job in result.jobs] == [0.0, 0.0, 0.0]
