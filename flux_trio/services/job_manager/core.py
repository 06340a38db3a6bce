"""The job manager: moves every job through the states of RFC 21.

A turn folds what came in into jobs (`ledger.log`), then looks at each job that changed and does
what is due for its state, until nothing is; what it tells others waits for the commit of the turn's
events. Each conversation has a file of its own; this one holds the states together.

Left out: dependencies, limits and everything else that plugins decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_trio.config import Config
from flux_trio.messages import (
    Level,
    Request,
    Response,
    topics,
)
from flux_trio.protocols import (
    HookAnswer,
    HookAnswered,
    JobEvent,
    JobState,
    LinkEvent,
    PostEvent,
    TopicsChanged,
)
from flux_trio.services.job_manager.control import Control
from flux_trio.services.job_manager.entrance import Entrance, UserFound
from flux_trio.services.job_manager.exec_side import ExecSide
from flux_trio.services.job_manager.history import History
from flux_trio.services.job_manager.hooks import Hooks, effective_priority
from flux_trio.services.job_manager.journal import Journal
from flux_trio.services.job_manager.kill import Kills
from flux_trio.services.job_manager.ledger import ActiveJob, Ledger
from flux_trio.services.job_manager.memo import Memos
from flux_trio.services.job_manager.queue_methods import QueueMethods
from flux_trio.services.job_manager.queues import Queues
from flux_trio.services.job_manager.replay import Replay
from flux_trio.services.job_manager.scheduler_side import SchedulerSide
from flux_trio.services.job_manager.silence import Silence
from flux_trio.services.job_manager.submission import Submission
from flux_trio.services.job_manager.updates import Updates
from flux_trio.services.job_manager.waitable import Waitable
from flux_trio.services.job_manager.waits import Waits
from flux_trio.services.methods import Methods

Action = Any


class JobManagerCore:
    """The whole state of the job manager; `owner` is the instance owner's userid."""

    def __init__(self, owner: int, config: Config | None = None) -> None:
        self._ledger = Ledger(owner)
        self._hooks = Hooks(self._ledger)
        self._queues = Queues(config or Config())
        self._entrance = Entrance(self._queues)
        self._scheduler = SchedulerSide(self._ledger, self._queues)
        self._exec = ExecSide(self._ledger)
        self._journal = Journal(self._ledger)
        self._submission = Submission(self._ledger, self._hooks, self._entrance)
        self._waits = Waits(self._ledger, self._queues)
        self._queue_methods = QueueMethods(
            self._ledger, self._queues, self._scheduler, self._silences
        )
        self._control = Control(self._ledger, self._scheduler, self._exec)
        self._updates = Updates(self._ledger, self._scheduler)
        self._memos = Memos(self._ledger)
        self._kills = Kills(self._ledger, self._exec)
        self._waitable = Waitable(self._ledger)
        self._history = History(self._ledger)
        self._replay = Replay(self._ledger)
        self._resumed = False
        self._waiting: list[Any] = []  # what came before that
        self._methods = Methods(
            for_owner={
                topics.JOB_SUBMIT: self._submission.submit,
                topics.JOB_QUEUE_ENABLE: self._queue_methods.enable,
                topics.JOB_QUEUE_START: self._queue_methods.start_or_stop,
                topics.JOB_GETINFO: self._control.getinfo,
                topics.JOB_JOURNAL: self._journal.follow,
                topics.SCHED_HELLO: self._scheduler.hello,
                topics.SCHED_READY: self._scheduler.ready,
                topics.EXEC_HELLO: self._exec.hello,
                topics.JOB_WAIT: self._waitable.wait,
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
                topics.JOB_DRAIN: self._waits.drain,
                topics.JOB_IDLE: self._waits.idle,
                topics.JOB_STATS: self._control.stats,
                topics.JOB_MANAGER_DISCONNECT: self._disconnect,
            },
        )
        self._due: dict[JobState, Callable[[ActiveJob], None]] = {
            JobState.NEW: lambda _job: None,
            JobState.DEPEND: self._due_in_depend,
            JobState.PRIORITY: self._due_in_priority,
            JobState.SCHED: self._due_in_sched,
            JobState.RUN: self._due_in_run,
            JobState.CLEANUP: self._due_in_cleanup,
            JobState.INACTIVE: self._due_in_inactive,
        }

    def start(self, now: float) -> list[Action]:
        """Read back what an earlier life left."""
        self._ledger.now = now
        return self._replay.start() + self._queue_methods.start()

    def turn(self, now: float, inputs: list[Any]) -> list[Action]:
        """Fold in what came, do what is due, and commit or send."""
        ledger = self._ledger
        ledger.now = now
        actions: list[Action] = []
        for message in inputs:
            actions += self._take(message)
        if self._replay.done and self._queue_methods.restored and not self._resumed:
            actions += self._resume()
        while ledger.dirty:
            dirty, ledger.dirty = ledger.dirty, {}
            for job in dirty.values():
                if not job.hook:
                    self._due[job.state](job)
        self._scheduler.end_turn()
        self._waits.end_turn()
        self._journal.end_turn()
        asked = self._hooks.take_actions() + self._entrance.take_actions()
        return actions + ledger.end_turn() + asked

    def _resume(self) -> list[Action]:
        """Everything has been read back: go on with what was active, then with who waited."""
        self._resumed = True
        for job in self._ledger.resumed:
            self._ledger.dirty[job.id] = job
            if job.state == JobState.NEW:
                self._submission.revalidate(job)
            elif job.state == JobState.SCHED:
                self._ledger.log(job, JobEvent.FLUX_RESTART)
        waiting, self._waiting, self._ledger.resumed = self._waiting, [], []
        return [action for message in waiting for action in self._take(message)]

    # --- what came in

    def _take(self, message: Any) -> list[Action]:
        if isinstance(message, Response) and message.matchtag:
            return self._take_reply(message)
        if isinstance(message, TopicsChanged):
            self._hooks.topics = message.topics
        elif not self._resumed:
            self._waiting.append(message)
        elif isinstance(message, Request):
            self._ledger.send(self._methods.call(message))
        elif isinstance(message, Response):
            self._take_answer(message)
        elif isinstance(message, HookAnswered):
            self._hooks.answered(message)
        elif isinstance(message, PostEvent):
            self._hooks.post(message)
        elif isinstance(message, UserFound):
            self._entrance.found(message)
        return []

    def _take_answer(self, response: Response) -> None:
        """The answers with matchtag 0: who is asked tells what they answer."""
        if response.topic == topics.SCHED_ALLOC:
            self._scheduler.alloc_response(response)
        elif response.topic == topics.SCHED_FREE:
            self._scheduler.free_response(response)
        elif response.topic == f"{self._exec.service}.{topics.START_METHOD}":
            self._exec.start_response(response)

    def _take_reply(self, response: Response) -> list[Action]:
        reply = self._ledger.calls.match(response)
        return [] if reply is None else reply(response)

    def _disconnect(self, request: Request) -> None:
        self._journal.forget(request.sender)
        self._waits.forget(request.sender)
        self._waitable.forget(request.sender)
        if request.sender == self._scheduler.sender:
            self._scheduler.lost("scheduler disconnected", LinkEvent.LOST)
        if request.sender == self._exec.sender:
            self._exec.lost("disconnected", Level.INFO)

    def _silences(self) -> list[Silence]:
        return [self._scheduler.silence, self._exec.silence]

    # --- what is due, by state

    def _due_in_depend(self, job: ActiveJob) -> None:
        if not self._hooks.ask_state(job, _go_on) and not job.dependencies:
            self._ledger.log(job, JobEvent.DEPEND)

    def _due_in_priority(self, job: ActiveJob) -> None:
        if job.asked != job.state:
            job.waiting_for = None
        if not self._hooks.ask_state(job, self._prioritized) and job.waiting_for is None:
            self._prioritized(job, HookAnswer())

    def _prioritized(self, job: ActiveJob, answer: HookAnswer) -> None:
        if job.state != JobState.PRIORITY or job.asked is None:
            return  # an event that waited for the answer moved the job on, or changed the question
        priority = effective_priority(job, answer)
        job.waiting_for = answer.error or ("priority unavailable" if priority is None else None)
        if priority is not None and answer.error is None:
            self._ledger.log(job, JobEvent.PRIORITY, {"priority": priority})

    def _due_in_sched(self, job: ActiveJob) -> None:
        if not self._hooks.ask_state(job, _go_on):
            self._scheduler.consider(job)

    def _due_in_run(self, job: ActiveJob) -> None:
        if not self._hooks.ask_state(job, _go_on):
            self._exec.consider(job)

    def _due_in_cleanup(self, job: ActiveJob) -> None:
        if self._hooks.ask_state(job, _go_on):
            return
        if not job.has_resources:
            self._scheduler.withdraw(job)
            if not job.epilogs:
                self._ledger.log(job, JobEvent.CLEAN)
        elif self._exec.is_done(job) and not job.epilogs and not job.prologs:
            self._scheduler.free(job)

    def _due_in_inactive(self, job: ActiveJob) -> None:
        if not self._hooks.ask_state(job, _go_on):
            self._ledger.retire(job)


def _go_on(_job: ActiveJob, _answer: HookAnswer) -> None:
    """The state's action follows because an answered job is looked at again."""
