"""The job manager: moves every job through the states of RFC 21.

Who speaks with it, in the order of a job's life:

    ingest     job-manager.submit        → the jobs that are refused, and why
    plugins    are asked about the job whenever it changes its state (`hooks/hooks`)
    sched      hello and ready; then sched.alloc, and sched.free (`scheduler/side`)
    exec       hello; then <service>.start, answered until the job is over (`execution/side`)
    kvs        each turn commits its events; what tells of them waits (`jobs/commits`)
    followers  journal, events-journal   → each event that is durable, until they leave
    users      raise, urgency, update, kill, memo, wait, queue-*  → an answer each (`requests/`)

A turn folds its inputs into jobs (`ledger.log`), then does for each job that has changed what is
due for its state (`job_actions.py`), until nothing is due. Messages to others wait for the commit
of the turn's events. Each conversation has a folder; `parts.py` wires the parts to each other, and
`replies.py` hands each answer to the part that waits for it.

Left out: dependencies, limits and everything else that plugins decide. A question to a plugin is an
action; a plugin that answers at once does so before the turn goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, assert_never

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import (
    HousekeepingEnded,
    JobManagerAction,
    JobManagerInput,
    JobManagerOutbox,
    JobManagerOwnAction,
    JobManagerOwnInput,
    JobManagerTimer,
    UserFound,
    WithinTurn,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.parts import Parts
from flux_trio.cores.job_manager.replies import Replies
from flux_trio.cores.job_manager.requests.explaining import Waiting
from flux_trio.cores.job_manager.requests.submission import submitted_in
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.sharing import Backlog
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, Core, NoteAll, TimerFired
from flux_trio.messages import Errno, Event, FluxError, Request, Response, respond_error, topics
from flux_trio.protocols import (
    BLOCKED,
    AllocState,
    Annotate,
    HookAnswered,
    HookPostponed,
    JobsAnswered,
    JobState,
    JobView,
    LinkEvent,
    PluginAction,
    PluginInterests,
    PluginsChanged,
    PostEvent,
    QueueState,
    Reprioritize,
    SetPriority,
)

_PRIORITY: Final = JobState.PRIORITY  # looked up once, since all jobs pass here
_CLEANUP: Final = JobState.CLEANUP

_RareInput: TypeAlias = Event | TimerFired[JobManagerTimer] | JobManagerOwnInput

_ABOUT_QUEUES: Final = (topics.JOB_QUEUE_LIST, topics.JOB_QUEUE_STATUS)
"""Requests by which users find out why jobs wait."""


class JobManagerCore(CorePart, Core[JobManagerTimer, JobManagerOwnInput, JobManagerOwnAction]):
    """The whole state of the job manager; `owner` is the instance owner's userid."""

    is_turning: bool  # a turn has begun, and plugins have something to do before it goes on
    _resumed: bool  # the state is read back
    _is_presenting: bool  # the jobs that were read back are presented to plugins, then they go on
    _backlog: Backlog[JobManagerInput]  # inputs that came before the state was read back
    _inputs: deque[JobManagerInput]  # inputs of this turn that are not taken yet
    _changed: deque[ActiveJob]  # jobs for which an action may be due in this turn

    def __init__(self, owner: int, config: Config | None = None) -> None:
        config = config or Config()
        self._outbox: JobManagerOutbox = Outbox(config.edition_value)
        self._parts = parts = Parts(self._outbox, owner, config)
        self._replies = Replies(parts)
        self._resumed = False
        self._is_presenting = False
        self.is_turning = False
        self._inputs = deque()
        self._changed = deque()
        self._backlog = Backlog()
        self._methods = parts.methods(self._hindrance, self._disconnect)

    def get(self, jobid: int) -> JobView | None:
        """Return the job as it is now, for plugins (protocols.Jobs)."""
        job = self._parts.ledger.get(jobid)
        return None if job is None else job.snapshot()

    def active(self) -> Iterable[JobView]:
        """Return all active jobs, the oldest first, for plugins (protocols.Jobs)."""
        return (job.snapshot() for job in self._parts.ledger.active())

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of active jobs in each state, by queue; "" is the anonymous queue."""
        return self._parts.ledger.tally.by_queue()

    @property
    def history(self) -> dict[int, list[int]] | None:
        """By user, the ids of the jobs that a request for the history gets; None before any."""
        return self._parts.history.by_user

    @property
    def requested(self) -> set[int]:
        """The jobs with a request at the scheduler that is not answered and not canceled."""
        allocs = self._parts.scheduler.requests.allocs
        return {jobid for jobid in allocs if allocs.of(jobid) is AllocState.PENDING}

    @property
    def expirations(self) -> dict[int, float]:
        """The expiration in force of each job that holds resources, by id; 0: no limit.

        It is in seconds since the Unix epoch, as it was written.
        """
        return {
            job.id: job.granted.expiration if job.expiration is None else job.expiration
            for job in self._parts.ledger.running.values()
            if job.granted is not None
        }

    @property
    def planned(self) -> dict[int, float]:
        """The end of each job in RUN, from the time of its grant and the jobspec's duration.

        A job that is over before its new end was agreed keeps the old one.
        """
        ends = {}
        for job in self._parts.ledger.running.values():
            if job.granted is not None and job.state == JobState.RUN:
                duration = job.current_jobspec()["attributes"]["system"].get("duration", 0)
                ends[job.id] = job.end_after(duration) if duration else 0.0
        return ends

    @property
    def queue_states(self) -> dict[str | None, QueueState]:
        """The state of each queue, by name; None is the anonymous queue."""
        return {name: queue.state for name, queue in self._parts.queues.by_name.items()}

    def look(self, request: Request, jobid: int) -> Waiting:
        """Return why an active job waits. Raises FluxError(ENOENT, EPERM, EAGAIN)."""
        if not self._resumed:
            raise FluxError(Errno.EAGAIN, "the job manager is reading its state")
        return self._parts.explaining.look(request, jobid)

    def is_of(self, jobid: int, userid: int) -> bool:
        """Return whether an active job is of this user."""
        return self._parts.explaining.is_of(jobid, userid)

    def start(self, now: float) -> list[JobManagerAction]:
        """Read the stored state."""
        self._outbox.now = now
        self._parts.queue_methods.start()
        self._parts.scheduler.housekeeping.start()
        self._parts.replay.start()
        self._parts.ledger.end_turn()
        return self._outbox.pop_actions()

    def turn(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """Begin a turn with the inputs, and go on with it: see `go_on`."""
        if self.is_turning:
            raise RuntimeError("a turn is under way: expected `plugins_replied` or `go_on`")
        self.is_turning = True
        self._outbox.now = now
        self._inputs.extend(inputs)
        self._parts.sweeps.start_turn()
        return self._until_plugins_act()

    def go_on(self) -> list[JobManagerAction]:
        """Take the inputs, do what is due, and commit or send, until plugins have something to do.

        While `is_turning`, the returned actions are for plugins only. Each reply to them has to
        come by `plugins_replied` before the turn goes on.
        """
        return self._until_plugins_act()

    def plugins_replied(self, said: Sequence[WithinTurn]) -> list[PluginAction]:
        """Take a reply of plugins within the turn, after their new interests and records.

        The returned actions follow from it; they come before those that are not performed yet.
        """
        for each in said:
            match each:
                case PluginInterests():
                    self._heed(each)
                case NoteAll(notes):
                    self._parts.ledger.notes += notes
                case _:
                    self._parts.hooks.replied(each)
        return self._parts.hooks.pop_actions()

    def _until_plugins_act(self) -> list[JobManagerAction]:
        """Do the work of `turn` and `go_on`; `make reborn` replaces the core after each of them."""
        hooks = self._parts.hooks
        waiting, unreplied = self._inputs, hooks.unreplied
        while not unreplied:
            if waiting:
                self._handle(waiting.popleft())
            elif not self._do_next():
                return list(hooks.pop_actions()) if hooks.actions else self._end_turn()
        return list(hooks.pop_actions())

    def _do_next(self) -> bool:
        """Resume, or do what is due for jobs; return False at the end of the turn."""
        parts = self._parts
        if not self._resumed and self._is_read:
            self._resume()
        elif self._is_presenting:
            self._go_on()
        elif self._changed:
            self._do_due()
        elif parts.scheduler.unasked:
            parts.continuations.decided(parts.scheduler.unasked.pop(0), accepted=True)
        elif parts.scheduler.outdated:
            parts.lifetime.granted(parts.scheduler.outdated.pop(0))
        elif parts.ledger.dirty:
            dirty, parts.ledger.dirty = parts.ledger.dirty, {}
            self._changed.extend(dirty.values())
        else:
            return parts.sweeps.step()
        return True

    @property
    def _is_read(self) -> bool:
        """Whether the stored state is read."""
        parts = self._parts
        return (
            parts.replay.done
            and parts.queue_methods.restored
            and parts.scheduler.housekeeping.restored
        )

    def _do_due(self) -> None:
        """Do what is due for one job after another, until plugins have to be asked."""
        changed, parts = self._changed, self._parts
        do, unreplied = parts.due.do, parts.hooks.unreplied
        while changed and not unreplied:
            job = changed.popleft()
            if job.state is _PRIORITY:
                parts.scheduler.unqueue(job)
            if job.hook not in BLOCKED:
                do(job)
            elif job.state is _CLEANUP and not job.has_resources:
                # RFC 27, Exceptions: upon entering CLEANUP. Plugins may think about it for long.
                parts.scheduler.withdraw(job)

    def _end_turn(self) -> list[JobManagerAction]:
        parts = self._parts
        parts.hooks.end_turn()
        parts.scheduler.end_turn()
        parts.waits.end_turn()
        parts.journal.end_turn()
        parts.events_journal.end_turn()
        self.is_turning = False
        parts.ledger.end_turn()
        self._outbox.send_all(parts.admissions.pop_actions())
        parts.sweeps.end_turn()
        if not parts.sweeps.is_open and not parts.admissions.is_asking:
            parts.quiescence.end_turn()
        return self._outbox.pop_actions()

    def _resume(self) -> None:
        """The stored state is read: present the active jobs to plugins."""
        parts = self._parts
        self._resumed = True
        self._is_presenting = True
        parts.purge.configure(parts.queues.config.job_manager)
        parts.ledger.leave_to_ingest(submitted_in(self._backlog))
        resumed, parts.ledger.resumed = parts.ledger.resumed, []
        for job in resumed:
            parts.scheduler.resumed(job)
            parts.exec.resumed(job)
        parts.scheduler.housekeeping.resumed()
        parts.plugin_replays.present_resumed(resumed, parts.limits.beyond_cost(resumed))

    def _go_on(self) -> None:
        """Go on with the active jobs, then with the inputs that waited: plugins know all jobs."""
        self._is_presenting = False
        self._parts.plugin_replays.go_on_all()
        self._inputs.extend(self._backlog.remove_all())

    # --- inputs

    def _handle(self, message: JobManagerInput) -> None:
        # the most frequent ones first
        if type(message) is Response:
            if self._resumed or message.matchtag:
                self._replies.pass_on(message)
            else:
                self._keep_until_read(message)
        elif type(message) is ClockStepped:
            self._clock_stepped(message.by)
        elif not self._resumed:
            self._keep_until_read(message)
        elif type(message) is Request:
            self._parts.ledger.send(self._methods.call(message))
        else:
            self._handle_rare(message)

    def _handle_rare(self, message: _RareInput) -> None:
        parts = self._parts
        match message:
            case Event():
                self._handle_event(message)
            case HookAnswered() | HookPostponed() | JobsAnswered():
                parts.hooks.replied(message)
            case PostEvent() | SetPriority() | Annotate() | Reprioritize():
                parts.hooks.operate_when_free(message)
            case PluginsChanged():
                parts.plugin_replays.plugins_changed(message)
            case PluginInterests():
                self._heed(message)
            case HousekeepingEnded():
                parts.scheduler.housekeeping.ended(message)
            case UserFound():
                parts.submission.found(message)
            case TimerFired(key):
                self._outbox.fired(key)
                self._fired(key)
            case _:
                assert_never(message)

    def _heed(self, interests: PluginInterests) -> None:
        self._parts.ledger.set_noted(interests.notes)
        self._parts.hooks.interests.update(interests)

    def _fired(self, key: JobManagerTimer) -> None:
        match key:
            case "purge":
                self._parts.purge.look()
            case "sweep":
                pass  # each turn does a part of the open sweeps
            case "housekeeping":
                self._parts.scheduler.housekeeping.release()
            case "sign-of-life":
                self._parts.scheduler.signs_of_life.ask()
            case _:
                assert_never(key)

    def _keep_until_read(self, message: JobManagerInput) -> None:
        """Keep inputs until the stored state is read.

        Requests about queues are answered with EAGAIN and the reason, if a service has sent a
        reason.
        """
        parts = self._parts
        if isinstance(message, PluginsChanged):
            message = parts.plugin_replays.known_already(message)
        if isinstance(message, PluginInterests):
            self._heed(message)
        elif not isinstance(message, Request):
            self._backlog.put(message, parts.ledger.forget)
        elif message.topic == topics.JOB_HINDRANCE:
            parts.ledger.answer_at_once(self._methods.call(message))
            early = self._backlog.pop_about(_ABOUT_QUEUES) if parts.hindrances.texts else []
            for request in early:
                self._keep_until_read(request)
        elif message.topic in _ABOUT_QUEUES and parts.hindrances.texts:
            text = f"the job manager is reading its state: {'; '.join(parts.hindrances.texts)}"
            parts.ledger.answer_at_once(respond_error(message, Errno.EAGAIN, text))
        else:
            parts.ledger.answer_at_once(self._backlog.put(message, parts.ledger.forget))

    def _handle_event(self, event: Event) -> None:
        if event.topic == topics.KVS_DAMAGED_EVENT:
            self._parts.lost_found.event(event)
        else:
            self._parts.lifetime.event(event)

    def _disconnect(self, request: Request) -> None:
        parts = self._parts
        parts.journal.forget(request.sender)
        parts.events_journal.forget(request.sender)
        parts.waits.forget(request.sender)
        parts.waitable.forget(request.sender)
        parts.history.forget(request.sender)
        parts.purge.forget(request.sender)
        parts.submission.forget(request.sender)
        parts.updates.forget(request.sender)
        parts.hindrances.forget(request.sender)
        if request.sender == parts.scheduler.sender:
            parts.scheduler.lost("scheduler disconnected", LinkEvent.LOST)
        if request.sender == parts.exec.sender:
            parts.exec.left()

    def _clock_stepped(self, by: float) -> None:
        self._outbox.clock_stepped(by)
        for _, silence in self._parts.silences():
            silence.clock_stepped(by)
        for job in self._parts.ledger.running.values():
            job.stepped += by

    def _hindrance(self, request: Request) -> None:
        self._parts.hindrances.keep(request)
        for sender, silence in self._parts.silences():
            if request.sender in (sender, topics.KVS):
                silence.excused(self._parts.ledger.now)
