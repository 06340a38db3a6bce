"""The parts of the job manager, and how they are wired to each other. Pure.

Each part gets the parts that it calls when it is made. Two kinds of calls run the other way, from a
part that is made early to one that needs it: a logged event leads to questions to plugins, and an
answer or a sweep to whatever waited for it. `Continuations` has these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import JobManagerOutbox
from flux_trio.cores.job_manager.execution.kill import Kills
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.hooks.hooks import ABANDONED, Hooks
from flux_trio.cores.job_manager.hooks.presenting import JobPresentation
from flux_trio.cores.job_manager.job_actions import JobActions
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.events_journal import EventsJournal
from flux_trio.cores.job_manager.jobs.journal import Journal
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.lost_found import LostAndFound
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.purge import Purge
from flux_trio.cores.job_manager.jobs.replay import Replay
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.plugins.operations import Operations
from flux_trio.cores.job_manager.plugins.plugin_replays import PluginReplays
from flux_trio.cores.job_manager.plugins.state_answers import StateAnswers
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.job_manager.queues.waits import Waits
from flux_trio.cores.job_manager.requests.admissions import Admissions
from flux_trio.cores.job_manager.requests.control import Control, Memos
from flux_trio.cores.job_manager.requests.explaining import Explaining
from flux_trio.cores.job_manager.requests.history import History
from flux_trio.cores.job_manager.requests.lifetime import Lifetime
from flux_trio.cores.job_manager.requests.looking import Looking
from flux_trio.cores.job_manager.requests.queue_methods import QueueMethods
from flux_trio.cores.job_manager.requests.quiescence import Quiescence
from flux_trio.cores.job_manager.requests.submission import Candidate, Submission
from flux_trio.cores.job_manager.requests.updates import Updates
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.cores.job_manager.requests.waitable import Waitable
from flux_trio.cores.job_manager.scheduler.bypass import Bypass
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.job_manager.waiting import (
    Admit,
    AllocateBypass,
    Answered,
    AskPriorities,
    AskPriority,
    AskState,
    AskUpdate,
    Change,
    ConfigurationThen,
    Configured,
    Deferred,
    FinishOrphans,
    GoOn,
    KeyAnswered,
    LifetimeProposed,
    LogEvent,
    Operate,
    Present,
    PresentAll,
    PriorityGot,
    Proposal,
    ProposeExpiration,
    Purpose,
    Readmit,
    Resume,
    StateAnswered,
    StepAnswered,
    Sweep,
    Then,
    UpdateAnswered,
    UpdateProposed,
    UpdateValidated,
)
from flux_trio.cores.methods import Method, Methods
from flux_trio.cores.state import Part
from flux_trio.formats import Event
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import HookAnswer, Operation


class Parts(Part):
    """All parts; they hold the job manager's state."""

    def __init__(self, outbox: JobManagerOutbox, owner: int, config: Config) -> None:
        self.continuations = continuations = Continuations(self)
        self.ledger = Ledger(outbox, owner, config.edition_value, continuations)
        self.hooks = Hooks(self.ledger, continuations)
        self.queues = Queues(config)
        self.admissions: Admissions[Candidate] = Admissions(self.queues)
        self.scheduler = SchedulerSide(self.ledger, self.queues)
        self.exec = ExecSide(self.ledger)
        self.journal = Journal(self.ledger)
        self.events_journal = EventsJournal(self.ledger)
        self.sweeps = Sweeps(self.ledger, continuations)
        self.waits = Waits(self.ledger, self.queues)
        self.quiescence = Quiescence(self.ledger, self.scheduler, self.exec)
        self.history = History(self.ledger)
        self.due = JobActions(self.ledger, self.hooks, self.scheduler, self.exec)
        self.purge = Purge(self.ledger, self.history.purged, self.due.forgotten)
        self.hindrances = Hindrances(self.ledger)
        self.queue_methods = QueueMethods(
            self.ledger,
            self.hooks,
            self.queues,
            self.scheduler,
            self.exec,
            self.silences,
            self.purge,
            self.hindrances,
        )
        self.explaining = Explaining(
            self.ledger, self.queues, self.scheduler, self.exec, self.hindrances
        )
        self.limits = UserLimits(self.ledger, self.queues, self.hindrances)
        self.control = Control(self.ledger, self.scheduler, self.exec, self.limits)
        self.memos = Memos(self.ledger, self.limits)
        self.kills = Kills(self.ledger, self.exec)
        self.waitable = Waitable(self.ledger)
        self.looking = Looking(self.ledger, self.waitable)
        self.lost_found = LostAndFound(self.ledger)
        self.replay = Replay(self.ledger, self.lost_found)
        self._introduce_plugins()

    def _introduce_plugins(self) -> None:
        """Build the parts that ask plugins, or carry out what plugins ask for."""
        ledger, hooks, scheduler = self.ledger, self.hooks, self.scheduler
        self.presentation = presentation = JobPresentation(ledger, hooks)
        self.orphans = orphans = Orphans(ledger)
        self.priorities = priorities = Priorities(ledger, hooks, scheduler, self.sweeps)
        self.bypass = bypass = Bypass(ledger, hooks, scheduler)
        self.state_answers = StateAnswers(ledger, hooks, scheduler, priorities, bypass)
        self.operations = Operations(ledger, hooks, scheduler, priorities, orphans)
        self.submission = Submission(ledger, hooks, self.admissions, presentation, self.limits)
        self.plugin_replays = PluginReplays(
            ledger,
            hooks,
            presentation,
            orphans,
            priorities,
            self.state_answers,
            self.submission,
            self.sweeps,
        )
        self.updates = Updates(ledger, hooks, scheduler, self.limits)
        self.lifetime = Lifetime(ledger, hooks, scheduler)

    def silences(self) -> list[tuple[str, Silence]]:
        """Return the silence of each service that may owe an answer, by the name of its peer."""
        return [
            (self.scheduler.sender, self.scheduler.silence),
            (self.exec.sender, self.exec.silence),
        ]

    def methods(self, hindrance: Method, disconnect: Method) -> Methods:
        """Return the methods of the service; the core itself takes `hindrance` and `disconnect`."""
        return Methods(
            for_owner={
                topics.JOB_SUBMIT: self.submission.submit,
                topics.JOB_SUBMIT_ROOM: self.submission.room,
                topics.config_reload_of(topics.JOB_MANAGER): self.queue_methods.configure,
                topics.JOB_QUEUE_ENABLE: self.queue_methods.enable,
                topics.JOB_QUEUE_START: self.queue_methods.start_or_stop,
                topics.JOB_HINDRANCE: hindrance,
                topics.JOB_STORED: self.limits.stored,
                topics.JOB_STORE_ROOM: self.limits.store_room,
                topics.JOB_GETINFO: self.control.getinfo,
                topics.JOB_JOURNAL: self.journal.follow,
                topics.JOB_EVENTS: self.events_journal.follow,
                topics.JOB_EVENTS_CANCEL: self.events_journal.cancel,
                topics.SCHED_HELLO: self.scheduler.hello,
                topics.SCHED_READY: self.scheduler.ready,
                topics.JOB_HOUSEKEEPING_KILL: self.scheduler.housekeeping.kill,
                topics.EXEC_HELLO: self.exec.hello,
                topics.EXEC_SERVICE: self.exec.who,
                topics.JOB_WAIT: self.waitable.wait,
                topics.JOB_POST_EVENT: self.memos.post_event,
                topics.JOB_MANAGER_LIST: self.looking.list_jobs,
                topics.JOB_PURGE: self.purge.purge,
                topics.JOB_PURGE_ID: self.purge.purge_id,
            },
            for_all={
                topics.JOB_RAISE: self.control.raise_one,
                topics.JOB_RAISEALL: self.control.raise_all,
                topics.JOB_URGENCY: self.control.urgency,
                topics.JOB_UPDATE: self.updates.update,
                topics.JOB_MEMO: self.memos.memo,
                topics.JOB_GETATTR: self.looking.getattr,
                topics.JOB_KILL: self.kills.kill,
                topics.JOB_KILLALL: self.kills.kill_all,
                topics.JOB_HISTORY: self.history.get,
                topics.JOB_ALLOC_QUERY: self.control.alloc_query,
                topics.JOB_QUEUE_LIST: self.queue_methods.names,
                topics.JOB_QUEUE_STATUS: self.queue_methods.status,
                topics.JOB_RESOURCE_STATUS: self.scheduler.resource_status,
                topics.JOB_DRAIN: self.waits.drain,
                topics.JOB_IDLE: self.waits.idle,
            },
            stats=(topics.JOB_STATS, self.control.stats),
            farewells={topics.JOB_MANAGER: disconnect},
            forget=self.ledger.forget,
        )


