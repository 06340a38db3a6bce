"""Views of the hooks at which plugins are asked about a job, above all when it comes into a state.

A job whose hook a plugin has failed to answer is held in that state: nothing is due for it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    called,
    job_id,
    logged,
    noted,
    payload,
    while_live,
)
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.jobs import CLEANUP, LIFE, RUN, SCHED, Life
from flux_trio.trace import Kind, Record

_HOOKS: Final = {SCHED: "job.state.sched", RUN: "job.state.run", CLEANUP: "job.state.cleanup"}


class HookAnswer(NamedTuple):
    """The last answer of a plugin to the question about a job that has come into a state."""

    n: Place
    t: float
    is_failure: bool


def _fold_answer(
    was: HookAnswer | None, _part: None, record: Record, seen: Seen
) -> HookAnswer | None:
    if record.kind == EVENT:
        return None
    life: Life | None = seen.at(LIFE, job_id(record))
    content = payload(record)
    if life is None or content.get("hook") != _HOOKS.get(life.state):
        return was  # a late answer about a state that the job has left
    return HookAnswer(record.n, record.t, content.get("error") is not None)


HOOK_ANSWERS: Final = view(
    "answers to hooks of states",
    called(*_HOOKS.values()),
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=_fold_answer,
    reads=(LIFE,),
    state=HookAnswer,
)
"""By job id: the last answer of a plugin to the hook of SCHED, RUN or CLEANUP. It may be about a
state that the job has left."""


def _fold_call(was: Place | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if record.kind == EVENT:
        return None
    life: Life | None = seen.at(LIFE, job_id(record))
    hook = str(payload(record).get("hook"))
    is_late = hook.startswith("job.state.") and (life is None or hook != _HOOKS.get(life.state))
    return was if is_late else record.n


LAST_CALLS: Final = view(
    "last calls of plugins",
    noted(Kind.HOOK),
    while_live(OWN, logged("clean")),
    key=job_id,
    fold=_fold_call,
    reads=(LIFE,),
)
"""By job id: the record of the last answer of a plugin to any hook but of a state that the job has
left. While a plugin is asked, as about the update of a queue, nothing is done for the job."""


def hook_answer(jobid: Any, life: Life, seen: Seen) -> HookAnswer | None:
    """Return the last answer to the hook since the job is in its state, or None."""
    answer: HookAnswer | None = seen.at(HOOK_ANSWERS, jobid)
    return answer if answer is not None and answer.n > life.since else None


def is_held(jobid: Any, life: Life, seen: Seen) -> bool:
    """Whether a job is held in its state, since a plugin has failed in the hook of that state."""
    answer = hook_answer(jobid, life, seen)
    return answer is not None and answer.is_failure
