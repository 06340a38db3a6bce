"""The ledger: the active jobs, and the one place that logs their events.

An event is folded into its job at once. At the end of the turn all its events are written in one
commit; messages that may reveal them wait for that commit.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, Protocol

import msgspec

from flux_trio.cores.job_index import refusal_ops
from flux_trio.cores.job_manager.calls import Absent, JobManagerOutbox, Refusal, SubmittedAgain
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob, ended, ends_wait
from flux_trio.cores.job_manager.jobs.commits import Commits
from flux_trio.cores.job_manager.jobs.jobspecs import Jobspecs
from flux_trio.cores.job_manager.jobs.tally import Tally
from flux_trio.cores.job_manager.jobs.user_jobs import JobBytes, UserJobs
from flux_trio.cores.job_manager.waiting import AnswerOfMany, LogEvent
from flux_trio.cores.kvs_calls import look_up
from flux_trio.editions import Edition, job_requests, rfc21
from flux_trio.editions.journal import Ended
from flux_trio.editions.rfc27 import SchedAnnotations, without_reason
from flux_trio.formats import EVENTLOG, Event, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, Request, Response, check_user, topics
from flux_trio.messages import Event as EventMessage
from flux_trio.messages.types import PRIVATE, USERID_UNKNOWN
from flux_trio.protocols import (
    ASKING,
    HOOK,
    RUNNING,
    THINKING,
    HookEvent,
    Job,
    JobEvent,
    JobState,
    JobStory,
    Story,
    merge_annotations,
)
from flux_trio.trace import Kind

_EVENT: Final[str] = Kind.EVENT.value  # looked up once: every event is traced

MAX_JOBID_KEY: Final = "job-manager.max-jobid"
"""The greatest job id at the last purge or refusal: no id is used again."""

JOB_BYTES: Final = 4096
"""What is counted of each job of a guest beside its jobspec: usual events, R, rows of the index."""

RECENT_MAX: Final = 10_000
"""Inactive jobs that plugins may still look up."""

RECENT_BYTES_MAX: Final = 64 << 20
"""Bytes of their jobspecs, which no limit of a user counts any more."""


EventListener = Callable[[ActiveJob, Event], None]


class Listener(Protocol):
    """Asks plugins about events."""

    def logged(self, job: ActiveJob, event: Event) -> None:
        """Called with each event that is logged, after all other listeners."""

    def abandon(self, job: ActiveJob) -> None:
        """End the open question about `job`: a fatal exception does not wait for the answer."""


class Ledger(Commits):
    """The active jobs by id, and the events that are logged.

    `owner` is the instance owner's userid; `hooks` asks plugins.
    """

    jobs: dict[JobId, ActiveJob]
    running: dict[JobId, ActiveJob]  # those of `jobs` that are in RUN or CLEANUP
    ninactive: int  # number of finished jobs in the kvs
    left_to_ingest: set[JobId]  # ids up to `last_stored` whose jobs ingest submits only now
    last_stored: JobId  # the greatest id from before this start
    recent: OrderedDict[JobId, ActiveJob]  # jobs that became inactive last; a dict seeks its oldest
    recent_bytes: int  # of their jobspecs, at most
    max_jobid: JobId
    resumed: list[ActiveJob]  # jobs that were read back, until all are
    dirty: dict[JobId, ActiveJob]  # jobs for which an action may be due
    job_story: JobStory
    hook_story: Story[HookEvent]
    nlogged: int  # number of events so far

    def __init__(
        self, outbox: JobManagerOutbox, owner: int, edition: Edition, hooks: Listener
    ) -> None:
        super().__init__(outbox)
        self._hooks = hooks
        self.edition = edition
        self.owner = owner
        self.jobs = {}
        self.tally = Tally()  # of `jobs`
        self.users = UserJobs(owner)  # of `jobs`
        self.jobspec_costs = JobBytes()  # of `jobs`
        self.asked_bytes = JobBytes()  # of events that users requested
        self.posted_bytes = JobBytes()  # of events that plugins posted
        self.memo_bytes = JobBytes()  # of memos, as JSON
        self.stored_bytes = JobBytes()  # of jobspecs of guests, with the environment
        self.namespace_bytes = JobBytes()  # of guest namespaces of guests' jobs, as the kvs says
        self._counted = (
            self.jobspec_costs,
            self.asked_bytes,
            self.posted_bytes,
            self.memo_bytes,
            self.stored_bytes,
            self.namespace_bytes,
        )
        self._kept = (self.stored_bytes, self.asked_bytes, self.namespace_bytes)  # in the kvs
        self.running = {}
        self.jobspecs = Jobspecs()
        self.ninactive = 0
        self.left_to_ingest = set()
        self.last_stored = 0
        self.recent = OrderedDict()
        self.recent_bytes = 0
        self.max_jobid = 0
        self.resumed = []
        self.dirty = {}
        self.job_story = JobStory()
        self.hook_story = Story()
        self.nlogged = 0
        self._last = Event(0.0, "")  # the event that was logged last
        self.on_logged: list[EventListener] = []
        self.on_ended: list[Callable[[Ended], None]] = []
        self.on_annotated: list[Callable[[ActiveJob], None]] = []
        self._on_event: dict[str, list[EventListener]] = {}  # by name
        self._further: dict[str, EventListener] = {  # what else follows from an event, by its name
            JobEvent.CLEAN: self._ended,
            JobEvent.EXCEPTION: self._raised,
            JobEvent.MEMO: self._memo_changed,
        }

    def listen(self, name: str, listener: EventListener) -> None:
        """Call `listener` with each event of this name; those in `on_logged` get all events."""
        self._on_event.setdefault(name, []).append(listener)

    def log(
        self,
        job: ActiveJob,
        name: str,
        context: dict[str, Any] | None = None,
        answer: Response | AnswerOfMany | None = None,
    ) -> None:
        """Log an event of `job`; while a hook of the job is under way, after the hook's answer.

        `answer` is the answer to the request for the event; it is sent when the event is durable. A
        fatal exception that ends the job does not wait for the hook, unless the job is still being
        validated. Raises InvalidTransition if RFC 21 does not allow the event.
        """
        if job.hook in ASKING:
            while job.hook in THINKING and ends_wait(job, name, context):
                self._hooks.abandon(job)  # an event in the queue may lead to the next hook
            if job.hook in ASKING:
                if job.deferred is None:
                    job.deferred = deque()
                job.deferred.append(LogEvent(name, context, answer))
                return
        self.log_now(job, name, context)
        if answer is not None:
            self.send_answer(answer)

    def send_answer(self, answer: Response | AnswerOfMany, refusal: str = "") -> None:
        """Send the answer to the request for an event, which is logged unless `refusal` says why
        not; that for many goes with the last of them.
        """
        if isinstance(answer, Response):
            refused = msgspec.structs.replace(answer, errnum=Errno.EINVAL, payload=refusal)
            self.send(refused if refusal else answer)
            return
        answer.left -= 1
        answer.errors += bool(refusal)
        answer.count += not refusal
        if not answer.left:
            self.send(answer.response())

    def log_now(self, job: ActiveJob, name: str, context: dict[str, Any] | None = None) -> None:
        """Log an event of `job` at once, also while a hook is under way."""
        event = self._event(job, name, context)
        self._apply(job, event)
        job.stamped = event.timestamp
        self.logged.setdefault(job.id, []).append(event)
        self.dirty[job.id] = job
        if (follow := self._further.get(name)) is not None:
            follow(job, event)
        self._notify(job, event)

    def _event(self, job: ActiveJob, name: str, context: dict[str, Any] | None) -> Event:
        """Return the event to log now: the last one again, if another job gets the same.

        Events that are one object are formatted once: see `_commit_all`. No event is stamped
        earlier than the one before it in its log, also when the clock was set back meanwhile.
        """
        last, now = self._last, max(self.outbox.now, job.stamped)
        if last.context is context and last.name is name and last.timestamp == now:
            return last
        self._last = Event(now, name, context)
        return self._last

    def raise_exception(self, job: ActiveJob, kind: str, severity: int, note: str) -> None:
        """Log an exception that the instance owner has raised."""
        context = rfc21.Exceptional(kind, severity, note, self.owner)
        self.log(job, JobEvent.EXCEPTION, rfc21.write(context))

    def admit(self, job: ActiveJob, event: Event, stored: int) -> None:
        """Add a new job, and tell of the submit event that ingest has logged.

        `stored` are the bytes of its jobspec, with the environment.
        """
        self.job_story.begin(job)
        self._add(job)
        self._count_stored(job, stored)
        self._notify(job, event)

    def resume(self, job: ActiveJob, stored: int) -> None:
        """Add a job that was read back; `stored` as for `admit`."""
        self._add(job)
        self._count_stored(job, stored)
        self.resumed.append(job)

    def leave_to_ingest(self, jobids: Container[int]) -> None:
        """Drop jobs that were read back in NEW and that ingest submits: `jobids`."""
        for job in self.resumed:
            if job.state == JobState.NEW and job.id in jobids:
                self._remove(job)
                self.left_to_ingest.add(job.id)
        self.resumed = [job for job in self.resumed if job.id in self.jobs]

    def is_from_before(self, jobid: int) -> bool:
        """Return whether a job was stored before this start, and not left to ingest."""
        return jobid <= self.last_stored and jobid not in self.left_to_ingest

    def was_used(self, jobid: int) -> bool:
        """Return whether a job has used this id."""
        if jobid in self.jobs or jobid in self.recent:
            return True
        return self.is_from_before(jobid)

    def asked_about(
        self, request: Request, jobid: int, denied: str, absent: Absent | None = None
    ) -> ActiveJob | None:
        """Return the active job that a user's request is about.

        If the job is not active, the request is refused by `absent`, and None is returned. Raises
        FluxError(EPERM) with the text `denied` for another user's job.
        """
        job = self.jobs.get(jobid)
        if job is None:
            self.refuse(request, absent or Absent(jobid))
        else:
            check_user(request, job.userid, denied)
        return job

    def refuse(self, request: Request, absent: Absent) -> None:
        """Answer a request about a job that is not active: it has finished or is unknown."""
        if absent.jobid in self.recent or absent.jobid > self.max_jobid:
            self.send(absent.refusal(request, is_inactive=absent.jobid in self.recent))
            return
        self.ask_kvs(look_up(job_key(absent.jobid, EVENTLOG)), Refusal(request, absent))

    def look_for(self, jobid: int, batch: int) -> None:
        """Ask whether a job of the submit request `batch` was over at this start."""
        self.ask_kvs(look_up(job_key(jobid, EVENTLOG)), SubmittedAgain(jobid, batch))

    def used(self, jobid: int) -> None:
        """Note that `jobid`, and all ids before it, were used before this start."""
        self.last_stored = max(self.last_stored, jobid)
        self.max_jobid = max(self.max_jobid, jobid)

    def discard(self, job: ActiveJob) -> None:
        """Remove a job that was refused, and its stored values (RFC 21, Invalidate Event)."""
        self._remove(job)
        self.unstore(job.id)
        self.dirty.pop(job.id, None)
        self.logged.pop(job.id, None)
        event = self._event(job, JobEvent.INVALIDATE, None)
        self.job_story.apply(job, event)
        job.asked = job.state  # plugins are only notified of job.destroy
        self._notify(job, event)  # it is in no eventlog, but followers have seen the submit event

    def unstore(self, jobid: int) -> None:
        """Remove the stored values of a refused job, before the refusal is sent.

        Otherwise the next job manager could read the job back and run it. The same commit stores
        the greatest job id. If job-ingest submits the job again, the next job manager knows by this
        id that the job was decided.
        """
        self.max_jobid = max(self.max_jobid, jobid)
        self.store([["put", MAX_JOBID_KEY, str(self.max_jobid)], *refusal_ops(jobid)])

    def annotate(self, job: ActiveJob, annotations: dict[str, Any] | None) -> None:
        """Set the annotations of a pending job; they are volatile (RFC 27, Alloc Annotate).

        None discards them, except what memos wrote: that is not volatile.
        """
        if annotations is None and job.memo:
            annotations = merge_annotations({}, {"user": job.memo}, keeps_empty=False)
        if annotations != job.annotations:
            job.annotations = annotations
            for listener in self.on_annotated:
                listener(job)

    def remember(self, job: ActiveJob, memo: Mapping[str, Any]) -> None:
        """Take a volatile memo: it is in no eventlog."""
        merged = {**(job.memo or {}), **memo}
        job.memo = {key: value for key, value in merged.items() if value is not None}
        self._count_memos(job)
        self.annotate(
            job, merge_annotations(job.annotations or {}, {"user": memo}, keeps_empty=False) or None
        )

    def merge_annotations(self, job: ActiveJob, update: Mapping[str, Any]) -> None:
        """Change some annotations of a job; None removes a key (RFC 27, Alloc Annotate)."""
        if job.is_active:
            self.annotate(job, self.merged_annotations(job, update))

    def merged_annotations(self, job: ActiveJob, update: Mapping[str, Any]) -> dict[str, Any]:
        """Return the annotations of a job after `update`."""
        keeps_empty = self.edition.keeps_empty_annotations
        return merge_annotations(job.annotations or {}, update, keeps_empty=keeps_empty)

    def hold(self, job: ActiveJob, reason: str) -> None:
        """Let a plugin hold `job` in its state, for `reason`."""
        self.step_hook(job, HookEvent.HOLD)
        job.waiting_for = reason
        self.tally.held(job.id, job.queue, reason)
        self.merge_annotations(
            job, self.edition.annotations(SchedAnnotations(reason_pending=reason))
        )

    def release(self, job: ActiveJob) -> None:
        """Remove the reason: no plugin holds `job` in its state any more."""
        self.step_hook(job, HookEvent.RELEASE)
        job.waiting_for = None
        self.tally.released(job.id)
        self.annotate(job, without_reason(job.annotations or {}) or None)

    def step_hook(self, job: ActiveJob, event: HookEvent) -> None:
        """Step the hook state of `job`; on InvalidTransition it is unchanged."""
        job.hook = self.hook_story.step(HOOK, job.id, job.hook, event)

    def _add(self, job: ActiveJob) -> None:
        self.jobs[job.id] = job
        if job.state & RUNNING:
            self.running[job.id] = job
        self.tally.came(job.queue, job.state)
        self.users.came(job.userid, job.id, job.kept_jobspec)
        if cost := job.kept_jobspec.cost:
            self.jobspec_costs.put(job.userid, job.id, cost)
        self._count_memos(job)
        self.max_jobid = max(self.max_jobid, job.id)

    def _remove(self, job: ActiveJob) -> None:
        del self.jobs[job.id]
        self.running.pop(job.id, None)
        for counted in self._counted:
            if job.id in counted.sizes:
                counted.put(job.userid, job.id, 0)
        self.users.went(job.userid, job.id)
        self.tally.went(job.id, job.queue, job.state)

    def _count_stored(self, job: ActiveJob, stored: int) -> None:
        if job.userid != self.owner:
            self.stored_bytes.put(job.userid, job.id, stored)

    def stored_of_job(self, job: ActiveJob) -> int:
        """Return about how many bytes are stored of an active job of a guest."""
        return JOB_BYTES + sum(each.of_job(job.id) for each in self._kept)

    def stored_of_user(self, userid: int) -> int:
        """Return about how many bytes are stored of the active jobs of a guest."""
        jobs, _ = self.users.of(userid)
        return JOB_BYTES * jobs + sum(each.of_user(userid) for each in self._kept)

    def _count_memos(self, job: ActiveJob) -> None:
        """Count the memos of a job, of users and plugins."""
        size = len(msgspec.json.encode(job.memo)) if job.memo else 0
        if size or self.memo_bytes.of_job(job.id):
            self.memo_bytes.put(job.userid, job.id, size)

    def _apply(self, job: ActiveJob, event: Event) -> None:
        """Fold an event into `job`, and count the job in its new state and queue."""
        state, updates = job.state, job.jobspec_updates
        self.job_story.apply(job, event)
        if job.jobspec_updates is not updates:
            self.tally.requeued(job.id, state, job.queue_by(updates), job.queue)
        if job.state is not state:
            self.tally.moved(job.queue, state, job.state)
            if job.state & RUNNING:
                self.running[job.id] = job

    def _ended(self, job: ActiveJob, event: Event) -> None:
        """Remove a job that is inactive now; plugins may look it up for a while."""
        nbytes = 0 if job.userid == self.owner else self.stored_of_job(job)
        self._remove(job)
        self.ninactive += 1
        self.recent[job.id] = job
        self.recent_bytes += job.kept_jobspec.nbytes
        over = ended(job, event.timestamp, nbytes)
        self.over.append(over)
        for listener in self.on_ended:
            listener(over)

    def _raised(self, job: ActiveJob, event: Event) -> None:
        """Publish an exception: exec learns of cancels (readings: How exec learns of cancels)."""
        if event.context is not None:
            raised = rfc21.read_exception(event.context)
            self.frees |= raised.severity == 0
            status = rfc21.wait_status_in(event.context)
            exception = job_requests.JobException(job.id, raised.type, raised.severity, status)
            payload = job_requests.JOB_EXCEPTION.write(exception)
            self.send(
                EventMessage(topics.JOB_EXCEPTION_EVENT, payload, flags=PRIVATE, userid=job.userid)
            )

    def _memo_changed(self, job: ActiveJob, _event: Event) -> None:
        self._count_memos(job)

    def forget_oldest(self) -> ActiveJob | None:
        """Drop and return the oldest job of `recent`, if there are too many."""
        if len(self.recent) <= RECENT_MAX and self.recent_bytes <= RECENT_BYTES_MAX:
            return None
        return self.forget_inactive(next(iter(self.recent)))

    def forget_inactive(self, jobid: int) -> ActiveJob | None:
        """Drop a purged job; return it if plugins could still look it up."""
        job = self.recent.pop(jobid, None)
        if job is not None:
            self.recent_bytes -= job.kept_jobspec.nbytes
        return job

    # --- lookups of plugins and users

    def begun(self, jobid: int, submit: Event) -> Job:
        """Return a job that begins with this event. Raises InvalidTransition."""
        return Job(jobid, submit, self.edition.first_flag)

    def get(self, jobid: int) -> ActiveJob | None:
        """Return an active job, or one of `recent`."""
        return self.jobs.get(jobid) or self.recent.get(jobid)

    def known(self) -> Iterator[ActiveJob]:
        """Yield the active jobs, then those of `recent`."""
        return chain(self.jobs.values(), self.recent.values())

    def active_of(self, userid: int) -> list[ActiveJob]:
        """Return the active jobs of a user, or all for USERID_UNKNOWN; fast for a guest."""
        if userid == USERID_UNKNOWN:
            return list(self.jobs.values())
        if userid == self.owner:
            return [job for job in self.jobs.values() if job.userid == userid]
        return [self.jobs[jobid] for jobid in self.users.jobids(userid)]

    def active(self) -> Iterable[ActiveJob]:
        """Return the active jobs, the oldest first."""
        return list(self.jobs.values())

    def _notify(self, job: ActiveJob, event: Event) -> None:
        name = event.name
        if self.is_noted:
            self.notes.append(
                (_EVENT, {"id": job.id, "name": name, "context": event.context or {}})
            )
        self.nlogged += 1
        for listener in self.on_logged:
            listener(job, event)
        if name in self._on_event:
            for listener in self._on_event[name]:
                listener(job, event)
        self._hooks.logged(job, event)
