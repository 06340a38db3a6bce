"""The job machine's questions to plugins, and the order in which a job goes on.

A job whose hook is being asked does not move; others do. What comes for it meanwhile waits in its
queue (`job.deferred`): first what the answer asks for, then what waited, oldest first. Each
question is answered once: one that a fatal exception ends, with `ABANDONED`.

After each event that is logged its subscribers are told, job.update is asked when the jobspec has
changed, and when the state has, the hook of the state that the job has come into; the state's own
action follows when that is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from flux_trio.config import Config
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger, ends_wait
from flux_trio.cores.turns import Log
from flux_trio.formats import Event, format_fluid
from flux_trio.messages import Level
from flux_trio.protocols import (
    CONF_UPDATE,
    EVENT_PREFIX,
    STATE_TOPICS,
    UPDATED,
    AskHook,
    HookAnswer,
    HookAnswered,
    InvalidTransition,
    JobEvent,
    JobState,
    JobView,
    Operation,
    Plugins,
    PostEvent,
    Reprioritize,
)

Answered = Callable[[HookAnswer], None]

ABANDONED: Final = HookAnswer(error="a fatal exception ended the wait for an answer")
NOTHING_SAID: Final = HookAnswer()

# In PRIORITY a job is asked about again when what its priority is found by has changed.
_ASK_AGAIN = frozenset({JobEvent.URGENCY, JobEvent.JOBSPEC_UPDATE})

# A job that plugins send back from SCHED so often in one turn is held: it would never end.
BACK_MAX: Final = 100


class Hooks:
    """Open questions by ticket.

    Put in by whoever makes it: `operate` does what a plugin wants done, `entered` takes the answer
    of a state's hook.
    """

    operate: Callable[[Operation], None]
    entered: Callable[[ActiveJob, HookAnswer], None]

    def __init__(self, ledger: Ledger, plugins: Plugins) -> None:
        self._ledger = ledger
        self._plugins = plugins
        self._open: dict[int, tuple[ActiveJob, Answered, bool]] = {}
        self._asides: dict[int, Answered] = {}  # questions about no job
        self._ticket = 0
        self._went_back: dict[int, int] = {}  # id → times it left SCHED for PRIORITY in this turn
        ledger.abandon_hook = self.abandon
        ledger.ask_hooks = self._logged

    # --- asking

    def handles(self, topic: str) -> bool:
        """Whether any plugin would be asked."""
        return self._plugins.handles(topic)

    def ask(
        self,
        job: ActiveJob,
        topic: str,
        then: Answered,
        args: Any = None,
        *,
        view: JobView | None = None,
        only: str | None = None,
    ) -> None:
        """Ask `topic` of a job that has no hook being asked; `then` gets the answer.

        `then` runs once what the plugins want done with the job is done. Plugins see `view` in
        place of the job.
        """
        if not self._plugins.handles(topic):
            then(NOTHING_SAID)
            return
        self._ticket += 1
        self._put(job, AskHook(self._ticket, topic, view or job, args, only), then, is_state=False)

    def ask_state(
        self,
        job: ActiveJob,
        event: Event | None,
        previous: JobState | None,
        only: str | None = None,
    ) -> None:
        """Ask the hook of the state that `job` is in; an answer to an earlier one counts no more.

        `previous` is None when the job was there before the plugins were.
        """
        job.question += 1
        topic = STATE_TOPICS[job.state]
        if not self._plugins.handles(topic):
            self.entered(job, NOTHING_SAID)
            return
        self._ticket += 1
        question = AskHook(self._ticket, topic, job, event, only, previous)
        then = partial(self._state_answered, job, job.question)
        self._put(job, question, then, is_state=True)

    def ask_configuration(self, config: Config, then: Answered) -> None:
        """Ask conf.update, also where nobody handles it: the plugins' host goes by it, too."""
        self._ticket += 1
        answer = self._plugins.ask(AskHook(self._ticket, CONF_UPDATE, None, config))
        if answer is None:
            self._asides[self._ticket] = then
        else:
            then(answer)

    def when_free(self, job: ActiveJob, do: Callable[[], None]) -> None:
        """Do it now, or behind what waits while a hook of `job` is being asked."""
        if job.hook or job.deferred is not None:
            self._queue(job).append(do)
        else:
            do()

    def operate_when_free(self, operation: Operation) -> None:
        """What a plugin wants done outside a hook."""
        job = None if isinstance(operation, Reprioritize) else self._ledger.jobs.get(operation.id)
        if job is None or (
            isinstance(operation, PostEvent) and ends_wait(job, operation.name, operation.context)
        ):
            self.operate(operation)
        else:
            self.when_free(job, partial(self.operate, operation))

    def tell(self, topic: str, job: ActiveJob, args: Any = None) -> None:
        """Tell plugins, and go on."""
        if self._plugins.handles(topic):
            self._plugins.tell(topic, job, args)

    # --- answers

    def answered(self, message: HookAnswered) -> None:
        """An answer that took its time; one that nobody waits for any more is dropped."""
        aside = self._asides.pop(message.ticket, None)
        if aside is not None:
            aside(message.answer)
            return
        job, then, is_state = self._open.pop(message.ticket, (None, None, False))
        if job is not None and then is not None:
            job.hook = 0
            self._ledger.dirty[job.id] = job
            self._take(job, message.answer, then, is_state)

    def abandon(self, job: ActiveJob) -> None:
        """Nobody waits for the answer any more: a fatal exception ends the hook."""
        _, then, is_state = self._open.pop(job.hook)
        self._plugins.cancel(job.hook)
        job.hook = 0
        self._take(job, ABANDONED, then, is_state)

    def end_turn(self) -> None:
        """What was counted in this turn is past."""
        if self._went_back:
            self._went_back = {}

    def _put(self, job: ActiveJob, question: AskHook, then: Answered, *, is_state: bool) -> None:
        answer = self._plugins.ask(question)
        if answer is None:
            job.hook = question.ticket
            self._open[question.ticket] = (job, then, is_state)
        else:
            self._take(job, answer, then, is_state)

    def _take(self, job: ActiveJob, answer: HookAnswer, then: Answered, is_state: bool) -> None:
        """Queue what the answer asks for, and `then` behind it, or behind all that waits."""
        if job.deferred is None and not answer.operations:
            then(answer)
            return
        queue = self._queue(job)
        if is_state:
            queue.append(partial(then, answer))
        else:
            queue.appendleft(partial(then, answer))
        if job.state != JobState.NEW or not (answer.reject or answer.error):
            # a job that is refused never was, and has no events
            queue.extendleft(partial(self._do, job, each) for each in reversed(answer.operations))
        self._drain(job)

    def _do(self, job: ActiveJob, operation: Operation) -> None:
        """An operation asked for by a hook of `job`; one on another job may have to wait."""
        if isinstance(operation, Reprioritize) or operation.id == job.id:
            self.operate(operation)
        else:
            self.operate_when_free(operation)

    # --- a job's queue

    def _queue(self, job: ActiveJob) -> deque[Any]:
        if job.deferred is None:
            job.deferred = deque()
        return job.deferred

    def _drain(self, job: ActiveJob) -> None:
        """Do what waits for `job`, until a hook is asked that takes its time."""
        if job.draining:
            return
        job.draining = True
        while job.deferred and not job.hook:
            item = job.deferred.popleft()
            if callable(item):
                item()
            else:
                self._log(job, *item)
        job.draining = False
        if not job.deferred:
            job.deferred = None

    def _log(self, job: ActiveJob, name: str, context: dict[str, Any] | None) -> None:
        """Log what waited, unless it has no place any more, or the job was refused."""
        if job.id not in self._ledger.jobs:
            return
        try:
            self._ledger.log(job, name, context)
        except InvalidTransition as error:
            self._ledger.send(Log(Level.ERR, f"cannot post {name} to {job.id}: {error}"))

    # --- after an event

    def _logged(self, job: ActiveJob, event: Event) -> None:
        if not job.introduced:
            return
        if self._plugins.subscribed(job.id):
            self._plugins.tell(EVENT_PREFIX + event.name, job, event)
        if event.name == JobEvent.JOBSPEC_UPDATE and self._plugins.handles(UPDATED):
            then = partial(self._updated, job, event)
            self.ask(job, UPDATED, then, event.context)
        elif job.state != job.asked:
            self._enter(job, event)
        elif event.name in _ASK_AGAIN:
            self._reconsider(job, event)

    def _updated(self, job: ActiveJob, event: Event, answer: HookAnswer) -> None:
        self.log_error(job, answer)
        if job.state != job.asked:
            self._enter(job, event)
        else:
            self._reconsider(job, event)

    def _enter(self, job: ActiveJob, event: Event) -> None:
        """The job has changed its state."""
        previous, job.asked = job.asked, job.state
        if previous == JobState.SCHED and job.state == JobState.PRIORITY:
            times = self._went_back[job.id] = self._went_back.get(job.id, 0) + 1
            if times > BACK_MAX:
                text = f"plugins sent the job back from SCHED more than {BACK_MAX} times at once"
                self.entered(job, HookAnswer(error=text))
                return
        self.ask_state(job, event, previous)

    def _reconsider(self, job: ActiveJob, event: Event) -> None:
        """Its urgency or jobspec is another: what holds it is asked again."""
        if job.state == JobState.PRIORITY or job.waiting_for is not None:
            self.ask_state(job, event, job.state)

    def _state_answered(self, job: ActiveJob, question: int, answer: HookAnswer) -> None:
        if job.question == question and answer is not ABANDONED:
            self.entered(job, answer)

    def log_error(self, job: ActiveJob, answer: HookAnswer) -> None:
        """Log the failure of a hook that holds up nothing."""
        if answer.error is not None and answer is not ABANDONED:
            self._ledger.send(Log(Level.ERR, f"job {format_fluid(job.id, 'f58')}: {answer.error}"))
