"""One job folded from its eventlog (RFC 21)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.formats import Event, FormatError, format_eventlog, parse_eventlog
from flux_trio.protocols import (
    ACTIVE,
    JOB,
    PENDING,
    RUNNING,
    InvalidTransition,
    Job,
    JobFlag,
    JobState,
    JobStory,
    Step,
    check_context,
    replay,
    step_of,
)
from flux_trio.protocols.table import STORY_OF_ONE_MAX
from tests.support.eventlogs import (
    USERID,
    canceled,
    event,
    inactive,
    pending,
    raised,
    running,
    submitted,
)

DESCRIPTIONS = st.fixed_dictionaries({"description": st.sampled_from("ab")})
ENDED = st.fixed_dictionaries({"description": st.sampled_from("ab"), "status": st.integers(0, 300)})
NOTHING = st.none()
JSON = st.none() | st.integers(-9, 9) | st.text(max_size=3)


def exceptions(severities: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    """Contexts of exceptions."""
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["cancel", "exec"]), "severity": severities, "note": st.just("")}
    )


CONTEXTS: dict[Step, st.SearchStrategy[dict[str, Any] | None]] = {
    Step.SUBMIT: st.builds(
        lambda userid, urgency: {"userid": userid, "urgency": urgency, "flags": 0, "version": 1},
        st.integers(0, 9),
        st.integers(0, 31),
    ),
    Step.JOBSPEC_UPDATE: st.dictionaries(st.sampled_from(["a.b", "a.c"]), JSON, min_size=1),
    Step.RESOURCE_UPDATE: st.builds(lambda t: {"expiration": t}, st.integers(1, 99)),
    Step.SET_FLAGS: st.builds(
        lambda flags: {"flags": flags}, st.lists(st.sampled_from(["debug", "waitable", "new"]))
    ),
    Step.DEPENDENCY_ADD: DESCRIPTIONS,
    Step.DEPENDENCY_REMOVE: DESCRIPTIONS,
    Step.PRIORITY: st.builds(lambda n: {"priority": n}, st.integers(0, 4294967295)),
    Step.URGENCY: st.builds(lambda n: {"urgency": n, "userid": 1}, st.integers(0, 31)),
    Step.ALLOC: st.none() | st.builds(lambda n: {"annotations": {"sched": n}}, st.integers(0, 9)),
    Step.PROLOG_START: DESCRIPTIONS,
    Step.PROLOG_FINISH: ENDED,
    Step.EPILOG_START: DESCRIPTIONS,
    Step.EPILOG_FINISH: ENDED,
    Step.RELEASE: st.builds(lambda final: {"ranks": "all", "final": final}, st.booleans()),
    Step.FINISH: st.builds(lambda n: {"status": n}, st.integers(0, 300)),
    Step.EXCEPTION_FATAL: exceptions(st.just(0)),
    Step.EXCEPTION_MINOR: exceptions(st.integers(1, 7)),
    Step.MEMO: st.dictionaries(st.sampled_from("ab"), JSON, min_size=1),
}


def name_of(step: Step) -> str:
    """The event's name in an eventlog."""
    if step in (Step.EXCEPTION_FATAL, Step.EXCEPTION_MINOR):
        return "exception"
    return "of-somebody-else" if step == Step.OTHER else step.value


TO_SCHED = (Step.VALIDATE, Step.DEPEND, Step.PRIORITY)


@st.composite
def eventlogs(draw: st.DrawFn) -> list[Event]:
    """Any sequence of events that the table allows, submit first."""
    events = [Event(1.0, "submit", draw(CONTEXTS[Step.SUBMIT]))]
    state = JOB.initial
    first = draw(st.sampled_from([(), TO_SCHED]))  # else few logs come so far, and go back
    for place in range(draw(st.integers(0, 25))):
        allowed = [step for step in list(Step)[1:] if JOB.allows(state, step)]
        if not allowed:
            break
        back = [step for step in allowed if JOB.step(state, step) < state]
        if place < len(first):
            step = first[place]
        else:
            step = draw(st.sampled_from(back if back and draw(st.booleans()) else allowed))
        context = draw(CONTEXTS.get(step, NOTHING))
        events.append(Event(2.0 + place, name_of(step), context))
        state = JOB.step(state, step)
    return events


def facts(job: Job) -> dict[str, Any]:
    """All that a job holds."""
    return {name: getattr(job, name) for name in Job.__slots__}


@settings(max_examples=150)
@given(eventlogs(), st.data())
def test_replay_gives_the_job_that_the_events_gave(
    events: list[Event], data: st.DataObject
) -> None:
    """21.criteria.8: from the text of the eventlog, in one go or with a stop between."""
    for each in events:
        check_context(each)
    live = Job(1, events[0])
    for each in events[1:]:
        live.apply(each)
    stored = parse_eventlog(format_eventlog(events))
    again = replay(1, stored[: data.draw(st.integers(1, len(stored)))])
    for each in stored[again.nevents :]:
        again.apply(each)
    assert facts(again) == facts(live)
    assert facts(replay(1, stored)) == facts(live)


