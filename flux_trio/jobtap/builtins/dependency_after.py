"""dependency-after: a job waits for another one (RFC 26: after, afterany, afterok, afternotok).

`afterexcept`, `afterstart` for `after`, and the words come from flux-core. In flux-core, afternotok
is satisfied only by a job that has run. RFC 26 does not require that: a job that was canceled while
it waited was unsuccessful and satisfies afternotok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from flux_trio import jobtap
from flux_trio.editions import flux_kvs
from flux_trio.editions.kvs import Lookup
from flux_trio.editions.rfc21 import is_fatal, status_in, userid_in
from flux_trio.formats import EVENTLOG, FormatError, job_key, parse_eventlog, parse_fluid
from flux_trio.jobtap.builtins.dependencies import hold
from flux_trio.messages import topics
from flux_trio.protocols import JobEvent

NEVER_STARTED: Final = "after: {jobid} never started"


class Outcome(msgspec.Struct, frozen=True):
    """How a job has ended, as far as a dependency needs it."""

    userid: int
    had_resources: bool
    started: bool
    succeeded: bool
    ended_by_exception: bool


class Condition(msgspec.Struct, frozen=True):
    """One scheme: whether a job that has ended satisfies it, and the refusal if not."""

    word: str  # in the dependency's description
    holds: Callable[[Outcome], bool]
    refusal: str = NEVER_STARTED

    def refuse(self, outcome: Outcome, jobid: str) -> str:
        """Return the reason to refuse a job that would wait for a job which ended like this."""
        refusal = self.refusal if outcome.had_resources else NEVER_STARTED
        return "dependency: " + refusal.format(jobid=jobid)


AFTER: Final = Condition("after-start", lambda it: it.started)
CONDITIONS: Final = {
    "after": AFTER,
    "afterstart": AFTER,
    "afterany": Condition("after-finish", lambda _it: True),
    "afterok": Condition(
        "after-success", lambda it: it.succeeded, "afterok: job {jobid} failed or was canceled"
    ),
    "afternotok": Condition(
        "after-failure", lambda it: not it.succeeded, "afternotok: job {jobid} succeeded"
    ),
    "afterexcept": Condition(
        "after-except",
        lambda it: it.had_resources and it.ended_by_exception,
        "afterexcept: job {jobid}: no exception",
    ),
}


class DependencyAfter(jobtap.Plugin):
    """Frees a job when the job that it waits for starts or ends, or ends it if it waits in vain."""

    name = ".dependency-after"

    def loaded(self) -> None:
        """Begin without waiting jobs."""
        # by the id of the awaited job: the id of a waiting job, and its dependency's description
        self._waiting: dict[int, dict[tuple[int, str], Condition]] = {}
        # by the id of a job that was in NEW when the awaited job ended
        self._late: dict[int, list[tuple[str, Condition, Outcome]]] = {}

    @jobtap.on(*(f"job.dependency.{scheme}" for scheme in CONDITIONS))
    async def depend(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        """Hold the job, unless its dependency is satisfied already."""
        condition = CONDITIONS[dependency.scheme]
        description = f"{condition.word}={dependency.value}"
        if not hold(job, description):
            return
        jobid = _jobid(dependency)
        other = self.jobs.get(jobid)
        outcome = await self._stored(jobid, dependency) if other is None else _outcome_of(other)
        if job.userid != outcome.userid:
            raise jobtap.Reject(
                f"{dependency.scheme}: Permission denied for job {dependency.value}"
            )
        ended = other is None or other.state is jobtap.State.INACTIVE
        if ended and not condition.holds(outcome) and job.state is jobtap.State.NEW:
            raise jobtap.Reject(condition.refuse(outcome, dependency.value))
        if ended or (condition is AFTER and outcome.started):
            _settle(job, description, condition, outcome)
            return
        self._waiting.setdefault(jobid, {})[job.id, description] = condition
        if other is not None:
            other.subscribe()

    @jobtap.on("job.event.start")
    def on_start(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Free the jobs that wait for the start of this job."""
        waiting = self._waiting.get(job.id, {})
        for key in [key for key, condition in waiting.items() if condition is AFTER]:
            self._resolve(*key, waiting.pop(key), _outcome_of(job))

    @jobtap.on("job.event.clean", "job.event.invalidate")
    def on_end(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Free or end the jobs that wait for this job; a refused job has ended, too."""
        self._late.pop(job.id, None)
        for key, condition in self._waiting.pop(job.id, {}).items():
            self._resolve(*key, condition, _outcome_of(job))

    @jobtap.on("job.event.validate")
    def on_validate(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Settle what was found while the job was in NEW: now events can be posted to it."""
        for description, condition, outcome in self._late.pop(job.id, ()):
            _settle(job, description, condition, outcome)

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        """Return which job (`depid`) waits for which (`id`), and for what."""
        dependencies = [
            {"id": jobid, "depid": depid, "type": condition.word, "description": description}
            for jobid, waiting in self._waiting.items()
            for (depid, description), condition in waiting.items()
        ]
        return {"dependencies": dependencies}

    def _resolve(
        self, jobid: int, description: str, condition: Condition, outcome: Outcome
    ) -> None:
        job = self.jobs.get(jobid)
        if job is None:
            return
        if job.state is jobtap.State.NEW:
            self._late.setdefault(jobid, []).append((description, condition, outcome))
            job.subscribe()
        elif job.state is jobtap.State.DEPEND:  # else it has ended itself meanwhile
            _settle(job, description, condition, outcome)

    async def _stored(self, jobid: int, dependency: jobtap.Dependency) -> Outcome:
        """Read the outcome of a job from its stored eventlog. Raises Reject."""
        key = job_key(jobid, EVENTLOG)
        try:
            found = await self.rpc(topics.KVS_LOOKUP, flux_kvs.look_up(Lookup(key)))
            events = parse_eventlog(flux_kvs.value_of(found))
        except jobtap.FluxError as error:
            problem = "job not found" if error.errnum == jobtap.Errno.ENOENT else error.text
            scheme, value = dependency.scheme, dependency.value
            raise jobtap.Reject(f"dependency: {scheme}: id {value}: {problem}") from None
        return _outcome_in(events)


def _settle(job: jobtap.Job, description: str, condition: Condition, outcome: Outcome) -> None:
    """Satisfy the dependency, or end the job because it can never be satisfied."""
    if condition.holds(outcome):
        job.remove_dependency(description)
        return
    why = "can never be satisfied" if outcome.had_resources else "job never started"
    job.raise_exception("dependency", 0, f"dependency {description} {why}")


def _jobid(dependency: jobtap.Dependency) -> int:
    try:
        return parse_fluid(dependency.value)
    except FormatError:
        text = f'dependency: {dependency.scheme}: "{dependency.value}" is not a valid jobid'
        raise jobtap.Reject(text) from None


def _outcome_of(job: jobtap.Job) -> Outcome:
    return Outcome(
        userid=job.userid,
        had_resources=job.event_posted(JobEvent.ALLOC),
        started=job.event_posted(JobEvent.START),
        succeeded=job.result == "completed",
        ended_by_exception=job.exception is not None,
    )


def _outcome_in(events: Iterable[jobtap.Event]) -> Outcome:
    """Return the outcome in an eventlog: the first finish or fatal exception ended the job."""
    userid, names, status, is_excepted = -1, set(), None, False
    for event in events:
        context = event.context or {}
        names.add(event.name)
        if event.name == JobEvent.SUBMIT:
            userid = userid_in(context, userid)
        elif event.name == JobEvent.FINISH and not is_excepted:
            status = status_in(context)
        elif is_fatal(event.name, context) and status is None:
            is_excepted = True
    return Outcome(
        userid=userid,
        had_resources=JobEvent.ALLOC in names,
        started=JobEvent.START in names,
        succeeded=status == 0,
        ended_by_exception=is_excepted,
    )
