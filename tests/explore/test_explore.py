"""Every interleaving of a small world: what is met, what is judged, and how it is told."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from flux_trio.cores.kvs.ops import Put
from flux_trio.judge.engine.selector import payload
from flux_trio.lab import Crash, Drop, JobPlan, OwnerRequest, Plan, Return, SentMessage
from flux_trio.lab.catalogue import GuestFlood, When
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState
from flux_trio.protocols.execution import EXECUTION, ExecEvent, ExecState
from flux_trio.services.at_once import JobManagerAtOnce
from flux_trio.trace import Kind, Record, record_to_json
from flux_trio.views import story_text
from tests.explore.search import (
    WORLDS,
    Broken,
    Report,
    Search,
    SmallWorld,
    UnsuitablePlan,
    tell_path,
)
from tests.explore.search.identity import identity
from tests.explore.search.small_world import Choice, Fire, Load, Strike, Take, WorldState

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(),))
EXEC = msgspec.structs.replace(WORLDS["exec-crash"], jobs=(JobPlan(run=0.0),))
SCHED = msgspec.structs.replace(ONE, faults=(Crash("sched", 1),))
FLOOD = GuestFlood(When("job-exec.start", 1))
SEEDS = range(20)


def explored(plan: Plan, *, with_rules: bool = True) -> Report:
    return Search(plan, with_rules=with_rules).run()


def test_world_without_faults_is_explored_to_its_end() -> None:
    report = explored(ONE)
    assert (report.is_complete, report.broken) == (True, None)
    assert report.nrest > 0
    assert report.nstates <= report.ntransitions


def test_execution_service_may_crash_and_come_back_at_any_moment() -> None:
    report = explored(EXEC)
    assert (report.is_complete, report.broken) == (True, None)
    assert report.nstates > 10 * explored(ONE).nstates


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_of_make_explore_begin_clean(name: str) -> None:
    report = Search(WORLDS[name]).run(300)
    assert (report.broken, report.is_complete) == (None, False)


@pytest.mark.parametrize(
    "plan",
    [
        msgspec.structs.replace(SCHED, actions=(OwnerRequest(0.0, "cancel"),)),
        msgspec.structs.replace(SCHED, actions=(OwnerRequest(0.0, "urgency", value=0),)),
        msgspec.structs.replace(ONE, faults=(Crash("resource", 1),)),
    ],
    ids=["cancel", "urgency", "resource"],
)
def test_request_that_wants_no_response_may_wait_at_a_module_that_ends(plan: Plan) -> None:
    """The record of its loss names who has sent it, and not the module at which it waited."""
    report = Search(plan, with_rules=True).run(500)
    assert (report.broken, report.is_complete) == (None, False)


@pytest.mark.parametrize("fault", [Crash("resource", 1), Return("resource", 1)], ids=str)
def test_end_of_the_resource_service_is_explored_to_its_end(fault: Crash | Return) -> None:
    plan = msgspec.structs.replace(ONE, jobs=(), faults=(fault,))
    report = explored(plan, with_rules=False)
    assert (report.is_complete, report.broken) == (True, None)


def test_module_that_ends_since_another_is_missing_is_loaded_again_after_that_one() -> None:
    faults = (Crash("resource", 1), Crash("sched", 1))
    world = SmallWorld(msgspec.structs.replace(ONE, jobs=(), faults=faults))
    world.do(Strike(1))
    world.do(Strike(0))
    assert {each for each in world.choices() if isinstance(each, Load)} == {
        Load("resource"),
        Load("sched"),
    }
    world.do(Load("sched"))
    while isinstance(choice := world.choices()[0], Take):
        world.do(choice)
    assert "sched" not in world.stations
    assert [each for each in world.choices() if isinstance(each, Load)] == [Load("resource")]
    before = world.put_down()
    world.do(Load("resource"))
    assert Load("sched") in world.choices()
    world.take_up(before)
    assert Load("sched") not in world.choices()


def broken_by(plan: Plan, *, with_rules: bool) -> Broken:
    broken = explored(plan, with_rules=with_rules).broken
    assert broken is not None
    return broken


@pytest.mark.parametrize("with_rules", [True, False])
def test_lost_start_is_found_and_told(monkeypatch: pytest.MonkeyPatch, with_rules: bool) -> None:
    """The job manager forgets that it has to ask the next execution service."""
    rows = EXECUTION.rows[ExecState.STARTING]
    monkeypatch.setitem(rows, ExecEvent.LOST, ExecState.STARTING)
    broken = broken_by(EXEC, with_rules=with_rules)
    story = tell_path(EXEC, broken)
    text = story_text(story)
    assert story.broken == broken.name
    assert f"{broken.name} is broken" in text
    assert "fault crash job-exec" in text
    assert f"  {len(broken.path)}. " in text
    assert f"  {len(broken.path) + 1}. " not in text
    first = {each.module for each in story.changes if each.after == 0}
    assert first == SmallWorld(EXEC).stations.keys() & set(SmallWorld(EXEC).modules)


def test_same_mistake_is_found_as_early_without_the_states_of_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING)
    with_rules, without = (broken_by(SCHED, with_rules=each) for each in (True, False))
    assert (with_rules.name, len(with_rules.path)) == (without.name, len(without.path))


def test_core_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = JobManagerAtOnce.turn

    def raises(self: JobManagerAtOnce, now: float, inputs: list[object]) -> list[object]:
        if any(getattr(each, "topic", "") == "job-manager.raise" for each in inputs):
            raise ValueError("no")
        return turn(self, now, inputs)

    monkeypatch.setattr(JobManagerAtOnce, "turn", raises)
    plan = msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "cancel"),))
    broken = broken_by(plan, with_rules=False)
    assert (broken.name, broken.found) == ("error", "job-manager raised ValueError: no")
    assert tell_path(plan, broken).broken == "error"


def test_request_that_is_never_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallWorld, "unanswered", lambda _: ["user1"])
    broken = broken_by(ONE, with_rules=False)
    assert (broken.name, broken.found) == ("answered", "user1 has a request that is not answered")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (lambda text: text + line_of(text, "start"), "once"),
        (lambda text: text.replace(line_of(text, "clean"), ""), "stored"),
    ],
)
def test_what_is_stored_at_rest_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, changed: Callable[[str], str], name: str
) -> None:
    read = SmallWorld.read_store

    def read_changed(self: SmallWorld) -> None:
        read(self)
        (key,) = (each for each in self.disk.store.dir("job") if each.endswith(".eventlog"))
        (text,) = self.disk.store.lookup([key])
        assert isinstance(text, str)
        self.disk.store.commit([Put(key, changed(text))])

    monkeypatch.setattr(SmallWorld, "read_store", read_changed)
    broken = broken_by(ONE, with_rules=False)
    assert broken.name == name
    story = tell_path(ONE, broken)
    assert (story.broken, bool(story.sentence)) == (name, True)


def line_of(eventlog: str, name: str) -> str:
    """The line of the event."""
    (line,) = (each for each in eventlog.splitlines(keepends=True) if f'"{name}"' in each)
    return line


# --- the states of a world


def walk(plan: Plan, seed: int, world: SmallWorld, trace: list[Record]) -> list[bytes]:
    """Let the seed draw every choice until the world is at rest; return the trace."""
    draw = random.Random(seed)
    while choices := world.choices():
        world.do(draw.choice(choices))
    return [record_to_json(msgspec.structs.replace(each, n=0, ref=0)) for each in trace]


@pytest.mark.parametrize("seed", SEEDS)
def test_remembered_turns_are_those_of_the_cores(seed: int) -> None:
    print("seed", seed)
    trace: list[Record] = []
    warm = SmallWorld(SCHED, [trace.append])
    start = warm.put_down()
    trace.clear()
    walks = []
    for nth in (seed, seed + 1, seed):
        warm.take_up(start)
        walks.append(walk(SCHED, nth, warm, trace))
        trace.clear()
    cold = SmallWorld(SCHED, [trace.append])
    trace.clear()
    assert walks[0] == walks[2] == walk(SCHED, seed, cold, trace)


def test_states_of_a_core_with_different_counts_of_requests_have_one_number() -> None:
    world = SmallWorld(SCHED)
    machine = world.machines["sched"]
    idle, _ = machine.start(world.now)
    asked = Request(topics.stats_of(topics.SCHED), None, 1)
    again, actions = machine.turn(idle, world.now, [asked])
    assert [type(each) for each in actions] == [Response]
    assert again == idle
    assert len(set(machine.marks)) == len(machine.marks)


def successors(world: SmallWorld, state: WorldState) -> dict[Choice, bytes]:
    """By what happens next: the identity of the state that is reached."""
    found = {}
    world.take_up(state)
    for choice in world.choices():
        world.take_up(state)
        world.do(choice)
        found[choice] = identity(world.put_down(), world.machines)
    return found


@pytest.mark.parametrize("plan", [EXEC, SCHED], ids=["exec", "sched"])
def test_states_of_one_identity_go_on_alike(plan: Plan) -> None:
    world = SmallWorld(plan)
    first = world.put_down()
    known = {identity(first, world.machines): (first, successors(world, first))}
    met = [first]
    ntwins = 0
    while met and ntwins < 300:
        state = met.pop()
        world.take_up(state)
        for choice in world.choices():
            world.take_up(state)
            world.do(choice)
            reached = world.put_down()
            name = identity(reached, world.machines)
            found = known.get(name)
            if found is None:
                known[name] = (reached, successors(world, reached))
                met.append(reached)
            elif found[0] != reached:
                ntwins += 1
                assert successors(world, reached) == found[1]
    assert ntwins >= 300


def test_choices_are_messages_timers_faults_and_loads() -> None:
    world = SmallWorld(WORLDS["exec-crash"])
    kinds = set()
    draw = random.Random(3)
    while choices := world.choices():
        kinds |= set(map(type, choices))
        world.do(draw.choice(choices))
    assert kinds == {Take, Fire, Strike, Load}


def submissions(plan: Plan) -> list[int]:
    """How many jobs there are in each request to the job manager."""
    trace: list[Record] = []
    SmallWorld(plan, [trace.append])
    return [
        len(payload(each)["jobs"])
        for each in trace
        if each.kind == Kind.SEND
        and isinstance(each.message, Request)
        and each.message.topic == topics.JOB_SUBMIT
    ]


@pytest.mark.parametrize(
    ("times", "batches"), [((0, 0), [2]), ((0, 5), [1, 1]), ((5, 5, 0), [2, 1])]
)
def test_jobs_with_the_same_time_are_submitted_together(
    times: tuple[float, ...], batches: list[int]
) -> None:
    jobs = tuple(JobPlan(at=each) for each in times)
    assert submissions(msgspec.structs.replace(ONE, jobs=jobs)) == batches


def test_timer_fires_at_any_moment_and_the_clock_stands_still() -> None:
    trace: list[Record] = []
    world = SmallWorld(ONE, [trace.append])
    draw = random.Random(3)
    timers = []
    while choices := world.choices():
        timers += [station.next_timer for station in world.stations.values()]
        world.do(draw.choice(choices))
    assert {each.t for each in trace} == {world.now}
    assert max(each for each in timers if each is not None) > world.now


# --- the search


def test_search_stops_at_so_many_states() -> None:
    report = Search(EXEC).run(100)
    assert not report.is_complete
    assert 100 <= report.nstates < 110
    assert report.broken is None


def test_interrupt_leaves_the_report_so_far() -> None:
    interrupted: list[int] = []

    def interrupt(report: Report) -> None:
        if not interrupted:
            interrupted.append(report.ntransitions)
            raise KeyboardInterrupt

    report = Search(SCHED).run(tell=interrupt)
    assert [report.ntransitions] == interrupted
    assert (report.is_complete, report.broken) == (False, None)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (msgspec.structs.replace(ONE, faults=(Crash("job-manager", 1),)), "got crash job-manager$"),
        (msgspec.structs.replace(ONE, faults=(Drop(SentMessage("sched.alloc")),)), "got drop$"),
        (msgspec.structs.replace(ONE, faults=(FLOOD,)), "got guest-flood$"),
        (
            msgspec.structs.replace(ONE, actions=(OwnerRequest(0.0, "watch"),)),
            "^expected actions that do without job-list, which is not loaded, got watch$",
        ),
        (msgspec.structs.replace(ONE, plugins=("mine.py",)), "plugins"),
        (msgspec.structs.replace(ONE, depth="stack"), "not depth stack with the store memory"),
        (msgspec.structs.replace(ONE, store="sqlite"), "not depth cores with the store sqlite"),
    ],
)
def test_plan_that_is_not_explored_says_why(plan: Plan, said: str) -> None:
    with pytest.raises(UnsuitablePlan, match=said):
        Search(plan)


def test_search_is_the_same_in_another_process() -> None:
    script = (
        "from tests.explore.search import *; "
        "r = Search(WORLDS['exec-crash'], with_rules=True).run(1000); "
        "print(r.nstates, r.ntransitions, r.depth, r.nrest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
