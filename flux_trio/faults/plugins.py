"""The plugins of a world of cores: a job's priority is its urgency, unless a fault answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from flux_trio.protocols import (
    STATE_TOPICS,
    AskHook,
    AskJobs,
    HookAnswer,
    JobsAnswered,
    JobState,
    JobView,
    PluginInterests,
)

PRIORITIZE: Final = STATE_TOPICS[JobState.PRIORITY]


class Answering(Protocol):
    """A fault that answers in place of a plugin."""

    def answer(self, usual: HookAnswer) -> HookAnswer:
        """Return the answer; `usual` is what comes without the fault."""

    @property
    def late_s(self) -> float:
        """How late the answer comes, in seconds; 0: at once."""


class PluginsOfWorld:
    """Answers the job manager's questions; see `Plugins`.

    `interests` are the topics that it handles. `fault_of` returns the fault of a question.
    `answer_later` is called with a ticket, the answer and how late it comes, in seconds.
    """

    def __init__(
        self,
        interests: tuple[str, ...],
        fault_of: Callable[[AskHook], Answering | None],
        answer_later: Callable[[int, HookAnswer, float], None],
        forget: Callable[[int], None],
    ) -> None:
        self._news: PluginInterests | None = PluginInterests(interests)
        self._fault_of = fault_of
        self._answer_later = answer_later
        self.cancel = forget

    def news(self) -> PluginInterests | None:
        news, self._news = self._news, None
        return news

    def ask(self, question: AskHook) -> HookAnswer | None:
        usual = HookAnswer()
        if question.topic == PRIORITIZE and question.job is not None:
            usual = HookAnswer(priority=question.job.urgency)
        fault = self._fault_of(question)
        if fault is None:
            return usual
        answer = fault.answer(usual)
        if not fault.late_s:
            return answer
        self._answer_later(question.ticket, answer, fault.late_s)
        return None

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        answers = [self.ask(each) for each in question.questions()]
        return JobsAnswered(question.ticket, tuple(answers))

    def tell(self, topic: str, job: JobView, args: Any = None) -> None:
        """Do nothing: no plugin subscribes to a job."""
