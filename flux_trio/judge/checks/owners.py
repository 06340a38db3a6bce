"""Rules of the form "message M has the userid of the job's owner": that of its submit event."""

from __future__ import annotations

from collections.abc import Iterable

from flux_trio.judge.checks.shapes import USERID, key_problem
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, payload, topic_of
from flux_trio.judge.engine.view import Seen, Selector
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.trace import Record


def require_owner(rules: Rules, clause: str, *selectors: Iterable[Selector]) -> None:
    """Register `clause`: each of the selected messages has the key userid, whose value is the owner
    of the job.
    """

    @rules.judge(clause, *selectors, views=[LIFE])
    def judge(record: Record, seen: Seen) -> Finding:
        content, what = payload(record), f"{topic_of(record)} of job {job_id(record)}"
        if not content:
            return None  # no object, which another clause asks for
        if problem := key_problem(content, "userid", USERID):
            return Broken(f"{what}: {problem}")
        userid = content["userid"]
        life: Life | None = seen.at(LIFE, job_id(record))
        if life is None or life.userid in (-1, userid):
            return True
        return Broken(f"{what}: userid: expected {life.userid}, got {userid}")
