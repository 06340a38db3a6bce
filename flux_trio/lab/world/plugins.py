"""The plugins of a world of cores: a job's priority is its urgency, and the owner may change its
duration and its queue, unless a fault answers.

A host of plugins of files may answer instead; see `plugin_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from flux_trio.config import DURATION_KEY, QUEUE_KEY
from flux_trio.cores.turns import ClearTimer, SetTimer, TimerFired
from flux_trio.jobtap import PluginHost
from flux_trio.jobtap.calls import note_of
from flux_trio.protocols import (
    RUNNING,
    STATE_TOPICS,
    UPDATE_PREFIX,
    AskHook,
    AskJobs,
    HookAnswer,
    HookAnswered,
    HookArgs,
    JobsAnswered,
    JobState,
    JobView,
    PluginInterests,
    SetPriority,
)
from flux_trio.services.at_once import Beside
from flux_trio.trace import Kind

FAULTY: Final = "faulty"
"""The name of the plugin that does what the faults of a plan say."""
PRIORITIZE: Final = STATE_TOPICS[JobState.PRIORITY]
UPDATE_DURATION: Final = UPDATE_PREFIX + DURATION_KEY
UPDATE_QUEUE: Final = UPDATE_PREFIX + QUEUE_KEY
USUAL: Final = (PRIORITIZE, UPDATE_DURATION, UPDATE_QUEUE)
"""The topics of the questions that a plugin answers in each world."""


class Answering(Protocol):
    """A fault that answers a question of the job manager in place of the plugins."""

    def answer(self, usual: HookAnswer) -> HookAnswer:
        """Return the answer; `usual` is the one that the plugins would give."""

    def act(self) -> Any:
        """Return, raise or await what the handler of a real plugin with this fault would."""

    @property
    def late_s(self) -> float:
        """After how many seconds the answer comes; 0 if it comes at once."""


LATE: Final = "plugin"
"""The first part of the key of a timer, at which a plugin that hangs answers; the second part is
the ticket of the question."""


LateKey: TypeAlias = tuple[str, int]


class LateAnswer(NamedTuple):
    """The answer of a plugin that hangs, which comes so many seconds after the question."""

    question: AskHook
    answer: HookAnswer
    seconds: float


def is_late_answer(key: Hashable) -> bool:
    """Return whether a timer with this key brings the answer of a plugin that hangs."""
    return isinstance(key, tuple) and key[0] == LATE


class PluginsOfWorld(Beside):
    """The plugins of a world of cores, as the job manager asks them; see `Plugins`.

    They handle the topics `interests`. `fault_of` returns the fault that answers a question, or
    None; then the plugins of files answer, if there is a `host`. `note_all` puts records into the
    trace.
    """

    def __init__(
        self,
        interests: tuple[str, ...],
        fault_of: Callable[[AskHook], Answering | None],
        note_all: Callable[[str, Sequence[dict[str, Any]]], None],
    ) -> None:
        self._interests = interests
        self._news: PluginInterests | None = PluginInterests(interests)
        self.host: PluginHost | None = None
        self._fault_of = fault_of
        self._note_all = note_all
        self._now = 0.0
        self._late: dict[int, LateAnswer] = {}  # by ticket
        self._timers: list[SetTimer[LateKey] | ClearTimer[LateKey]] = []  # not set yet
        self.has_set_priority = False
        """Whether a plugin of a file has set the priority of a job, other than by an answer."""

    def begin_turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """Return the inputs of a turn, with the late answers of plugins in place of their
        timers.
        """
        self._now = now
        return [self._in_place_of(each) for each in inputs]

    def _in_place_of(self, item: Any) -> Any:
        match item:
            case TimerFired(key=(_, int() as ticket) as key) if is_late_answer(key):
                late = self._late.pop(ticket)
                self._note_call(late.question, None, late.seconds)
                return HookAnswered(ticket, late.answer)
        return item

    def end_turn(self) -> list[Any]:
        """Recount what plugins of files count; return the timers for late answers."""
        if self.host is not None:
            self.host.recount()
        timers, self._timers = self._timers, []
        return timers

    def cancel(self, ticket: int) -> None:
        """Forget the late answer to a question that was canceled."""
        if self._late.pop(ticket, None) is not None:
            self._timers.append(ClearTimer((LATE, ticket)))

    def post(self, operation: object, post: Callable[[Any], None]) -> None:
        """Pass on with `post` what a plugin of a file does while no question is asked."""
        self._note_operation(operation)
        post(operation)

    def _note_call(self, question: AskHook, error: str | None, duration: float) -> None:
        """Put a call into the trace, as a host of plugins does: a failure may hold the job."""
        jobid = None if question.job is None else question.job.id
        self._note_all(Kind.HOOK, [note_of(FAULTY, question.topic, jobid, None, error, duration)])

    def news(self) -> PluginInterests | None:
        if self.host is not None:
            return self._news_of(self.host)
        news, self._news = self._news, None
        return news

    def _news_of(self, host: PluginHost) -> PluginInterests | None:
        """Return the host's news, with the topics that a fault may answer."""
        news = host.news()
        if news is None or news.topics is None:
            return news
        handled = tuple(dict.fromkeys((*self._interests, *news.topics)))
        return msgspec.structs.replace(news, topics=handled)

    def ask(self, question: AskHook) -> HookAnswer | None:
        usual = self._usual(question)
        fault = self._fault_of(question)
        if fault is None:
            return usual
        answer = fault.answer(usual)
        if answer.error is not None:
            self._note_call(question, answer.error, 0.0)
        if not fault.late_s:
            return answer
        self._late[question.ticket] = LateAnswer(question, answer, fault.late_s)
        self._timers.append(SetTimer((LATE, question.ticket), self._now + fault.late_s))
        return None

    def _usual(self, question: AskHook) -> HookAnswer:
        """Return the answer without a fault."""
        if question.topic == UPDATE_QUEUE and question.job is not None:  # the builtin one waits
            if question.job.state & RUNNING:
                return HookAnswer(handled=True, reject="update of queue for running job")
            return HookAnswer(handled=True)
        if self.host is not None:
            answer = self.host.ask(question)
            assert answer is not None  # no handler is async
            for operation in answer.operations:
                self._note_operation(operation)
            return answer
        if question.topic == PRIORITIZE and question.job is not None:
            return HookAnswer(priority=question.job.urgency)
        if question.topic == UPDATE_DURATION:
            return HookAnswer(handled=True, validated=True)  # as update-duration does for the owner
        return HookAnswer()

    def _note_operation(self, operation: object) -> None:
        if isinstance(operation, SetPriority):
            self.has_set_priority = True

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        answers = [self.ask(each) for each in question.questions()]
        return JobsAnswered(question.ticket, tuple(answers))

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:
        """Tell the plugins that were loaded from files what happens to a job; no other one wants to
        know.
        """
        if self.host is not None:
            self.host.notify(topic, job, args)
