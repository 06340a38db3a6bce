"""Plans are kept as TOML, and what a seed draws is drawn again."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.formats import FormatError
from flux_trio.lab import (
    ClockDrift,
    ClockJump,
    Crash,
    CrashLoop,
    CrashTogether,
    DiskFails,
    DiskFull,
    Drop,
    ErrorAnswer,
    Exclude,
    Fault,
    FullInbox,
    GrantForeign,
    GrantOverlap,
    GuestFlood,
    HeldUntil,
    JobPlan,
    LoseClient,
    NodesDown,
    OwnerRequest,
    Plan,
    PluginRaises,
    Repeated,
    SentMessage,
    Sleep,
    StrayAnswer,
    When,
    WrongRequest,
    WrongType,
    draw_plan,
    run_plan,
    shrink,
)
from flux_trio.lab.plans.files import plan_from_toml, plan_of_file, plan_to_toml
from flux_trio.lab.plans.never_struck import never_struck_text
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.stories import running
from flux_trio.lab.stories.by_hand import ByHand
from flux_trio.lab.stories.running import PlanRun
from flux_trio.messages import topics
from flux_trio.protocols import VALIDATE

PLANS = Path(__file__).parent / "plans"
MODULES = "job-exec, job-ingest, job-list, job-manager, kvs, resource, sched"


def test_plan_is_read_from_a_path_as_text_too(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(Plan(7, plugins=("mine.py",))))
    assert (
        plan_of_file(str(path)) == plan_of_file(path) == Plan(7, plugins=(f"{tmp_path}/mine.py",))
    )


def assert_refused(plan: Plan, said: str) -> None:
    """A play refuses the plan with this text, and so does who reads it from TOML."""
    with pytest.raises(FormatError) as refused:
        run_plan(plan)
    assert str(refused.value).startswith(said)
    with pytest.raises(FormatError) as refused:
        plan_from_toml(plan_to_toml(plan))
    assert str(refused.value).startswith(said)


def test_a_fault_without_a_value_that_it_may_have_is_read_as_it_was_written() -> None:
    plan = Plan(1, faults=(LoseClient(3),))
    assert plan_from_toml(plan_to_toml(plan)) == plan


@pytest.mark.parametrize("seed", range(20))
def test_plan_is_read_as_it_was_written(seed: int) -> None:
    plan = draw_plan(seed)
    assert plan_from_toml(plan_to_toml(plan)) == plan
    assert draw_plan(seed) == plan


@pytest.mark.in_part(3)
@pytest.mark.parametrize("path", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_plan_that_has_broken_a_property_breaks_none(path: Path) -> None:
    """All that it lists takes place: else it would show nothing of what it was kept for."""
    outcome = run_plan(plan_from_toml(path.read_text()), properties=OURS)
    assert outcome.problems == ()
    assert outcome.never_struck == ()
    assert outcome.unprompted == ()


ON_ITS_WAY = {26: (1, 6, 9), 30: (0, 1, 2, 4, 5, 6, 7, 9), 34: range(10)}
"""The seeds of worlds in which the job is on its way when so many steps are over."""


@pytest.mark.parametrize(
    ("nsteps", "seed"), [(nsteps, seed) for nsteps, seeds in ON_ITS_WAY.items() for seed in seeds]
)
def test_held_job_that_is_on_its_way_when_all_is_put_right_goes_on(
    monkeypatch: pytest.MonkeyPatch, nsteps: int, seed: int
) -> None:
    """Before ingest has it, or before ingest has handed it over to the job manager."""
    monkeypatch.setattr(running, "FAULTS_STEPS_MAX", nsteps)
    stored = SentMessage(topics.KVS_COMMIT, type="response")
    held = HeldUntil(stored, When(topics.JOB_URGENCY, nth=99))
    plan = Plan(seed, 1, jobs=(JobPlan(urgency=0),), faults=(held,))
    outcome = run_plan(plan, properties=OURS)
    assert outcome.problems == ()
    assert outcome.never_struck == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = 1\nversion = 2", "version: expected version 1 of a plan, got 2"),
        ("seed = 'x'", "seed: expected"),
        ("seed = 1\njobs = [{ntasks = 0}]", "jobs[0].ntasks: expected"),
        (
            "seed = 1\nfaults = [{type = 'crash', module = 'cron', when = 1}]",
            f'faults[0].module: expected one of {MODULES}, got "cron"',
        ),
        (
            "seed = 1\nfaults = [{type = 'crush', module = 'sched', when = 1}]",
            'faults[0].type: expected the type of a fault (did you mean crash?), got "crush"',
        ),
        (
            "seed = 1\nfaults = [{type = 'drop', which = {topic = 'a', type = 'x'}}]",
            'faults[0].which.type: expected one of event, request, response, got "x"',
        ),
        (
            "seed = 1\nactions = [{at = 1.0, what = 'cansel'}]",
            "subscribe, undrain, up, urgency, watch (did you mean cancel?), got",
        ),
        ("seed = 1\nhaste = 1", "haste"),
        ("seed =", "expected"),
    ],
)
def test_wrong_plan_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(FormatError) as refused:
        plan_from_toml(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Crash("cron", 1), f'module: expected one of {MODULES}, got "cron"'),  # type: ignore[arg-type]
        (Crash("sched", "sched.alloc"), "when: expected int | object, got str"),  # type: ignore[arg-type]
        (PluginRaises(nth=0), "nth: expected int >= 1, got 0"),
    ],
)
def test_wrong_plan_that_is_made_by_hand_is_refused_with_its_place(fault: Fault, said: str) -> None:
    plan = Plan(1, faults=(Sleep(1, seconds=1.0), fault))
    with pytest.raises(FormatError) as refused:
        run_plan(plan)
    assert str(refused.value) == f"faults[1].{said}"
    with pytest.raises(FormatError):
        ByHand(plan)


ENDLESS = float("inf")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(1, jobs=(JobPlan(at=ENDLESS),)), "jobs[0].at: expected float <= 100000000.0, got"),
        (Plan(1, jobs=(JobPlan(run=ENDLESS),)), "jobs[0].run: expected float <="),
        (Plan(1, jobs=(JobPlan(run=float("nan")),)), "jobs[0].run: expected float >= 0.0, got nan"),
        (Plan(1, actions=(OwnerRequest(1e12, "purge"),)), "actions[0].at: expected float <="),
        (
            Plan(1, faults=(Crash("sched", 1, ENDLESS),)),
            "faults[0].back: expected float <= 100000000.0, got inf",
        ),
        (Plan(1, faults=(Sleep(1, 1e17),)), "faults[0].seconds: expected float <="),
        (Plan(1, faults=(ClockJump(1, 1e18),)), "faults[0].by: expected float <="),
        (Plan(1, faults=(ClockJump(1, -1e12),)), "faults[0].by: expected float >="),
        (
            Plan(1, faults=(Sleep(1, 6e7), ClockJump(2, -6e7))),
            "faults[1].by: expected at most 100000000 seconds "
            "by which all faults of time move the clock, got 120000000.0",
        ),
        (Plan(1, faults=(ClockDrift(1, 4e7, times=3),)), "faults[0].by: expected at most"),
        (
            Plan(1, faults=(ClockDrift(1, 1e-9, 10**8),)),
            "faults[0].times: expected int <= 1000, got",
        ),
        (Plan(1, faults=(GuestFlood(1, 10**6),)), "faults[0].count: expected int <= 1000, got"),
        (Plan(1, faults=(CrashLoop("sched", 1, 10**5),)), "faults[0].times: expected int <= 100, "),
        (
            Plan(1, faults=(CrashLoop("sched", 1, every=1e8),)),
            "faults[0].every: expected float <= 600.0, got",
        ),
        (
            Plan(1, faults=(CrashLoop("sched", 1, times=100, every=60.0),)),
            "faults[0].every: expected at most 600 seconds for 100 times together, got 6000.0",
        ),
        (Plan(1, faults=(FullInbox("resource", 1, 1e8),)), "faults[0].seconds: expected float <="),
        (Plan(1, faults=(DiskFull(1, 1e8),)), "faults[0].seconds: expected float <= 600.0, got"),
        (Plan(1, faults=(DiskFails(1, 1e8),)), "faults[0].back: expected float <= 600.0, got"),
        (Plan(1, nnodes=1_000_000), "nnodes: expected int <= 262144, got 1000000"),
        (Plan(1, cores=10**12), "cores: expected int <= 4194304, got 1000000000000"),
    ],
)
def test_number_that_no_world_can_have_is_refused_with_its_place(plan: Plan, said: str) -> None:
    assert_refused(plan, said)


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    "fault",
    [
        ClockDrift(5, -1.0, times=1000),
        GuestFlood(5, 1000),
        CrashLoop("job-manager", 5, times=100, every=6.0),
        FullInbox("job-ingest", 5, 600.0),
        DiskFull(60, 600.0),
        DiskFails(60, 600.0),
    ],
)
def test_world_comes_to_rest_whatever_a_fault_does_the_most_often(fault: Fault) -> None:
    with PlanRun(Plan(1, jobs=(JobPlan(), JobPlan(at=20.0)), faults=(fault,))) as plan_run:
        assert plan_run.play()


NO_NODE = "expected the rank of one of the 4 nodes, from 0, got 77"
NO_QUEUE = "expected the number of one of the 0 named queues, from 0, got 5"
R_STORED = SentMessage(topics.KVS_COMMIT, party="sched")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(1, faults=(NodesDown((0, 77), 1),)), f"faults[0].ranks[1]: {NO_NODE}"),
        (Plan(1, faults=(Exclude((77,), 1),)), f"faults[0].ranks[0]: {NO_NODE}"),
        (Plan(1, faults=(NodesDown((), 1),)), "faults[0].ranks: expected array of length >= 1"),
        (Plan(1, faults=(CrashTogether((), 1),)), "faults[0].modules: expected array of length >="),
        (Plan(1, actions=(OwnerRequest(0.0, "drain", rank=77),)), f"actions[0].rank: {NO_NODE}"),
        (
            Plan(1, actions=(OwnerRequest(0.0, "queue-stop", queue=5),)),
            f"actions[0].queue: {NO_QUEUE}",
        ),
        (Plan(1, jobs=(JobPlan(queue=5),)), f"jobs[0].queue: {NO_QUEUE}"),
        (
            Plan(1, jobs=(JobPlan(queue=2),), queues=2),
            "jobs[0].queue: expected the number of one of the 2 named queues, from 0, got 2",
        ),
        (
            Plan(1, jobs=(JobPlan(),), actions=(OwnerRequest(0.0, "cancel", job=77),)),
            "actions[0].job: expected the place of one of the 1 jobs, from 0, got 77",
        ),
        (Plan(1, faults=(GrantOverlap(R_STORED, rank=77),)), f"faults[0].rank: {NO_NODE}"),
        (
            Plan(1, faults=(GrantOverlap(R_STORED, core=2),)),
            "faults[0].core: expected the number of one of the 2 cores of a node, from 0, got 2",
        ),
        (
            Plan(1, faults=(GrantForeign(R_STORED, rank=3),)),
            "faults[0].rank: expected a rank that none of the 4 nodes has, got 3",
        ),
        (
            Plan(1, faults=(GrantOverlap(SentMessage(topics.SCHED_ALLOC, party="sched")),)),
            "faults[0].which: expected a request kvs.commit of sched, "
            "got a request sched.alloc of sched",
        ),
        (
            Plan(1, faults=(GrantForeign(SentMessage(topics.KVS_COMMIT, party="job-manager")),)),
            "faults[0].which: expected a request kvs.commit of sched, "
            "got a request kvs.commit of job-manager",
        ),
        *(
            (
                Plan(1, faults=(lie(SentMessage(topics.SCHED_ALLOC)),)),
                'faults[0].which.type: expected response, got "request"',
            )
            for lie in (ErrorAnswer, StrayAnswer, WrongType)
        ),
        (
            Plan(1, faults=(Repeated(SentMessage(topics.SCHED_ALLOC)),)),
            'faults[0].which.type: expected response or event, got "request"',
        ),
        (
            Plan(1, faults=(WrongRequest(1, "", {}),)),
            'faults[0].topic: expected a topic such as job-manager.raise, got ""',
        ),
        *(
            (
                Plan(1, faults=(WrongRequest(1, topic, {}),)),
                "faults[0].topic: expected a topic that clients ask, such as job-manager.raise (a "
                f'module asks this one: see AlsoAsked), got "{topic}"',
            )
            for topic in (topics.SCHED_FREE, topics.RESOURCE_RELEASE, "job-exec.start")
        ),
        (
            Plan(1, faults=(WrongRequest(1, "job-list.list-cancel", {}),)),
            "faults[0].topic: expected a topic that is answered, such as job-manager.raise (a "
            'cancel is not: RFC 6), got "job-list.list-cancel"',
        ),
        (Plan(1, faults=(WrongRequest(1, "raise.", {}),)), "faults[0].topic: expected a topic"),
        *(
            (
                Plan(1, faults=(PluginRaises(hook=hook),)),
                f"faults[0].hook: expected a hook about a job{meant}: job.create, job.validate, ",
            )
            for hook, meant in (
                ("nobody", ""),
                ("*", ""),
                ("conf.update", " (did you mean job.update?)"),
                ("plugin.query", ""),
                ("job.valid", " (did you mean job.validate?)"),
                ("job.update.*", " (did you mean job.update?)"),
            )
        ),
        (
            Plan(1, faults=(Drop(SentMessage("x" * 256)),)),
            "faults[0].which.topic: expected str of length <= 255",
        ),
    ],
)
def test_plan_that_names_what_its_world_does_not_have_is_refused(plan: Plan, said: str) -> None:
    assert_refused(plan, said)


def test_plans_that_are_tried_name_only_what_their_worlds_have() -> None:
    """The lies and the nodes are broken as long as they are named, on whatever machine."""
    faults = (
        NodesDown((0, 3), 5),
        Exclude((3,), 9),
        GrantOverlap(R_STORED, rank=2, core=1),
        GrantForeign(R_STORED),
    )
    asked = (
        OwnerRequest(9.0, "drain", rank=3),
        OwnerRequest(9.0, "queue-stop", queue=1),
        OwnerRequest(9.0, "cancel", job=1),
    )
    jobs = (JobPlan(queue=0), JobPlan(queue=1, ranks=(3,)))
    plan = Plan(1, jobs=jobs, actions=asked, faults=faults, queues=2)
    tried = []

    def is_broken(plan: Plan) -> bool:
        tried.append(plan)
        assert plan_from_toml(plan_to_toml(plan)) == plan
        return len(plan.faults) == len(faults) and bool(plan.actions)

    small = shrink(plan, "any", is_broken).plan
    assert len(tried) > 20
    assert (small.nnodes, small.cores) == (1, 1)
    assert small.faults == (
        NodesDown((0,), 1, back=0.0),
        Exclude((0,), 1),
        GrantOverlap(R_STORED, rank=0, core=0),
        GrantForeign(R_STORED, rank=1),
    )


@pytest.mark.parametrize("fault", [ClockJump(5, 1e8), ClockJump(5, -1e8), Sleep(5, 1e8)])
def test_longest_times_accuse_nobody(fault: Fault) -> None:
    jobs = (JobPlan(run=1e8), JobPlan(run=1e8), JobPlan(at=1e8))
    back = Crash("job-manager", 30, back=1e8)
    plan = Plan(1, nnodes=1, cores=1, jobs=jobs, faults=(fault, back))
    assert run_plan(plan, properties=OURS).problems == ()


MISSED: dict[str, Fault] = {
    "crash (module sched, back 2.0) never struck: there was no turn 9999": Crash(
        "sched", 9999, back=2.0
    ),
    "disk-full (seconds 3.0) never struck: "
    "there was no response sched.alloc number 7 that was received by sched": DiskFull(
        When(topics.SCHED_ALLOC, nth=7, type="response", party="sched")
    ),
    "drop never struck: there was no request kvs.commit number 700 that was sent": Drop(
        SentMessage(topics.KVS_COMMIT, nth=700)
    ),
    "plugin-raises never struck: there was no question number 2 about job.validate": PluginRaises(
        nth=2, hook=VALIDATE
    ),
}


@pytest.mark.parametrize(("said", "fault"), MISSED.items())
def test_fault_that_never_strikes_is_named(said: str, fault: Fault) -> None:
    crash = Crash("sched", When(topics.SCHED_ALLOC))
    outcome = run_plan(Plan(1, jobs=(JobPlan(),), faults=(crash, fault, crash)))
    assert outcome.struck == (crash, crash)
    assert outcome.never_struck == (fault,)
    assert never_struck_text(fault) == said


@pytest.mark.parametrize(
    ("topic", "meant"),
    [
        ("sched.aloc", " (did you mean sched.alloc?)"),
        ("sched.alloc", ""),
        ("sched.cancel", ""),
        ("sched.allo?", ""),
    ],
)
def test_topic_of_a_fault_that_is_nearly_one_that_came_is_told_with_it(
    topic: str, meant: str
) -> None:
    text = never_struck_text(Drop(SentMessage(topic, nth=9)), {"sched.alloc", "job-exec.start"})
    assert text == f"drop never struck: there was no request {topic} number 9 that was sent{meant}"
    assert never_struck_text(Crash("sched", 9), {"9"}).endswith("there was no turn 9")


def test_shrinking_keeps_what_breaks() -> None:
    """The crash matters, and the one job that a request names."""
    jobs = tuple(JobPlan(at=float(place), ntasks=1 + place % 3) for place in range(16))
    actions = tuple(OwnerRequest(float(place), "cancel", job=place) for place in range(0, 16, 3))
    crash = Crash("sched", When(topics.SCHED_ALLOC), back=1.0)
    plan = Plan(1, jobs=jobs, actions=actions, faults=(Crash("job-list", 7), crash), late=0.3)
    tried = []

    def is_broken(plan: Plan) -> bool:
        tried.append(plan)
        named = {each.job: plan.jobs[each.job] for each in plan.actions}
        return crash in plan.faults and jobs[9] in named.values()

    small = shrink(plan, "", is_broken).plan
    kept = (jobs[9],)
    cancel = OwnerRequest(0.0, "cancel", job=0)
    assert small == Plan(1, nnodes=1, cores=1, jobs=kept, actions=(cancel,), faults=(crash,))
    assert len(tried) <= 150


def test_shrinking_makes_times_and_counts_of_a_fault_smaller() -> None:
    crash = Crash("sched", When(topics.SCHED_ALLOC, nth=6), back=3.0)
    down = NodesDown((1, 2, 3), 70, back=5.0)
    plan = Plan(1, jobs=(JobPlan(), JobPlan()), faults=(crash, down))
    small = shrink(plan, "any", lambda tried: len(tried.faults) == 2 and len(tried.jobs) == 2).plan
    assert small.faults == (
        Crash("sched", When(topics.SCHED_ALLOC), back=0.0),
        NodesDown((0,), 1, back=0.0),
    )


def test_fault_at_a_step_moves_with_the_jobs_that_are_left() -> None:
    """The crash strikes in the last third of a world, however many jobs it has."""
    plan = Plan(1, jobs=(JobPlan(),) * 9, faults=(Crash("sched", 90),))

    def is_broken(tried: Plan) -> bool:
        (fault,) = tried.faults or (None,)
        return isinstance(fault, Crash) and fault.when == 10 * len(tried.jobs) > 0

    small = shrink(plan, "any", is_broken).plan
    assert len(small.jobs) == 1
    assert small.faults == (Crash("sched", 10),)


def test_jobs_that_are_left_become_plain_and_come_early() -> None:
    """The second job has to come half a second after the others, and the first one is wide."""
    first = JobPlan(at=19.6, ntasks=2, run=7.0)
    second = JobPlan(at=25.6, run=7.0, limit=1.0)
    third = JobPlan(at=23.5, nnodes=1, run=7.0)
    asked = OwnerRequest(30.0, "cancel", job=1)
    plan = Plan(11, nnodes=8, cores=4, jobs=(first, second, third), actions=(asked,))

    def breaks(tried: Plan) -> bool:
        if len(tried.jobs) < 3 or not tried.actions or tried.nnodes < 2:
            return False
        wide, late, other = tried.jobs
        return wide.ntasks == 2 and late.at >= max(wide.at, other.at) + 0.5

    small = shrink(plan, "any", breaks).plan
    assert small.jobs[0] == JobPlan(ntasks=2)
    assert small.jobs[1] == JobPlan(at=small.jobs[1].at)
    assert 0.5 <= small.jobs[1].at < 1.0
    assert small.jobs[2] == JobPlan()
    assert small.actions == (OwnerRequest(0.0, "cancel", job=1),)
    assert (small.nnodes, small.cores) == (2, 1)