class Continuations:
    """Calls the part that a value of `waiting.py` is for, when what the job waits for has come.

    It has `parts` while these are still made, and uses them only in a turn. `Listener`, `Sweeper`
    and `Continuation`, of the parts that call it, say what each function is for.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # --- hooks

    def logged(self, job: ActiveJob, event: Event) -> None:
        self._parts.hooks.logged(job, event)

    def abandon(self, job: ActiveJob) -> None:
        self._parts.hooks.abandon(job)

    def operate(self, operation: Operation) -> None:
        self._parts.operations.do(operation)

    def entered(self, job: ActiveJob, answer: HookAnswer) -> None:
        self._parts.state_answers.answered(job, answer)

    def answered(self, job: ActiveJob, then: Then, answer: HookAnswer) -> None:
        parts = self._parts
        match then:
            case StateAnswered(question):
                if job.question == question and answer != ABANDONED:
                    parts.state_answers.answered(job, answer)
            case PriorityGot():
                parts.priorities.got(job, answer)
            case StepAnswered(chain):
                parts.presentation.answered(job, chain, answer)
            case UpdateAnswered(event):
                parts.hooks.update_answered(job, event)
            case KeyAnswered(updating):
                parts.updates.key_answered(job, updating, answer)
            case UpdateValidated(updating):
                parts.updates.validated(job, updating, answer)
            case _:
                assert_never(then)

    def do(self, job: ActiveJob, deferred: Deferred) -> None:
        parts = self._parts
        match deferred:
            case Answered(then, answer):
                self.answered(job, then, answer)
            case LogEvent():
                parts.hooks.log_deferred(job, deferred)
            case Operate(operation):
                parts.hooks.operate(job, operation)
            case AskState(previous):
                parts.hooks.ask_state(job, None, previous)
            case AskPriority():
                parts.priorities.ask(job)
            case Present():
                parts.presentation.present(job, deferred)
            case GoOn():
                parts.plugin_replays.go_on(job)
            case FinishOrphans():
                parts.orphans.finish(job)
            case AllocateBypass(commit, resources):
                parts.bypass.allocated(job, commit, resources)
            case _:
                self._change(job, deferred)

    def _change(self, job: ActiveJob, change: Change) -> None:
        """Continue with a change of the jobspec or of the expiration of `job`."""
        match change:
            case AskUpdate(updating):
                self._parts.updates.ask(job, updating)
            case UpdateProposed(updating, expiration):
                self._parts.updates.apply(job, updating, expiration)
            case ProposeExpiration(end):
                self._parts.lifetime.propose(job, end)
            case LifetimeProposed(_, expiration, end):
                self._parts.lifetime.apply(job, expiration, end)
            case _:
                assert_never(change)

    def introduced(self, job: ActiveJob, purpose: Purpose, refusal: str | None) -> None:
        parts = self._parts
        match purpose:
            case Admit(batch):
                parts.submission.decided(job, batch, refusal)
            case Readmit():
                parts.submission.decided_again(job, refusal)
            case Resume():
                parts.plugin_replays.resumed(job)
            case Present():
                parts.plugin_replays.presented(job, purpose)
            case _:
                assert_never(purpose)

    def configured(self, then: ConfigurationThen, answer: HookAnswer) -> None:
        if isinstance(then, Configured):
            self._parts.queue_methods.configured(then.request, then.config, answer)

    # --- sweeps

    def choose(self, sweep: Sweep) -> Iterable[ActiveJob]:
        match sweep:
            case PresentAll(arrival):
                return self._parts.plugin_replays.choose(arrival)
            case AskPriorities():
                return self._parts.priorities.choose()
            case _:
                assert_never(sweep)

    def is_quick(self, sweep: Sweep, job: ActiveJob) -> bool:
        return isinstance(sweep, AskPriorities) and self._parts.priorities.is_quick(job)

    def do_some(self, sweep: Sweep, jobs: list[ActiveJob]) -> None:
        match sweep:
            case PresentAll(arrival):
                for job in jobs:
                    self._parts.plugin_replays.present(job, arrival)
            case AskPriorities():
                self._parts.priorities.ask_some(jobs)
            case _:
                assert_never(sweep)

    def swept(self, sweep: Sweep) -> None:
        match sweep:
            case PresentAll(arrival):
                self._parts.plugin_replays.one_less(arrival)
            case AskPriorities():
                self._parts.priorities.asked_all()
            case _:
                assert_never(sweep)

    # --- calls

    def proposed(self, proposal: Proposal, response: Response) -> None:
        """Take the answer to sched.expiration. A scheduler that answers ENOSYS accepts."""
        accepted = response.errnum in (0, Errno.ENOSYS)
        self.decided(proposal, accepted=accepted)

    def decided(self, proposal: Proposal, *, accepted: bool) -> None:
        """Make the change that `proposal` is for if it is `accepted`, else refuse it."""
        match proposal:
            case UpdateProposed():
                self._parts.updates.expiration_answered(proposal, accepted=accepted)
            case LifetimeProposed():
                self._parts.lifetime.answered(proposal, accepted=accepted)
            case _:
                assert_never(proposal)
