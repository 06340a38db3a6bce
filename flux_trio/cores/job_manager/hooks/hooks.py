"""The questions of the job manager to plugins, and the order in which a job goes on.

While plugins are asked about a job, the job does not move; other jobs do. Events and operations
that come for the job meanwhile wait in its queue (`job.deferred`). When the answer has come, the
job manager performs the operations of the answer, then continues with the purpose of the question
(`Then`), then processes the queue, the oldest entry first. The answer of a state's hook is the
exception: it comes behind the queue, because an event in the queue may change the state. Each
question is answered once; a fatal exception answers it with `ABANDONED`.

After each logged event three things may follow, in this order. The plugins that subscribed to the
job are told about the event. If the event changed the jobspec, job.update is asked. If the event
changed the state, the hook of the new state is asked; when it is answered, the job manager takes
the action of that state.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, assert_never

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.hooks.interests import Interests
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob, ends_wait
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.waiting import (
    Answered,
    ConfigurationThen,
    Deferred,
    LogEvent,
    Operate,
    Purpose,
    StateAnswered,
    Then,
    UpdateAnswered,
)
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.formats import Event, format_fluid
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Level
from flux_trio.protocols import (
    ASKING,
    AT_REST,
    CONF_UPDATE,
    DESTROY,
    EVENT_PREFIX,
    STATE_TOPICS,
    THINKING,
    UPDATED,
    AskHook,
    AskJobs,
    CancelHook,
    HookAnswer,
    HookAnswered,
    HookArgs,
    HookEvent,
    HookPostponed,
    InvalidTransition,
    JobEvent,
    JobsAnswered,
    JobState,
    JobView,
    NotifyPlugins,
    Operation,
    PluginAction,
    PluginReply,
    PostEvent,
    Reprioritize,
    UpdateApplied,
)

ABANDONED: Final = HookAnswer(error="a fatal exception ended the wait for an answer")
NOTHING_SAID: Final = HookAnswer()

# Looked up once: all events pass here.
_JOBSPEC_UPDATE: Final = JobEvent.JOBSPEC_UPDATE
_PRIORITY: Final = JobState.PRIORITY
_SCHED: Final = JobState.SCHED
_ASK: Final = HookEvent.ASK
_ANSWER: Final = HookEvent.ANSWER
_DONE: Final = HookEvent.DONE

# A priority may depend on these: after them plugins are asked about a job in PRIORITY again.
_ASK_AGAIN = frozenset({JobEvent.URGENCY, JobEvent.JOBSPEC_UPDATE})

# Plugins may send a job back from SCHED this often in one turn. After that the job is held;
# otherwise it might never come to rest.
BACK_MAX: Final = 100


class Continuation(Protocol):
    """Does the work that waited for an answer of plugins."""

    def operate(self, operation: Operation) -> None:
        """Perform an operation of a plugin."""

    def entered(self, job: ActiveJob, answer: HookAnswer) -> None:
        """Continue after the hook of the state that `job` is in."""

    def answered(self, job: ActiveJob, then: Then, answer: HookAnswer) -> None:
        """Continue with `then`, after the operations of the answer."""

    def do(self, job: ActiveJob, deferred: Deferred) -> None:
        """Process an entry of the queue of `job`."""

    def introduced(self, job: ActiveJob, purpose: Purpose, refusal: str | None) -> None:
        """Continue after `job` was presented to plugins; `refusal` is the reason to refuse it."""

    def configured(self, then: ConfigurationThen, answer: HookAnswer) -> None:
        """Continue after conf.update."""


class SentBack(msgspec.Struct, frozen=True):
    """How often plugins have sent a job back from SCHED in this turn."""

    times: int
    plugin: str  # the one that did so last


class Hooks(Part):
    """The open questions by ticket."""

    open: dict[int, Then]
    asked: dict[int, ActiveJob]
    """The job of each open question, by ticket; the ledger no longer has an INACTIVE job."""
    unreplied: set[int]
    """Tickets of this turn that have no reply yet; HookPostponed counts as a reply.

    An AskJobs is listed by its first ticket.
    """
    actions: list[PluginAction]  # to be performed before the next input
    configuring: dict[int, ConfigurationThen]
    last_ticket: int
    sent_back: dict[JobId, SentBack]

    def __init__(self, ledger: Ledger, continuation: Continuation) -> None:
        self._ledger = ledger
        self.interests = Interests()
        self.continuation = continuation
        self.open = {}
        self.asked = {}
        self.unreplied = set()
        self.actions = []
        self.configuring = {}
        self.last_ticket = 0
        self.sent_back = {}

    # --- asking

    def ask(
        self,
        job: ActiveJob,
        topic: str,
        then: Then,
        args: HookArgs = None,
        *,
        view: JobView | None = None,
        only: str | None = None,
    ) -> HookAnswer | None:
        """Ask `topic` about a job with no open question; plugins see `view` if it is given.

        Return an empty answer if no plugin handles `topic`. Else return None; when the answer has
        come and its operations are performed, the job manager continues with `then`.
        """
        if not self.interests.handled(topic):
            return NOTHING_SAID
        self.last_ticket += 1
        self._put(job, AskHook(self.last_ticket, topic, view or job.snapshot(), args, only), then)
        return None

    def ask_jobs(self, jobs: list[ActiveJob], topic: str, then: Then) -> None:
        """Ask `topic` about jobs with no open question, by one action, if a plugin handles it."""
        if not jobs or not self.interests.handled(topic):
            return
        first = self.last_ticket + 1
        for ticket, job in enumerate(jobs, first):
            self._open(job, ticket, then)
        self.last_ticket += len(jobs)
        self.unreplied.add(first)
        self.actions.append(AskJobs(first, topic, tuple(job.snapshot() for job in jobs)))

    def ask_state(
        self,
        job: ActiveJob,
        event: Event | None,
        previous: JobState | None,
        only: str | None = None,
    ) -> None:
        """Ask the hook of the state that `job` is in; answers to earlier state hooks are ignored.

        `previous` is None if the job did not come into the state just now.
        """
        job.question += 1
        topic = STATE_TOPICS[job.state]
        if not self.interests.handled(topic):
            self.continuation.entered(job, NOTHING_SAID)
            return
        self.last_ticket += 1
        question = AskHook(self.last_ticket, topic, job.snapshot(), event, only, previous)
        self._put(job, question, StateAnswered(job.question))

    def ask_configuration(self, config: Config, then: ConfigurationThen) -> None:
        """Ask conf.update, even if no plugin handles it: the plugin host reads it, too."""
        self.last_ticket += 1
        self.configuring[self.last_ticket] = then
        self.unreplied.add(self.last_ticket)
        self.actions.append(AskHook(self.last_ticket, CONF_UPDATE, None, config))

    def when_free(self, job: ActiveJob, deferred: Deferred) -> None:
        """Do `deferred` now, or put it into the job's queue while a question is open."""
        if job.hook in AT_REST:
            self.continuation.do(job, deferred)
        else:
            _queue(job).append(deferred)

    def operate_when_free(self, operation: Operation) -> None:
        """Perform an operation that a plugin called outside a hook."""
        job = None if isinstance(operation, Reprioritize) else self._ledger.jobs.get(operation.id)
        if job is None or (
            isinstance(operation, PostEvent) and ends_wait(job, operation.name, operation.context)
        ):
            self.continuation.operate(operation)
        else:
            self.when_free(job, Operate(operation))

    def sends_back(self, plugin: str, job: ActiveJob) -> None:
        """Count that an event of `plugin`, which is logged next, ends the SCHED state of `job`."""
        sent = self.sent_back.get(job.id)
        self.sent_back[job.id] = SentBack(sent.times + 1 if sent else 1, plugin)

    def notify(self, topic: str, job: ActiveJob, args: HookArgs = None) -> None:
        """Notify plugins without waiting."""
        if self.interests.handled(topic):
            self.actions.append(NotifyPlugins(topic, job.snapshot(), args))
        if topic == DESTROY:
            self.interests.forget(job.id)

    # --- answers

    def replied(self, reply: PluginReply) -> None:
        """Take the reply to a question; ignore it if the question is no longer open."""
        self.unreplied.discard(reply.ticket)
        match reply:
            case HookAnswered(ticket, answer):
                if ticket in self.open:
                    self._answered(ticket, answer)
                elif ticket in self.configuring:
                    self.continuation.configured(self.configuring.pop(ticket), answer)
            case JobsAnswered():
                for ticket, each in enumerate(reply.answers, reply.ticket):
                    if each is None:
                        self._postponed(ticket)
                    elif ticket in self.open:
                        self._answered(ticket, each)
            case HookPostponed():
                self._postponed(reply.ticket)
            case _:
                assert_never(reply)

    def _answered(self, ticket: int, answer: HookAnswer) -> None:
        job, then = self.asked.pop(ticket), self.open.pop(ticket)
        job.ticket = 0  # for memory: the number is an object of its own in each of 100,000 jobs
        if job.hook in THINKING:
            self._ledger.dirty[job.id] = job  # actions that became due meanwhile were not done
        self._ledger.step_hook(job, _ANSWER)
        self._go_on(job, then, answer)

    def abandon(self, job: ActiveJob) -> None:
        """End the open question of `job`: a fatal exception does not wait for the answer."""
        then = self.open.pop(job.ticket)
        del self.asked[job.ticket]
        self.actions.append(CancelHook(job.ticket))
        self._ledger.step_hook(job, HookEvent.ABANDON)
        self._go_on(job, then, ABANDONED)

    def pop_actions(self) -> list[PluginAction]:
        """Return the actions for plugins, in order."""
        actions, self.actions = self.actions, []
        return actions

    def end_turn(self) -> None:
        """Reset the per-turn counters."""
        if self.sent_back:
            self.sent_back = {}

    def _put(self, job: ActiveJob, question: AskHook, then: Then) -> None:
        self._open(job, question.ticket, then)
        self.unreplied.add(question.ticket)
        self.actions.append(question)

    def _open(self, job: ActiveJob, ticket: int, then: Then) -> None:
        self._ledger.step_hook(job, _ASK)
        job.ticket = ticket
        self.open[ticket] = then
        self.asked[ticket] = job

    def _postponed(self, ticket: int) -> None:
        """Note that a plugin answers later; log a fatal exception that is in the queue already."""
        job = self.asked.get(ticket)
        if job is None:
            return
        self._ledger.step_hook(job, HookEvent.POSTPONE)
        for each in job.deferred or ():
            if isinstance(each, LogEvent) and ends_wait(job, each.name, each.context):
                _queue(job).remove(each)
                self.log_deferred(job, each)
                return

    def _go_on(self, job: ActiveJob, then: Then, answer: HookAnswer) -> None:
        """Perform the operations, continue with `then`, process the queue: see above."""
        if job.deferred is None and not answer.operations:
            self.continuation.answered(job, then, answer)
            if job.deferred is None and job.hook not in ASKING:  # nearly always
                self._ledger.step_hook(job, _DONE)
                return
        else:
            queue = _queue(job)
            if isinstance(then, StateAnswered):
                queue.append(Answered(then, answer))
            else:
                queue.appendleft(Answered(then, answer))
            if job.state != JobState.NEW or not (answer.reject or answer.error):
                # a refused job has no eventlog: its operations are dropped
                queue.extendleft(Operate(each) for each in reversed(answer.operations))
        self._drain(job)

    def operate(self, job: ActiveJob, operation: Operation) -> None:
        """Perform an operation of the answer about `job`; on another job it may have to wait."""
        if isinstance(operation, Reprioritize) or operation.id == job.id:
            self.continuation.operate(operation)
        else:
            self.operate_when_free(operation)

    # --- a job's queue

    def _drain(self, job: ActiveJob) -> None:
        """Process the queue of `job`, until the next question about it."""
        while not job.is_asked:
            if not job.deferred:
                job.deferred = None
                self._ledger.step_hook(job, HookEvent.DONE)
                return
            self.continuation.do(job, job.deferred.popleft())

    def log_deferred(self, job: ActiveJob, waited: LogEvent) -> None:
        """Log an event that waited; drop it if the job is gone or the state forbids it."""
        text = "the job has ended meanwhile"
        if job.id in self._ledger.jobs:
            try:
                self._ledger.log(job, waited.name, waited.context, waited.answer)
            except InvalidTransition as error:
                text = f"cannot post {waited.name}: {error}"
                self.log_error(job, text)
            else:
                return
        if waited.answer is not None:
            self._ledger.send_answer(waited.answer, text)

    # --- after an event

    def logged(self, job: ActiveJob, event: Event) -> None:
        """Tell plugins about an event, and ask what follows from it: see this module's text."""
        if not job.introduced:
            return
        if job.id in self.interests.subscribed:
            self.actions.append(NotifyPlugins(EVENT_PREFIX + event.name, job.snapshot(), event))
        if event.name == _JOBSPEC_UPDATE and self.interests.handled(UPDATED):
            answer = self.ask(
                job, UPDATED, UpdateAnswered(event), UpdateApplied(event.context or {})
            )
            if answer is not None:
                self.update_answered(job, event)
        elif job.state is not job.asked:
            self._enter(job, event)
        elif event.name in _ASK_AGAIN:
            self._reconsider(job, event)

    def update_answered(self, job: ActiveJob, event: Event) -> None:
        """Continue after job.update about `event`, which changed the jobspec."""
        if job.state != job.asked:
            self._enter(job, event)
        else:
            self._reconsider(job, event)

    def _enter(self, job: ActiveJob, event: Event) -> None:
        """Ask the hook of the job's new state, unless plugins sent it back from SCHED too often."""
        previous, job.asked = job.asked, job.state
        if previous is _SCHED and job.state is _PRIORITY:
            sent = self.sent_back.get(job.id)
            if sent is not None and sent.times > BACK_MAX:
                text = (
                    f"plugins sent the job back from SCHED more than {BACK_MAX} times at once, "
                    f"the last time plugin {sent.plugin}"
                )
                self.log_error(job, text)
                self.continuation.entered(job, HookAnswer(error=text))
                return
        self.ask_state(job, event, previous)

    def _reconsider(self, job: ActiveJob, event: Event) -> None:
        """Ask again about a job that waits or is held: its urgency or its jobspec has changed."""
        if job.state == JobState.PRIORITY or job.is_held:
            self.ask_state(job, event, job.state)

    def log_error(self, job: ActiveJob, text: str) -> None:
        """Log what went wrong with the plugins of a job; the host logs what a plugin raises."""
        name = format_fluid(job.id, "f58")
        self._ledger.send(Log(Level.ERR, f"job {name} in {job.state.name}: {text}"))


def _queue(job: ActiveJob) -> deque[Deferred]:
    if job.deferred is None:
        job.deferred = deque()
    return job.deferred
