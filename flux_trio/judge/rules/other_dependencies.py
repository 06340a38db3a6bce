"""RFC 26: dependency events, and the condition of each scheme.

The RFC does not define the form of a description. Descriptions of the form `scheme=value`, with the
scheme's name or flux-core's name for it, are judged; others are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from flux_trio.formats import FormatError, parse_fluid
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import logged
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.eventlogs import LOG, Log, broken_event, log_of
from flux_trio.judge.views.jobs import DEPEND, LIFE, Life, context_of, is_fatal
from flux_trio.trace import Record

RULES: Final = Rules()

ADDED, REMOVED = logged("dependency-add"), logged("dependency-remove")

AFTER: Final = ("after", "after-start")
AFTERANY: Final = ("afterany", "after-finish")
AFTEROK: Final = ("afterok", "after-success")
AFTERNOTOK: Final = ("afternotok", "after-failure")


# --- the events


@RULES.judge("26.events.1", ADDED, REMOVED)
def posted_in_the_job_manager(record: Record, seen: Seen) -> Finding:
    if not seen.facts.manager:
        return None
    if record.party == seen.facts.manager:
        return True
    return broken_event(
        record, f"expected of a plugin of {seen.facts.manager}, came from {record.party}"
    )


@RULES.judge("26.events.2", REMOVED, views=(LOG,))
def removed_by_the_same_description(record: Record, seen: Seen) -> Finding:
    log, description = log_of(record, seen), context_of(record).get("description")
    if log is None:
        return None
    if any(each == description for each, _ in log.dependencies):
        return True
    left = ", ".join(each for each, _ in log.dependencies) or "none"
    return broken_event(
        record, f"{description!r} is none of the dependencies that are left: {left}"
    )


def _owed_depends(seen: Seen) -> Iterable[Broken]:
    lives: Mapping[Any, Life] = seen.all(LIFE)
    for job, life in lives.items():
        log: Log | None = seen.at(LOG, job)
        if life.state == DEPEND and log and log.satisfied and not log.dependencies:
            yield Broken(
                f"job {job}: all dependencies are removed, no depend event followed",
                (life.since,),
                job=job,
            )


@RULES.judge("26.events.3", logged("depend"), views=(LOG, LIFE), debts=_owed_depends)
def satisfied_when_all_are_removed(record: Record, seen: Seen) -> Finding:
    log = log_of(record, seen)
    return log is not None and bool(log.satisfied) and not log.dependencies


@RULES.judge("26.events.4", ADDED, views=(LOG,))
def not_added_while_it_is_there(record: Record, seen: Seen) -> Finding:
    log, description = log_of(record, seen), context_of(record).get("description")
    if log is None:
        return None
    there = [n for each, n in log.dependencies if each == description]
    return broken_event(record, f"{description!r} is there already", *there) if there else True


@RULES.judge("26.events.5", ADDED, views=(LOG,))
def not_added_after_it_was_satisfied(record: Record, seen: Seen) -> Finding:
    log, description = log_of(record, seen), context_of(record).get("description")
    if log is None:
        return None
    if description not in log.satisfied:
        return True
    return broken_event(record, f"{description!r} was satisfied before", log.submitted)


# --- the schemes


def _antecedent(seen: Seen, names: tuple[str, ...], description: str) -> Log | None:
    """Return the job that a dependency of these schemes waits for, if it is in the trace."""
    scheme, _, value = description.partition("=")
    if scheme not in names:
        return None
    try:
        found: Log | None = seen.at(LOG, parse_fluid(value))
    except FormatError:
        return None
    return found


def is_success(log: Log) -> bool:
    """Whether a job has ended, and with success."""
    return bool(log.ended) and bool(log.finished) and not log.status and not log.fatal


def is_failure(log: Log) -> bool:
    """Whether a job has ended, and without success."""
    return bool(log.ended) and not is_success(log)


def _owed_by(
    names: tuple[str, ...], is_due: Callable[[Log], bool], what: str
) -> Callable[[Seen], Iterable[Broken]]:
    """Yield the jobs that wait for an antecedent although its condition is decided."""

    def debts(seen: Seen) -> Iterable[Broken]:
        lives: Mapping[Any, Life] = seen.all(LIFE)
        for job, life in lives.items():
            if life.state != DEPEND:
                continue
            log: Log | None = seen.at(LOG, job)
            if log is None:
                continue
            for description, n in log.dependencies:
                antecedent = _antecedent(seen, names, description)
                if antecedent is not None and is_due(antecedent):
                    yield Broken(
                        f"job {job}: {description}: expected {what}, none followed", (n,), job=job
                    )

    return debts


def _waits_for(
    clause: str,
    names: tuple[str, ...],
    is_met: Callable[[Log], bool],
    until: str,
    is_hopeless: Callable[[Log], bool] = lambda _log: False,
) -> None:
    """Register `clause`: a dependency is removed when its antecedent meets the condition.

    If the antecedent can no longer meet it, the job gets an exception.
    """
    owed_removals = _owed_by(names, is_met, "a dependency-remove event")
    owed_exceptions = _owed_by(names, is_hopeless, "an exception of severity 0")

    def debts(seen: Seen) -> Iterable[Broken]:
        return [*owed_removals(seen), *owed_exceptions(seen)]

    @RULES.judge(clause, REMOVED, views=(LOG, LIFE), debts=debts)
    def judge(record: Record, seen: Seen) -> Finding:
        description = str(context_of(record).get("description"))
        antecedent = _antecedent(seen, names, description)
        if antecedent is None:
            return None
        if is_met(antecedent):
            return True
        text = f"{description}: expected not before its antecedent {until}"
        return broken_event(record, text, antecedent.submitted)


_waits_for("26.schemes.2", AFTER, lambda log: bool(log.started), "has started")
_waits_for("26.schemes.4", AFTERANY, lambda log: bool(log.ended), "is INACTIVE")
_waits_for("26.schemes.5", AFTEROK, is_success, "is INACTIVE and successful", is_failure)
_waits_for("26.schemes.6", AFTERNOTOK, is_failure, "is INACTIVE and unsuccessful", is_success)


@RULES.judge(
    "26.schemes.3",
    logged("exception"),
    views=(LOG, LIFE),
    debts=_owed_by(
        AFTER, lambda log: bool(log.ended) and not log.started, "an exception of severity 0"
    ),
)
def nobody_waits_for_a_start_that_never_comes(record: Record, seen: Seen) -> Finding:
    log = log_of(record, seen)
    if log is None or not is_fatal(record):
        return None
    found = [_antecedent(seen, AFTER, description) for description, _ in log.dependencies]
    return any(each is not None and each.ended and not each.started for each in found)


@RULES.judge("26.schemes.7", REMOVED)
def not_before_its_time(record: Record, _seen: Seen) -> Finding:
    description = str(context_of(record).get("description"))
    scheme, _, value = description.partition("=")
    if scheme != "begin-time":
        return None
    try:
        begins = float(value)
    except ValueError:
        return None
    if record.t >= begins:
        return True
    return broken_event(record, f"{description}: came {begins - record.t:g} s early")
