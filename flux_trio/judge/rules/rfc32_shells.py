"""RFC 20 and 32: what a job's own eventlog says of its shells, held against its R and its finish.

flux-core and the services here write guest.exec.eventlog: `shell.init` when the shells have been
started, `shell-exit` and `complete` at their end. No RFC names these events. Where they are there,
they show which shells there were, and with which statuses they ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, sent, topic_of
from flux_trio.judge.engine.view import Live, Mark, Place, Seen, Trait, view
from flux_trio.judge.views.commits import appended
from flux_trio.judge.views.eventlogs import RESOURCES, Resources
from flux_trio.judge.views.execution import START, data_of
from flux_trio.judge.views.traits import says
from flux_trio.messages import topics
from flux_trio.trace import Record
from flux_trio.trace.kvs import job_with

RULES: Final = Rules()

EXEC_LOG: Final = "guest.exec.eventlog"
ENDS: Final = ("shell-exit", "complete")


def _noted(record: Record, *names: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the events of these names that a commit writes to a guest.exec.eventlog: their job,
    name and context.
    """
    for each in appended(record):
        jobid = job_with(each.op.key, EXEC_LOG)
        if jobid is None or not set(names) & set(each.names):
            continue
        for line in each.lines:
            if isinstance(line, dict) and line.get("name") in names:
                context = line.get("context")
                yield jobid, line["name"], context if isinstance(context, dict) else {}


def _writes_log(record: Record, _seen: Seen) -> bool:
    return any(job_with(each.op.key, EXEC_LOG) is not None for each in appended(record))


WITH_LOG: Final = Mark(
    Trait("exec log", tuple(sent("request", *topics.COMMITS)), _writes_log), bool
)
WRITES: Final = sent("request", *topics.COMMITS, mark=WITH_LOG)
FINISH: Final = sent("response", START, mark=says("finish"))


class Ended(Live, frozen=True, gc=False):
    """What is said of the end of a job's shells, in answer to its last start request."""

    shells: int = -1
    """The greatest wait(2) status in the log; -1 before there is one."""
    noted: Place = 0
    finish: int = -1
    """The status of the first finish response; -1 before there is one."""
    said: Place = 0


def _statuses(record: Record) -> Iterable[tuple[int, int]]:
    """Return the greatest status of the shells of each job whose end a commit writes."""
    found: dict[int, int] = {}
    for jobid, name, context in _noted(record, *ENDS):
        status = context.get("status" if name == "complete" else "wait_status")
        if type(status) is int:
            found[jobid] = max(status, found.get(jobid, status))
    return found.items()


def _ends(record: Record, seen: Seen) -> Iterable[tuple[int | None, int | None]]:
    if topic_of(record) in topics.COMMITS:
        return _statuses(record) if record.party == seen.facts.exec_peer else []
    if record.message is None or topic_of(record).endswith(f".{topics.START_METHOD}"):
        status = data_of(record).get("status")
        return [(job_id(record), status if type(status) is int else None)]
    return []


def _fold_ended(had: Ended | None, status: int | None, record: Record, _seen: Seen) -> Ended | None:
    if status is None:
        return None  # another start, or the job has ended
    had = had or Ended()
    if topic_of(record) in topics.COMMITS:
        return had.but(shells=status, noted=record.n) if status > had.shells else had
    return had if had.said else had.but(finish=status, said=record.n)


ENDED: Final = view(
    "ends of shells",
    sent("request", START),
    FINISH,
    WRITES,
    logged("clean"),
    parts=_ends,
    fold=_fold_ended,
)
"""By job id: the `Ended` of its shells."""


def finishes(record: Record, seen: Seen) -> Iterator[tuple[int, int, int, Place]]:
    """Yield the jobs of which a record completes what is said of their end: the status of finish,
    the greatest of the shells, and the record of what was said first.

    The log may be written before finish is said, or after it. A second finish is of another clause
    (readings: Two statuses of one job).
    """
    if record.party != seen.facts.exec_peer:
        return
    if topic_of(record) in topics.COMMITS:
        for jobid, status in _statuses(record):
            ended: Ended | None = seen.at(ENDED, jobid)
            if ended is not None and ended.said:
                yield jobid, ended.finish, max(status, ended.shells), ended.said
        return
    job, said = job_id(record), data_of(record).get("status")
    ended = seen.at(ENDED, job)
    if job is not None and ended is not None and not ended.said and type(said) is int:
        yield job, said, ended.shells, ended.noted


def is_greatest(jobid: int, said: int, greatest: int, n: Place) -> Finding:
    """Judge the status of a finish response."""
    if said == greatest:
        return True
    text = f"finish response of job {jobid}: status: expected {greatest}"
    return Broken(f"{text}, the greatest of its shells, got {said}", (n,), job=jobid)


@RULES.each("32.start.32", FINISH, WRITES, of=finishes, views=[ENDED])
def finish_has_the_greatest_status_of_the_shells(end: tuple[int, int, int, Place]) -> Finding:
    return is_greatest(*end)


@RULES.judge("20.overview.6", WRITES, views=[RESOURCES])
def shells_are_on_the_targets_of_r(record: Record, seen: Seen) -> Finding:
    """There are as many shells as targets of R, and the first one is on one of them."""
    kept = None
    for jobid, _, context in _noted(record, "shell.init"):
        resources: Resources | None = seen.at(RESOURCES, jobid)
        size, leader = context.get("size"), context.get("leader-rank")
        if resources is None or type(size) is not int or type(leader) is not int:
            continue
        ntargets = resources.ranks.bit_count()
        text = ""
        if size != ntargets:
            text = f"{size} shells were started, and R has {ntargets} targets"
        elif leader < 0 or not resources.ranks >> leader & 1:
            text = f"the first shell is on target {leader}, which R does not have"
        if text:
            party = seen.facts.exec_peer
            return Broken(f"job {jobid}: {text}", (resources.n,), party=party, job=jobid)
        kept = True
    return kept
