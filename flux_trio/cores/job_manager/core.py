"""The job manager: moves every job through the states of RFC 21.

A turn folds what came in into jobs (`ledger.log`), then looks at each job that changed and does
what is due for its state, until nothing is; what it tells others waits for the commit of the turn's
events. Each conversation has a file of its own; this one holds the states together.

Left out: dependencies, limits and everything else that plugins decide. A question to them is an
action, and those that answer at once do so before the turn goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, assert_never

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import (
    ActiveRead,
    EndedCount,
    EventsStored,
    ExpirationTold,
    GrantsRead,
    HistoryRead,
    InventoryRead,
    InventoryReadAgain,
    JobManagerAction,
    JobManagerInput,
    JobManagerOutbox,
    JobsRead,
    KillSent,
    LastRead,
    MarksRead,
    MigrationJobs,
    MigrationPage,
    MigrationStored,
    NamedRead,
    NamedStored,
    OtherCall,
    QueuesRead,
    QueuesStored,
    Refusal,
    RowsRead,
    RunRead,
    RunSized,
    RunStored,
    SetAside,
    ValuesCopied,
    ValuesRead,
)
from flux_trio.cores.job_manager.execution.kill import Kills
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.hooks.arrivals import Arrivals
from flux_trio.cores.job_manager.hooks.carrier import Acting, Carrier
from flux_trio.cores.job_manager.hooks.entering import Entering
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.introduction import Introduction
from flux_trio.cores.job_manager.hooks.operations import Operations
from flux_trio.cores.job_manager.hooks.waiting import BypassStored, LifetimeProposed, UpdateProposed
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob, is_over
from flux_trio.cores.job_manager.jobs.journal import Journal
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.lifetime import Lifetime
from flux_trio.cores.job_manager.jobs.lost_found import LostAndFound
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.purge import Purge
from flux_trio.cores.job_manager.jobs.replay import Replay
from flux_trio.cores.job_manager.jobs.rest import Rest
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.methods import QueueMethods
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.job_manager.queues.waits import Waits
from flux_trio.cores.job_manager.requests.control import Control
from flux_trio.cores.job_manager.requests.entrance import Entrance, UserFound
from flux_trio.cores.job_manager.requests.history import History
from flux_trio.cores.job_manager.requests.memo import Memos
from flux_trio.cores.job_manager.requests.submission import Comer, Submission, submitted_in
from flux_trio.cores.job_manager.requests.updates import Updates
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.cores.job_manager.requests.waitable import Waitable
from flux_trio.cores.job_manager.scheduler.bypass import Bypass
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.kvs_calls import value_in
from flux_trio.cores.methods import Methods
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.sharing import Backlog
from flux_trio.cores.state import CorePart
from flux_trio.cores.turns import ClockStepped, TimerFired
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Level,
    Request,
    Response,
    respond_error,
    topics,
)
from flux_trio.protocols import (
    DESTROY,
    INACTIVE_ADD,
    INACTIVE_REMOVE,
    Annotate,
    HookAnswered,
    HookPostponed,
    JobEvent,
    JobState,
    JobView,
    LinkEvent,
    PluginInterests,
    PluginsChanged,
    PostEvent,
    Reprioritize,
    SetPriority,
)

_ABOUT_QUEUES: Final = (topics.JOB_QUEUE_LIST, topics.JOB_QUEUE_STATUS)
"""Requests by which people ask why nothing goes on."""


class JobManagerCore(CorePart):
    """The whole state of the job manager; `owner` is the instance owner's userid."""

    is_turning: bool  # a turn has begun, and waits for plugins that answer at once
    _resumed: bool  # everything has been read back
    _backlog: Backlog[JobManagerInput]  # what came before that
    _inputs: deque[JobManagerInput]  # of this turn, not taken in
    _changed: deque[ActiveJob]  # jobs whose due action is looked at in this turn

    def __init__(self, owner: int, config: Config | None = None) -> None:
        self._outbox: JobManagerOutbox = Outbox()
        config = config or Config()
        self._ledger = Ledger(self._outbox, owner, config.edition_value)
        self._hooks = Hooks(self._ledger)
        self._queues = Queues(config)
        self._entrance: Entrance[Comer] = Entrance(self._queues)
        self._scheduler = SchedulerSide(self._ledger, self._queues)
        self._exec = ExecSide(self._ledger)
        self._journal = Journal(self._ledger)
        self._sweeps = Sweeps(self._ledger)
        self._waits = Waits(self._ledger, self._queues)
        self._rest = Rest(self._ledger, self._scheduler, self._exec)
        self._history = History(self._ledger)
        self._purge = Purge(self._ledger, self._history.purged, self._forgotten)
        self._hindrances = Hindrances(self._ledger)
        self._queue_methods = QueueMethods(
            self._ledger,
            self._hooks,
            self._queues,
            self._scheduler,
            self._exec,
            self._silences,
            self._purge,
            self._hindrances,
        )
        self._limits = UserLimits(self._ledger, self._queues)
        self._control = Control(self._ledger, self._scheduler, self._exec, self._limits)
        self._memos = Memos(self._ledger, self._limits)
        self._kills = Kills(self._ledger, self._exec)
        self._waitable = Waitable(self._ledger)
        self._lost_found = LostAndFound(self._ledger)
        self._replay = Replay(self._ledger, self._lost_found)
        self._introduce_plugins()
        self._resumed = False
        self.is_turning = False
        self._inputs = deque()
        self._changed = deque()
        self._backlog = Backlog()
        self._methods = self._make_methods()
        self._due: dict[JobState, Callable[[ActiveJob], None]] = {
            JobState.NEW: _nothing,
            JobState.DEPEND: self._due_in_depend,
            JobState.PRIORITY: _nothing,
            JobState.SCHED: self._due_in_sched,
            JobState.RUN: self._due_in_run,
            JobState.CLEANUP: self._due_in_cleanup,
            JobState.INACTIVE: self._due_in_inactive,
        }

    def get(self, jobid: int) -> JobView | None:
        """The job as it is now, for plugins (protocols.Jobs)."""
        job = self._ledger.get(jobid)
        return None if job is None else job.snapshot()

    def active(self) -> Iterable[JobView]:
        """All active jobs, the oldest first, for plugins (protocols.Jobs)."""
        return (job.snapshot() for job in self._ledger.active())

    def note_all(self, kind: str, notes: Sequence[dict[str, Any]]) -> bool:
        """Put records of hooks among the events of this turn; False when there is no turn."""
        if self.is_turning:
            self._ledger.note_all(kind, notes)
        return self.is_turning

    def start(self, now: float) -> list[JobManagerAction]:
        """Read back what an earlier life left."""
        self._outbox.now = now
        self._queue_methods.start()
        self._replay.start()
        self._ledger.end_turn()
        return self._outbox.take_actions()

    def turn(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """Fold in what came, do what is due, and commit or send.

        As long as `is_turning`, what is returned is for plugins alone. Each reply of theirs is to
        be an input, which leads to further questions, if any; with no input the turn goes on.
        `PluginInterests` come before all other inputs.
        """
        if inputs and isinstance(inputs[0], PluginInterests):
            self._hooks.interests.take(inputs[0])
            inputs = inputs[1:]
        if self.is_turning:
            for reply in inputs:
                assert isinstance(reply, HookAnswered | HookPostponed)
                self._hooks.take(reply)
            if inputs:
                return list(self._hooks.take_actions())
        else:
            self.is_turning = True
            self._outbox.now = now
            self._inputs.extend(inputs)
            self._sweeps.start_turn()
        while not self._hooks.is_asking:
            if not self._do_next():
                return list(self._hooks.take_actions()) or self._end_turn()
        return list(self._hooks.take_actions())

    def _do_next(self) -> bool:
        """Take in a message, or do what is due for a job; False when the turn is at its end."""
        if self._inputs:
            message = self._inputs.popleft()
            if isinstance(message, ClockStepped):
                self._clock_stepped(message.by)
            else:
                self._take(message)
        elif self._replay.done and self._queue_methods.restored and not self._resumed:
            self._resume()
        elif self._changed:
            job = self._changed.popleft()
            if not job.is_asked and not job.is_held:
                self._due[job.state](job)
        elif self._ledger.dirty:
            dirty, self._ledger.dirty = self._ledger.dirty, {}
            self._changed.extend(dirty.values())
        else:
            return self._sweeps.step()
        return True

    def _end_turn(self) -> list[JobManagerAction]:
        self._hooks.end_turn()
        self._scheduler.end_turn()
        self._waits.end_turn()
        self._journal.end_turn()
        self.is_turning = False
        self._ledger.end_turn()
        self._outbox.send_all(self._entrance.take_actions())
        self._sweeps.end_turn()
        if not self._sweeps.is_open and not self._entrance.is_asking:
            self._rest.end_turn()
        return self._outbox.take_actions()

    def _resume(self) -> None:
        """Everything has been read back: go on with what was active, then with who waited."""
        self._resumed = True
        self._purge.configure(self._queues.config.job_manager)
        self._ledger.leave_to_ingest(submitted_in(self._backlog))
        resumed, self._ledger.resumed = self._ledger.resumed, []
        for job in resumed:
            self._scheduler.resumed(job)
            self._exec.resumed(job)
            self._arrivals.resume(job)
        self._inputs.extend(self._backlog.take())

    # --- how it is put together

    def _introduce_plugins(self) -> None:
        """Whoever asks plugins, or does what they say."""
        ledger, hooks, scheduler = self._ledger, self._hooks, self._scheduler
        introduction = Introduction(ledger, hooks)
        orphans = Orphans(ledger)
        priorities = Priorities(ledger, hooks, scheduler, self._sweeps)
        bypass = Bypass(ledger, hooks, scheduler)
        self._entering = Entering(ledger, hooks, scheduler, priorities, bypass)
        self._operations = Operations(ledger, scheduler, priorities, orphans)
        self._submission = Submission(ledger, hooks, self._entrance, introduction, self._limits)
        self._arrivals = Arrivals(
            ledger,
            hooks,
            introduction,
            orphans,
            priorities,
            self._entering,
            self._submission,
            self._sweeps,
        )
        self._updates = Updates(ledger, hooks, scheduler, self._limits)
        self._lifetime = Lifetime(ledger, hooks, scheduler)
        acting = Acting(
            hooks=hooks,
            introduction=introduction,
            entering=self._entering,
            operations=self._operations,
            arrivals=self._arrivals,
            submission=self._submission,
            updates=self._updates,
            priorities=priorities,
            bypass=bypass,
            orphans=orphans,
            lifetime=self._lifetime,
            queue_methods=self._queue_methods,
        )
        self._carrier = hooks.carrier = self._sweeps.sweeper = Carrier(acting)

    def _make_methods(self) -> Methods:
        return Methods(
            for_owner={
                topics.JOB_SUBMIT: self._submission.submit,
                topics.JOB_SUBMIT_ROOM: self._submission.room,
                topics.config_reload_of(topics.JOB_MANAGER): self._queue_methods.configure,
                topics.JOB_QUEUE_ENABLE: self._queue_methods.enable,
                topics.JOB_QUEUE_START: self._queue_methods.start_or_stop,
                topics.JOB_HINDRANCE: self._hindrance,
                topics.JOB_GETINFO: self._control.getinfo,
                topics.JOB_JOURNAL: self._journal.follow,
                topics.SCHED_HELLO: self._scheduler.hello,
                topics.SCHED_READY: self._scheduler.ready,
                topics.EXEC_HELLO: self._exec.hello,
                topics.JOB_WAIT: self._waitable.wait,
                topics.JOB_PURGE: self._purge.purge,
                topics.JOB_PURGE_ID: self._purge.purge_id,
            },
            for_all={
                topics.JOB_RAISE: self._control.raise_one,
                topics.JOB_RAISEALL: self._control.raise_all,
                topics.JOB_URGENCY: self._control.urgency,
                topics.JOB_UPDATE: self._updates.update,
                topics.JOB_MEMO: self._memos.memo,
                topics.JOB_KILL: self._kills.kill,
                topics.JOB_KILLALL: self._kills.kill_all,
                topics.JOB_HISTORY: self._history.get,
                topics.JOB_QUEUE_LIST: self._queue_methods.names,
                topics.JOB_QUEUE_STATUS: self._queue_methods.status,
                topics.JOB_RESOURCE_STATUS: self._scheduler.resource_status,
                topics.JOB_DRAIN: self._waits.drain,
                topics.JOB_IDLE: self._waits.idle,
                topics.JOB_MANAGER_DISCONNECT: self._disconnect,
            },
            stats=(topics.JOB_STATS, self._control.stats),
        )

    # --- what came in

    def _take(self, message: JobManagerInput) -> None:
        if isinstance(message, Response) and message.matchtag:
            self._take_reply(message)
            return
        if isinstance(message, PluginsChanged) and not self._resumed:
            message = self._arrivals.known_already(message)
        if not self._resumed:
            self._take_early(message)
        elif isinstance(message, Request):
            self._ledger.send(self._methods.call(message))
        elif isinstance(message, Response):
            self._take_answer(message)
        elif isinstance(message, Event):
            self._take_event(message)
        elif isinstance(message, HookAnswered):
            self._hooks.take(message)
        elif isinstance(message, (PostEvent, SetPriority, Annotate, Reprioritize)):
            self._hooks.operate_when_free(message)
        elif isinstance(message, PluginsChanged):
            self._arrivals.plugins_changed(message)
        elif isinstance(message, UserFound):
            self._submission.found(message)
        elif isinstance(message, TimerFired):
            self._fired(message.key)

    def _fired(self, key: Hashable) -> None:
        match key:
            case "purge":
                self._outbox.fired(key)
                self._purge.look()
            case "sweep":
                self._outbox.fired(key)

    def _take_early(self, message: JobManagerInput) -> None:
        """All waits until the state has been read, but who asks why, and what tells it."""
        if not isinstance(message, Request):
            self._backlog.put(message)
        elif message.topic == topics.JOB_HINDRANCE:
            self._ledger.answer_at_once(self._methods.call(message))
            early = self._backlog.take_about(_ABOUT_QUEUES) if self._hindrances.texts else []
            for request in early:
                self._take_early(request)
        elif message.topic in _ABOUT_QUEUES and self._hindrances.texts:
            text = f"the job manager is reading its state: {'; '.join(self._hindrances.texts)}"
            self._ledger.answer_at_once(respond_error(message, Errno.EAGAIN, text))
        else:
            self._ledger.answer_at_once(self._backlog.put(message))

    def _take_event(self, event: Event) -> None:
        if event.topic == topics.KVS_DAMAGED_EVENT:
            self._lost_found.event(event)
        else:
            self._lifetime.event(event)

    def _take_answer(self, response: Response) -> None:
        """The answers with matchtag 0: who is asked tells what they answer."""
        if response.topic == topics.SCHED_ALLOC:
            self._scheduler.alloc_response(response)
        elif response.topic == topics.SCHED_FREE:
            self._scheduler.free_response(response)
        elif response.topic == f"{self._exec.service}.{topics.START_METHOD}":
            self._exec.start_response(response)

    def _take_reply(self, response: Response) -> None:
        call = self._outbox.calls.match(response)
        match call:
            case None:
                pass  # it is late
            case EventsStored():
                self._ledger.stored(response)
            case GrantsRead():
                self._scheduler.grants.read(call, response)
            case InventoryRead():
                self._scheduler.grants.inventory_read(response)
            case InventoryReadAgain():
                self._scheduler.grants.inventory_read_again(call, response)
            case ExpirationTold(jobid):
                self._scheduler.expiration_told(jobid, response)
            case UpdateProposed() | LifetimeProposed():
                self._carrier.proposed(call, response)
            case BypassStored():
                self._carrier.bypass_stored(call, response)
            case _:
                self._take_other_reply(call, response)

    def _take_other_reply(self, call: OtherCall, response: Response) -> None:
        match call:
            case MarksRead() | LastRead() | ActiveRead() | JobsRead() | EndedCount():
                self._replay.take(call, response)
            case MigrationPage() | MigrationJobs() | MigrationStored():
                self._replay.take(call, response)
            case RunRead() | RunSized() | RunStored() | NamedRead() | NamedStored():
                self._purge.take(call, response)
            case ValuesRead() | ValuesCopied() | RowsRead() | SetAside():
                self._lost_found.take(call, response)
            case QueuesRead():
                self._queue_methods.found(response)
            case QueuesStored(request):
                self._queue_methods.stored(request, response)
            case HistoryRead():
                self._history.take_page(response)
            case KillSent(request):
                self._kills.answered(request, response)
            case Refusal(request, absent):
                is_inactive = _is_over(response)
                self._ledger.send(absent.refusal(request, is_inactive=is_inactive))
            case _:
                assert_never(call)

    def _disconnect(self, request: Request) -> None:
        self._journal.forget(request.sender)
        self._waits.forget(request.sender)
        self._waitable.forget(request.sender)
        self._history.forget(request.sender)
        self._purge.forget(request.sender)
        self._ledger.forget(request.sender)
        self._hindrances.forget(request.sender)
        if request.sender == self._scheduler.sender:
            self._scheduler.lost("scheduler disconnected", LinkEvent.LOST)
        if request.sender == self._exec.sender:
            self._exec.lost("disconnected", Level.INFO)

    def _clock_stepped(self, by: float) -> None:
        self._outbox.clock_stepped(by)
        for _, silence in self._silences():
            silence.clock_stepped(by)
        for job in self._ledger.running.values():
            job.stepped += by

    def _silences(self) -> list[tuple[str, Silence]]:
        """Those who may owe an answer, by the names of their peers."""
        return [
            (self._scheduler.sender, self._scheduler.silence),
            (self._exec.sender, self._exec.silence),
        ]

    def _hindrance(self, request: Request) -> None:
        self._hindrances.tell(request)
        for sender, silence in self._silences():
            if request.sender in (sender, topics.KVS):
                silence.excused(self._ledger.now)

    # --- what is due, by state

    def _due_in_depend(self, job: ActiveJob) -> None:
        if not job.dependencies:
            self._ledger.log(job, JobEvent.DEPEND)

    def _due_in_sched(self, job: ActiveJob) -> None:
        self._scheduler.consider(job)

    def _due_in_run(self, job: ActiveJob) -> None:
        self._exec.consider(job)

    def _due_in_cleanup(self, job: ActiveJob) -> None:
        if not job.has_resources:
            self._scheduler.withdraw(job)
            if not job.epilogs:
                self._ledger.log(job, JobEvent.CLEAN)
        elif self._exec.is_done(job) and not job.epilogs and not job.prologs:
            if job.bypassed:
                self._ledger.log(job, JobEvent.FREE)
            else:
                self._scheduler.free(job)

    def _due_in_inactive(self, job: ActiveJob) -> None:
        if not job.introduced:
            return
        job.introduced = False  # plugins hear no more of it
        self._hooks.tell(INACTIVE_ADD, job)
        self._hooks.tell(DESTROY, job)
        if (oldest := self._ledger.forget_oldest()) is not None:
            self._forgotten(oldest)

    def _forgotten(self, job: ActiveJob) -> None:
        self._hooks.tell(INACTIVE_REMOVE, job)


def _is_over(response: Response) -> bool:
    """Return whether the eventlog that `response` has is that of a finished job."""
    try:
        return is_over(value_in(response))
    except FluxError:
        return False


def _nothing(_job: ActiveJob) -> None:
    """A plugin's answer is due, and comes by itself."""
