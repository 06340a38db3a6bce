"""Counts of jobs, kept as jobs change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flux_trio.config import parse_config
from flux_trio.cores.job_manager.jobs.tally import Tally
from flux_trio.messages import topics
from flux_trio.protocols import ACTIVE, STATE_TOPICS, HookAnswer, JobState, PluginsChanged
from tests.support.manager_script import ManagerScript

DEPEND = STATE_TOPICS[JobState.DEPEND]
QUEUE = "attributes.system.queue"
QUEUES = st.sampled_from([None, "batch", "debug"])
STATES = st.sampled_from([JobState.NEW, JobState.DEPEND, JobState.RUN])
REASONS = st.sampled_from([None, "late", "poor"])
TWO = parse_config("""
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug]
""")


@given(st.lists(st.tuples(st.integers(1, 4), QUEUES, STATES, REASONS), max_size=30))
def test_counts_are_those_of_the_jobs_as_they_are(
    changes: list[tuple[int, str | None, JobState, str | None]],
) -> None:
    tally = Tally()
    jobs: dict[int, tuple[str | None, JobState, str | None]] = {}
    for jobid, queue, state, reason in changes:
        if jobid in jobs:
            old_queue, old_state, _ = jobs[jobid]
            tally.requeued(jobid, old_state, old_queue, queue)
            tally.moved(queue, old_state, state)
        else:
            tally.came(queue, state)
        if reason is None:
            tally.released(jobid)
        else:
            tally.held(jobid, queue, reason)
        jobs[jobid] = (queue, state, reason)
    tally.came(None, JobState.RUN)
    tally.went(9, None, JobState.RUN)
    assert tally.jobs(ACTIVE | JobState.NEW) == len(jobs)
    for name in ("batch", "debug"):
        of_queue = [job for job in jobs.values() if job[0] == name]
        assert tally.jobs(JobState.RUN, name) == sum(job[1] == JobState.RUN for job in of_queue)
        assert tally.reasons(name) == Counter(job[2] for job in of_queue if job[2] is not None)


def held(m: ManagerScript, queue: str) -> str:
    """What queue-status says of the jobs that plugins hold."""
    (said,) = m.ask(topics.JOB_QUEUE_STATUS, {"name": queue})
    return said.partition("'held': ")[2].rstrip("}") + "}" * ("held" in said)


def test_status_of_a_queue_counts_the_jobs_that_plugins_hold_there() -> None:
    m = ManagerScript(answers={DEPEND: HookAnswer(error="poor")}, peers=True, config=TWO)
    m.submit(1, 2, queue="batch")
    m.submit(3, queue="debug")
    assert held(m, "batch") == "{'poor': 2}"
    assert held(m, "debug") == "{'poor': 1}"
    m.post(1, "jobspec-update", **{QUEUE: "debug"})  # asked again, and held again
    assert held(m, "batch") == "{'poor': 1}"
    assert held(m, "debug") == "{'poor': 2}"
    m.raise_(3)
    assert held(m, "debug") == "{'poor': 1}"
    del m.plugins.answers[DEPEND]
    m.put(PluginsChanged())
    assert held(m, "batch") == held(m, "debug") == ""


def test_job_that_is_asked_about_in_another_queue_is_counted_as_held_there() -> None:
    m = ManagerScript(hooks=[DEPEND], peers=True, config=TWO)
    m.submit(1, queue="batch")
    m.answer(DEPEND, error="poor")
    m.post(1, "jobspec-update", **{QUEUE: "debug"})
    assert held(m, "batch") == ""
    assert held(m, "debug") == "{'poor': 1}"
    m.answer(DEPEND)
    assert held(m, "debug") == ""


def test_job_is_counted_in_the_last_of_the_queues_that_it_was_moved_to() -> None:
    """A drain of a queue that counts wrongly would never be answered, or be answered too early."""
    m = ManagerScript(peers=True, config=TWO)
    drained = "job-manager.drain -> {}"
    m.submit(1, urgency=0, queue="batch")
    for queue, other in (("debug", "batch"), ("batch", "debug"), ("debug", "batch")):
        assert m.ask(topics.JOB_DRAIN, {"name": other}) == []
        assert m.post(1, "jobspec-update", **{QUEUE: queue}).count(drained) == 1
        counts = m.stats()["queues"]
        assert (counts[queue]["sched"], counts[other]["sched"]) == (1, 0)
