"""What plugins see of a job is a value: it stays as it was when they were asked."""

from __future__ import annotations

import copy
from typing import Any

from flux_trio.cores.job_manager.jobs.snapshot import JobSnapshot
from flux_trio.messages import topics
from flux_trio.protocols import AskHook, HookAnswer, JobState, JobView, SetPriority
from tests.support.manager_script import ManagerScript, posting

DURATION = "attributes.system.duration"


class Keeping:
    """Keeps each job that plugins are shown, and what it was then."""

    def __init__(self, m: ManagerScript) -> None:
        self.kept: list[tuple[JobView, JobView]] = []
        ask, notify = m.plugins.ask, m.plugins.notify

        def keep_asked(question: AskHook) -> HookAnswer | None:
            if question.job is not None:
                self.keep(question.job)
            return ask(question)

        def keep_notified(topic: str, job: JobView, args: Any = None) -> None:
            self.keep(job)
            notify(topic, job, args)

        m.plugins.ask = keep_asked  # type: ignore[method-assign]
        m.plugins.notify = keep_notified  # type: ignore[method-assign]

    def keep(self, job: JobView) -> None:
        self.kept.append((job, copy.deepcopy(job)))


def test_no_job_of_a_hook_changes_later() -> None:
    m = ManagerScript(everything=True, peers=True)
    m.plugins.answers["job.update." + DURATION] = HookAnswer(handled=True)
    keeping = Keeping(m)
    m.plugins.subscriptions.add(1)
    m.submit(1)
    m.post(1, "set-flags", flags=["waitable"])
    m.urgency(1, 20)
    m.post(1, "weather", sky="blue")
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {DURATION: 60}})
    m.put(SetPriority(1, 7, "plug"))
    m.plugins.answers["job.state.run"] = posting(("prolog-start", {"description": "p"}))
    m.plugins.answers["job.state.cleanup"] = posting(("epilog-start", {"description": "e"}))
    m.alloc(1)
    m.post(1, "prolog-finish", description="p", status=0)
    m.execute(1, "start", "finish 0", "release final")
    m.post(1, "epilog-finish", description="e", status=0)
    m.freed(1)
    assert len(keeping.kept) > 30
    assert {job.state for job, _ in keeping.kept} == set(JobState)
    assert {job.urgency for job, _ in keeping.kept} == {16, 20}
    for job, then in keeping.kept:
        assert isinstance(job, JobSnapshot)
        assert job == then


def test_job_that_is_looked_up_is_as_it_is_then() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    before = m.core.get(1)
    m.alloc(1)
    after = m.core.get(1)
    assert (before.state, after.state) == (JobState.SCHED, JobState.RUN)
    assert [job.state for job in m.core.active()] == [JobState.RUN]