@settings(max_examples=50)
@given(eventlogs())
def test_states_follow_from_events_alone(events: list[Event]) -> None:
    """21.criteria.6: as the table has it; INACTIVE is never left."""
    job = Job(1, events[0])
    for each in events[1:]:
        expected = JOB.step(job.state, step_of(each))
        assert job.state != JobState.INACTIVE
        job.apply(each)
        assert job.state == expected


def test_event_that_has_no_place_changes_nothing() -> None:
    job = replay(1, pending())
    before = facts(job)
    with pytest.raises(InvalidTransition) as refused:
        job.apply(event("finish", status=0))
    text = str(refused.value)
    assert text.startswith("job 1: job: finish in state SCHED: expected ")
    assert facts(job) == before


def test_eventlog_that_is_refused_says_what_came_before_in_its_order() -> None:
    past = [*pending(), event("urgency", urgency=3, userid=1), event("priority", priority=3)]
    told = "depend, priority, urgency, priority"
    with pytest.raises(InvalidTransition, match=rf"^job 1: job: .* \(after {told}\)$"):
        replay(1, [*past, event("finish", status=0)])
    long = [*past, *[event("memo", key=n) for n in range(STORY_OF_ONE_MAX)]]
    with pytest.raises(InvalidTransition, match=r"\(after memo(, memo)+\)$"):
        replay(1, [*long, event("finish", status=0)])


def test_story_of_eventlogs_tells_of_each_job_its_own_events() -> None:
    submit, *events = pending()
    story, one, other = JobStory(), Job(1, submit), Job(2, submit)
    story.begin(one)
    story.begin(other)
    for each in events:
        story.apply(one, each)
        story.apply(other, each)
    story.apply(other, event("alloc"))
    with pytest.raises(InvalidTransition, match=r"^job 1: .* \(after [a-z, ]*depend, priority\)$"):
        story.apply(one, event("start"))
    assert (one.state, other.state) == (JobState.SCHED, JobState.RUN)


@pytest.mark.parametrize("log", [[event("validate")], [submitted(), submitted()]])
def test_submit_comes_first_and_once(log: list[Event]) -> None:
    """21.events.3, 21.states.1."""
    refused = r"^job 1: job: (validate|submit) in state NEW: expected"
    with pytest.raises(InvalidTransition, match=refused):
        replay(1, log)


def test_eventlog_without_an_event_makes_no_job() -> None:
    with pytest.raises(FormatError, match=r"^expected the event submit, got an empty eventlog$"):
        replay(1, [])


def test_virtual_states_are_unions() -> None:
    """21.states.10."""
    s = JobState
    assert PENDING == s.DEPEND | s.PRIORITY | s.SCHED
    assert RUNNING == s.RUN | s.CLEANUP
    assert ACTIVE == PENDING | RUNNING


@pytest.mark.parametrize(
    ("log", "held"),
    [(pending(), False), (running(), True), (inactive()[:-2], True), (inactive()[:-1], False)],
)
def test_resources_are_held_from_alloc_to_free(log: list[Event], held: bool) -> None:
    """16.schema.8: what the eventlog says."""
    assert replay(1, log).has_resources == held


def test_submit_says_who_when_and_how() -> None:
    job = replay(1, [submitted(5.0, urgency=20, flags=2)])
    assert (job.userid, job.urgency, job.t_submit) == (USERID, 20, 5.0)
    assert job.flags == JobFlag.WAITABLE
    job.apply(event("set-flags", flags=["debug", "unheard-of"]))
    assert job.flags == JobFlag.WAITABLE | JobFlag.DEBUG


def test_first_fatal_exception_is_the_root_cause() -> None:
    """21.exceptions.5."""
    log = [*running(), raised("minor", 1), raised("first"), raised("second")]
    job = replay(1, log)
    assert job.exception is not None
    assert job.exception["type"] == "first"


def test_what_is_open_is_known_by_its_description() -> None:
    """26.events.2: add and remove match by equal description."""
    job = replay(1, pending()[:2])
    for name in ("a", "b"):
        job.apply(event("dependency-add", description=name))
    job.apply(event("dependency-remove", description="b"))
    assert job.dependencies == {"a"}
    job = replay(1, running())
    job.apply(event("prolog-start", description="p"))
    assert job.prologs == {"p"}
    job.apply(event("prolog-finish", description="p", status=0))
    assert not job.prologs


def test_job_shows_its_id_and_state() -> None:
    job = replay(7, canceled())
    assert repr(job) == "<Job 7 INACTIVE>"
    assert not job.is_active
