"""The parts of the job manager, and how they are wired to each other. Pure."""

from __future__ import annotations

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import (
    JobManagerOutbox,
)
from flux_trio.cores.job_manager.due import Due
from flux_trio.cores.job_manager.execution.kill import Kills
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.hooks.carrier import Acting, Carrier
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.operations import Operations
from flux_trio.cores.job_manager.hooks.plugin_replays import PluginReplays
from flux_trio.cores.job_manager.hooks.presenting import JobPresentation
from flux_trio.cores.job_manager.hooks.state_answers import StateAnswers
from flux_trio.cores.job_manager.jobs.journal import Journal
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.lifetime import Lifetime
from flux_trio.cores.job_manager.jobs.lost_found import LostAndFound
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.purge import Purge
from flux_trio.cores.job_manager.jobs.quiescence import Quiescence
from flux_trio.cores.job_manager.jobs.replay import Replay
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.queues.hindrances import Hindrances
from flux_trio.cores.job_manager.queues.methods import QueueMethods
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.job_manager.queues.silence import Silence
from flux_trio.cores.job_manager.queues.waits import Waits
from flux_trio.cores.job_manager.requests.admissions import Admissions
from flux_trio.cores.job_manager.requests.control import Control
from flux_trio.cores.job_manager.requests.explaining import Explaining
from flux_trio.cores.job_manager.requests.history import History
from flux_trio.cores.job_manager.requests.memo import Memos
from flux_trio.cores.job_manager.requests.submission import Candidate, Submission
from flux_trio.cores.job_manager.requests.updates import Updates
from flux_trio.cores.job_manager.requests.user_limits import UserLimits
from flux_trio.cores.job_manager.requests.waitable import Waitable
from flux_trio.cores.job_manager.scheduler.bypass import Bypass
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.cores.job_manager.scheduler.side import SchedulerSide
from flux_trio.cores.methods import Method, Methods
from flux_trio.cores.state import Part
from flux_trio.messages import (
    topics,
)


class Parts(Part):
    """All parts; they hold the job manager's state."""

    def __init__(self, outbox: JobManagerOutbox, owner: int, config: Config) -> None:
        self.ledger = Ledger(outbox, owner, config.edition_value)
        self.hooks = Hooks(self.ledger)
        self.queues = Queues(config)
        self.admissions: Admissions[Candidate] = Admissions(self.queues)
        self.scheduler = SchedulerSide(self.ledger, self.queues)
        self.exec = ExecSide(self.ledger)
        self.journal = Journal(self.ledger)
        self.sweeps = Sweeps(self.ledger)
        self.waits = Waits(self.ledger, self.queues)
        self.quiescence = Quiescence(self.ledger, self.scheduler, self.exec)
        self.history = History(self.ledger)
        self.due = Due(self.ledger, self.hooks, self.scheduler, self.exec)
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
        self.limits = UserLimits(self.ledger, self.queues)
        self.control = Control(self.ledger, self.scheduler, self.exec, self.limits)
        self.memos = Memos(self.ledger, self.limits)
        self.kills = Kills(self.ledger, self.exec)
        self.waitable = Waitable(self.ledger)
        self.lost_found = LostAndFound(self.ledger)
        self.replay = Replay(self.ledger, self.lost_found)
        self._introduce_plugins()

    def _introduce_plugins(self) -> None:
        """Build the parts that ask plugins, or carry out what plugins ask for."""
        ledger, hooks, scheduler = self.ledger, self.hooks, self.scheduler
        presentation = JobPresentation(ledger, hooks)
        orphans = Orphans(ledger)
        priorities = Priorities(ledger, hooks, scheduler, self.sweeps)
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
        acting = Acting(
            hooks=hooks,
            presentation=presentation,
            state_answers=self.state_answers,
            operations=self.operations,
            plugin_replays=self.plugin_replays,
            submission=self.submission,
            updates=self.updates,
            priorities=priorities,
            bypass=bypass,
            orphans=orphans,
            lifetime=self.lifetime,
            queue_methods=self.queue_methods,
        )
        self.carrier = hooks.carrier = self.sweeps.sweeper = Carrier(acting)

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
                topics.JOB_GETINFO: self.control.getinfo,
                topics.JOB_JOURNAL: self.journal.follow,
                topics.SCHED_HELLO: self.scheduler.hello,
                topics.SCHED_READY: self.scheduler.ready,
                topics.EXEC_HELLO: self.exec.hello,
                topics.EXEC_SERVICE: self.exec.who,
                topics.JOB_WAIT: self.waitable.wait,
                topics.JOB_PURGE: self.purge.purge,
                topics.JOB_PURGE_ID: self.purge.purge_id,
            },
            for_all={
                topics.JOB_RAISE: self.control.raise_one,
                topics.JOB_RAISEALL: self.control.raise_all,
                topics.JOB_URGENCY: self.control.urgency,
                topics.JOB_UPDATE: self.updates.update,
                topics.JOB_MEMO: self.memos.memo,
                topics.JOB_KILL: self.kills.kill,
                topics.JOB_KILLALL: self.kills.kill_all,
                topics.JOB_HISTORY: self.history.get,
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
