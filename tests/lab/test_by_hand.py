"""Worlds played by hand: they stop where a test says, and show and do what it asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.formats import FormatError
from flux_trio.lab import Crash, JobPlan, Plan, SentMessage, When
from flux_trio.lab.catalogue import Drop, KillInstance, NodesDown, TornCommit, Withheld
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.stories.by_hand import AtTime, ByHand, InState, Logged, NeverReached
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.messages import Response, topics
from flux_trio.protocols import JobState
from flux_trio.trace import Kind

ALLOC_SENT = When(topics.SCHED_ALLOC, side="send")
GRANTED = When(topics.SCHED_ALLOC, side="send", type="response")
DEPTHS = pytest.mark.parametrize("depth", ["cores", "stack"])


def hand(*jobs: JobPlan, **plan: Any) -> ByHand:
    return ByHand(Plan(seed=1, jobs=jobs or (JobPlan(), JobPlan()), **plan))


def count(world: ByHand, kind: Kind, topic: str, type_: type = Response) -> int:
    return sum(
        record.kind == kind
        and isinstance(record.message, type_)
        and getattr(record.message, "topic", "") == topic
        for record in world.trace
    )


def test_scheduler_dies_after_the_second_alloc_reached_it_and_before_it_answers() -> None:
    world = hand(cores=1)
    stopped = world.run_until(When(topics.SCHED_ALLOC, nth=2))
    assert stopped.record is world.trace[-1]
    before = count(world, Kind.SEND, topics.SCHED_ALLOC)
    world.crash("sched")
    world.run()
    assert world.is_at_rest
    assert count(world, Kind.SEND, topics.SCHED_ALLOC) == before
    assert world.state_of(0) == world.state_of(1) == JobState.SCHED
    world.load("sched")
    world.run()
    assert world.state_of(0) == world.state_of(1) == JobState.INACTIVE
    assert world.outcome().problems == ()


@DEPTHS
def test_message_that_is_held_waits_until_it_is_released(depth: Depth) -> None:
    with hand(depth=depth) as world:
        grant = world.run_until(GRANTED)
        grant.hold()
        world.run()
        assert world.is_at_rest
        assert JobState.SCHED in (world.state_of(0), world.state_of(1))
        grant.release()
        assert world.outcome().problems == ()


def test_world_is_not_at_rest_when_a_held_message_goes_on() -> None:
    world = hand()
    stopped = world.run_until(GRANTED)
    stopped.hold()
    world.run()
    assert not world.step()
    stopped.release()
    assert not world.is_at_rest
    assert world.step()
    assert not world.is_at_rest


def test_message_that_is_delayed_arrives_later() -> None:
    world = hand()
    world.run_until(GRANTED).delay(7.0)
    granted = world.run_until(Logged("alloc"))
    assert granted.record is not None
    assert granted.record.t == EPOCH + 7.0
    assert world.outcome().problems == ()


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan, "7", 1e30])
def test_time_that_never_comes_is_refused(seconds: Any) -> None:
    world = hand()
    sent = world.run_until(GRANTED)
    expected = "a number of seconds, at least 0, got"
    if seconds == 1e30:
        expected = r"float <= 100000000\.0, got 1e\+30"
    for refuse in (sent.delay, AtTime):
        with pytest.raises(FormatError, match=f"seconds: expected {expected}"):
            refuse(seconds)
    world.run_until(Logged("alloc"))


def test_message_that_is_dropped_is_never_taken() -> None:
    world = hand()
    stopped = world.run_until(GRANTED)
    stopped.drop()
    with pytest.raises(NeverReached, match="at rest"):
        world.run_until(lambda world: world.state_of(0) == world.state_of(1) == JobState.INACTIVE)
    assert stopped.record is not None
    fate = [each.kind for each in world.trace if each.ref == stopped.record.n]
    assert fate == [Kind.DROP]
    assert "inactive" in world.outcome().broken


def test_message_that_is_duplicated_is_taken_twice() -> None:
    world = hand()
    stopped = world.run_until(ALLOC_SENT)
    stopped.duplicate()
    world.run()
    assert stopped.record is not None
    assert [each.ref for each in world.trace].count(stopped.record.n) == 2


def test_what_was_received_cannot_be_held() -> None:
    world = hand()
    stopped = world.run_until(When(topics.SCHED_ALLOC))
    with pytest.raises(ValueError, match="sent and not received"):
        stopped.hold()


def test_stops_at_an_event_a_state_a_time_and_what_a_function_says() -> None:
    world = hand(JobPlan(run=10.0), JobPlan(at=20.0))
    assert world.run_until(Logged("alloc")).record is world.trace[-1]
    world.run_until(InState(0, JobState.RUN))
    assert world.state_of(0) == JobState.RUN
    world.run_until(AtTime(5.0))
    assert world.world.passed == EPOCH + 5.0
    assert world.state_of(1) is None
    world.run_until(lambda world: world.state_of(1) is not None)
    started = world.run_until(Logged("start", job=1))
    assert started.record is not None
    assert started.record.data is not None
    assert started.record.data["id"] == world.plan_run.owner.ids[1]


def test_every_core_can_be_looked_at_wherever_a_world_stops() -> None:
    world = hand()
    world.run_until(ALLOC_SENT)
    there = world.dumps()
    assert list(there) == list(world.world.modules)
    world.unload("sched")
    assert list(world.dumps()) == [name for name in there if name != "sched"]
    before = world.dump("job-manager")
    world.run()
    assert world.dump("job-manager") != before


def test_any_fault_of_the_catalogue_strikes_at_once() -> None:
    world = hand(JobPlan(run=30.0, nnodes=4))
    world.run_until(InState(0, JobState.RUN))
    world.strike(NodesDown((0,), when=1, back=2.0))
    ended = world.run_until(Logged("exception", job=0))
    assert ended.record is not None
    assert ended.record.t < EPOCH + 30.0
    assert world.outcome().problems == ()
    assert [type(each) for each in world.plan_run.struck] == [NodesDown]


def ended_at_run(depth: Depth, strike: Callable[[ByHand], None]) -> ByHand:
    """Return a world of two jobs, after `strike` when the first one runs."""
    jobs = (JobPlan(run=10.0), JobPlan(run=5.0))
    world = ByHand(Plan(seed=1, jobs=jobs, depth=depth))
    world.run_until(InState(0, JobState.RUN))
    strike(world)
    return world


@DEPTHS
def test_crash_of_the_kvs_ends_the_instance_until_it_is_loaded(depth: Depth) -> None:
    with ended_at_run(depth, lambda world: world.crash("kvs")) as world:
        world.run()
        assert world.dumps() == {}
        world.load("kvs")
        world.run()
        assert list(world.dumps()) == list(world.world.modules)
        assert world.state_of(0) == world.state_of(1) == JobState.INACTIVE
        assert world.world.life == 1
        assert world.outcome().problems == ()


@DEPTHS
def test_kvs_is_loaded_right_after_its_crash(depth: Depth) -> None:
    with ended_at_run(depth, lambda world: world.crash("kvs")) as world:
        world.load("kvs")
        world.run()
        assert world.state_of(0) == world.state_of(1) == JobState.INACTIVE
        assert world.outcome().problems == ()


@DEPTHS
def test_outcome_starts_an_instance_that_has_ended(depth: Depth) -> None:
    with ended_at_run(depth, lambda world: world.crash("kvs")) as world:
        assert world.outcome().problems == ()
        assert world.world.life == 1


@DEPTHS
@pytest.mark.parametrize("fault", [Crash("kvs", 1, back=3.0), KillInstance(1, back=3.0)])
def test_instance_that_a_fault_ends_comes_back_with_its_jobs(
    depth: Depth, fault: Crash | KillInstance
) -> None:
    with ended_at_run(depth, lambda world: world.strike(fault)) as world:
        world.run()
        assert world.state_of(0) == world.state_of(1) == JobState.INACTIVE
        assert world.outcome().problems == ()


def test_state_forgets_an_event_that_was_told_and_not_stored() -> None:
    world = hand(JobPlan())
    world.run_until(Logged("alloc"))
    assert world.state_of(0) == JobState.RUN
    world.crash("job-manager")
    world.load("job-manager")
    world.run_until(Logged("flux-restart"))
    assert world.state_of(0) == JobState.SCHED
    world.run()
    assert world.state_of(0) == JobState.INACTIVE


def test_outcome_that_is_asked_for_again_is_the_same() -> None:
    world = hand()
    assert world.outcome() is world.outcome()


@pytest.mark.in_part(3)
@DEPTHS
@pytest.mark.parametrize("module", ["job-manager", "job-ingest"])
@pytest.mark.parametrize("state", [None, JobState.RUN])
def test_world_is_at_rest_though_requests_to_a_module_that_is_away_are_made_again(
    module: str, state: JobState | None, depth: Depth
) -> None:
    jobs = (JobPlan(run=10.0), JobPlan(at=200.0))
    with ByHand(Plan(seed=1, jobs=jobs, depth=depth)) as world:
        if state is not None:
            world.run_until(InState(0, state))
        world.unload(module)
        world.run()
        assert world.is_at_rest
        assert world.world.passed > EPOCH + 200.0
        assert world.state_of(1) is None
        with pytest.raises(NeverReached, match="at rest"):
            world.run_until(Logged("submit", job=1))
        world.load(module)
        world.run()
        assert world.state_of(0) == world.state_of(1) == JobState.INACTIVE
        assert world.outcome().problems == ()


def test_jobs_go_to_their_end_while_requests_fail_and_until_a_module_is_back() -> None:
    world = hand(JobPlan(run=300.0), JobPlan(at=2.0))
    world.run_until(InState(0, JobState.RUN))
    world.unload("job-ingest")
    world.run()
    assert world.state_of(0) == JobState.INACTIVE
    world.world.load_later("job-ingest", 1000.0)
    world.run()
    assert world.state_of(1) == JobState.INACTIVE


def test_tear_that_no_transaction_has_met_strikes_no_more_when_all_is_put_right() -> None:
    """It would take the change with which a held job is let go, and the job would stay held."""
    world = hand(JobPlan(urgency=0))
    world.run()
    world.strike(TornCommit(when=1))
    assert world.outcome().problems == ()


@pytest.mark.parametrize("do", [ByHand.crash, ByHand.unload, ByHand.load])
def test_module_that_no_world_has_is_refused_with_the_names_there_are(
    do: Callable[[ByHand, str], None],
) -> None:
    expected = "module: expected one of kvs, resource, job-manager, .*, got .job_exec"
    with pytest.raises(FormatError, match=expected):
        do(hand(), "job_exec")


@pytest.mark.parametrize(
    ("fault", "error", "expected"),
    [
        (Crash("job_exec", 1), FormatError, "module: expected one of .*job-exec"),  # type: ignore[arg-type]
        (Crash("sched", 1, back=-1.0), FormatError, "back"),
        (Drop(SentMessage(topics.SCHED_ALLOC)), TypeError, "that has a moment, got Drop"),
    ],
)
def test_fault_that_cannot_strike_by_hand_is_refused_at_once(
    fault: Any, error: type[Exception], expected: str
) -> None:
    world = hand()
    with pytest.raises(error, match=expected):
        world.strike(fault)
    assert world.plan_run.struck == []


@pytest.mark.parametrize(("nnodes", "last"), [(1, 0), (4, 3), (16, 15)])
def test_node_that_a_fault_names_is_one_of_the_nodes_of_this_world(nnodes: int, last: int) -> None:
    world = hand(JobPlan(run=3.0), nnodes=nnodes)
    world.run_until(InState(0, JobState.RUN))
    with pytest.raises(FormatError, match=f"the rank of one of the {nnodes} nodes, from 0, got"):
        world.strike(NodesDown((nnodes,), when=1))
    assert world.plan_run.struck == []
    world.strike(NodesDown((last,), when=1, back=1.0))
    assert world.outcome().problems == ()


def test_module_is_not_loaded_without_an_instance() -> None:
    world = hand()
    world.crash("kvs")
    with pytest.raises(ValueError, match="instance for sched, got none: load the kvs first"):
        world.load("sched")


@pytest.mark.parametrize(
    ("kind", "args", "expected"),
    [
        (Logged, (0, "start"), "name of an event, place of a job or None"),
        (Logged, ("start", "0"), "name of an event, place of a job or None"),
        (InState, (JobState.RUN, 0), "place of a job, JobState"),
        (InState, (0, "RUN"), "place of a job, JobState"),
        (Logged, ("start", 0, "2"), "an integer as nth, got"),
        (Logged, ("start", 0, 0), "nth: expected int >= 1, got 0"),
        (Logged, ("start", 0, -1), "nth: expected int >= 1, got -1"),
    ],
)
def test_moment_of_wrong_values_is_refused(kind: Any, args: tuple[Any, ...], expected: str) -> None:
    with pytest.raises((TypeError, FormatError), match=expected):
        kind(*args)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": "nix"}, r'when\.type: expected one of event, request, response, got "nix"'),
        ({"side": "up"}, r'when\.side: expected one of recv, send, got "up"'),
        ({"nth": 0}, r"when\.nth: expected int >= 1, got 0"),
        ({"nth": -1}, r"when\.nth: expected int >= 1, got -1"),
    ],
)
def test_message_that_no_plan_can_name_is_refused_before_the_world_goes_on(
    fields: dict[str, Any], expected: str
) -> None:
    world = hand()
    with pytest.raises(FormatError, match=expected):
        world.run_until(When(topics.SCHED_ALLOC, **fields))
    assert world.world.nsteps == 0


def test_what_is_no_moment_is_refused_with_what_was_expected() -> None:
    with pytest.raises(TypeError, match=r"expected a When, Logged, .* got 'sched\.alloc'"):
        hand().run_until("sched.alloc")  # type: ignore[arg-type]


def test_job_that_the_plan_does_not_have_is_refused() -> None:
    world = hand()
    said = "job: expected the place of one of the 2 jobs of the plan, from 0, got 9"
    for until in (InState(9, JobState.RUN), Logged("start", 9)):
        with pytest.raises(FormatError, match=said):
            world.run_until(until)
    with pytest.raises(FormatError, match=said):
        world.state_of(9)
    with pytest.raises(FormatError, match="got -1"):
        world.state_of(-1)


def test_moment_is_no_message_that_a_fault_befalls() -> None:
    for fault in (Drop, Withheld):
        with pytest.raises(TypeError, match=r"expected a SentMessage, .* got When\("):
            fault(When(topics.SCHED_ALLOC))


def test_moment_that_never_comes_is_an_error_that_says_so() -> None:
    with pytest.raises(NeverReached, match=r"at rest after \d+ steps: .*sched\.prioritize"):
        hand().run_until(When(topics.SCHED_PRIORITIZE))
