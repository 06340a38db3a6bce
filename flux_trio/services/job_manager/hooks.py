"""The job machine's questions to plugins, and what it does with their answers.

A job whose hook is being asked does not move; others do. Answers that nobody waits for any more
are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_trio.formats import Event, FormatError, apply_update
from flux_trio.messages import Level
from flux_trio.protocols import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    STATE_TOPICS,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    AskHook,
    CancelHook,
    HookAnswer,
    HookAnswered,
    InvalidTransition,
    JobEvent,
    JobState,
    PostEvent,
    check_context,
)
from flux_trio.services.job_manager.ledger import ActiveJob, Ledger
from flux_trio.services.turns import Log

Answered = Callable[[ActiveJob, HookAnswer], None]


class Hooks:
    """Open questions by ticket."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[int, tuple[ActiveJob, Answered]] = {}
        self._ticket = 0
        self.actions: list[AskHook | CancelHook] = []  # of this turn
        self.topics: frozenset[str] = frozenset()
        ledger.abandon_hook = self.abandon

    def ask(self, job: ActiveJob, topic: str, then: Answered) -> bool:
        """Ask `topic` of `job`; `then` gets the answer. False when no plugin handles it."""
        if topic not in self.topics:
            return False
        self._ticket += 1
        job.hook = self._ticket
        self._open[self._ticket] = (job, then)
        self.actions.append(AskHook(self._ticket, topic, job))
        return True

    def ask_state(self, job: ActiveJob, then: Answered) -> bool:
        """Ask the hook of the state `job` has come into, once; whether an answer is to come."""
        if job.asked == job.state:
            return False
        job.asked = job.state
        return self.ask(job, STATE_TOPICS[job.state], then)

    def answered(self, message: HookAnswered) -> None:
        """Log what the plugins posted, then what waited, and let the job go on."""
        job, then = self._open.pop(message.ticket, (None, None))
        if job is None or then is None:
            return  # the hook was abandoned
        job.hook = 0
        answer = message.answer
        if job.state != JobState.NEW or not (answer.reject or answer.error):
            # a job that is refused never was, and has no events
            for name, context in answer.posts:
                self._log(job, name, context)
            self._flush(job)
        self._ledger.dirty[job.id] = job
        then(job, answer)

    def abandon(self, job: ActiveJob) -> None:
        """Nobody waits for the answer any more: a fatal exception ends the hook."""
        del self._open[job.hook]
        self.actions.append(CancelHook(job.hook))
        job.hook = 0
        self._flush(job)

    def post(self, message: PostEvent) -> None:
        """A plugin's event outside a hook; one that has no place is refused, and said so."""
        job = self._ledger.jobs.get(message.id)
        try:
            if job is None:
                raise FormatError("the id of an active job", message.id, "id")
            check_context(Event(self._ledger.now, message.name, message.context))
            _check_place(job, message)
            self._ledger.log(job, message.name, message.context)
        except (FormatError, InvalidTransition) as error:
            text = f"plugin {message.plugin}: cannot post {message.name} to {message.id}: {error}"
            self._ledger.send(Log(Level.ERR, text))

    def take_actions(self) -> list[AskHook | CancelHook]:
        """The questions of this turn."""
        actions, self.actions = self.actions, []
        return actions

    def _flush(self, job: ActiveJob) -> None:
        deferred, job.deferred = job.deferred, None
        for name, context in deferred or ():
            self._log(job, name, context)

    def _log(self, job: ActiveJob, name: str, context: dict[str, Any] | None) -> None:
        """Log what a plugin said or what waited for it, unless it has no place any more."""
        try:
            self._ledger.log_now(job, name, context)
        except InvalidTransition as error:
            self._ledger.send(Log(Level.ERR, f"cannot post {name} to {job.id}: {error}"))


def _check_place(job: ActiveJob, message: PostEvent) -> None:
    """What an event means for this job. Raises FormatError."""
    if message.name == JobEvent.DEPENDENCY_REMOVE:
        description = message.context["description"]
        if description not in (job.dependencies or ()):
            raise FormatError("a dependency that was added", description, "description")
    elif message.name == JobEvent.JOBSPEC_UPDATE:
        for path, value in message.context.items():
            apply_update(job.current_jobspec(), path, value)


def effective_priority(job: ActiveJob, answer: HookAnswer) -> int | None:
    """The priority to log, or None to wait in PRIORITY.

    Urgency 0 and 31 override any plugin; a value out of range was refused by the host.
    """
    if job.urgency == URGENCY_HOLD:
        return PRIORITY_MIN
    if job.urgency == URGENCY_EXPEDITE:
        return PRIORITY_MAX
    return answer.priority if isinstance(answer.priority, int) else None
