"""The plugins of a world of cores: a job's priority is its urgency, and the owner may change its
duration, unless a fault answers.

A host of plugins of files may answer instead; see `plugin_files`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from flux_trio.config import DURATION_KEY
from flux_trio.jobtap import PluginHost
from flux_trio.protocols import (
    STATE_TOPICS,
    UPDATE_PREFIX,
    AskHook,
    AskJobs,
    HookAnswer,
    HookArgs,
    JobsAnswered,
    JobState,
    JobView,
    PluginInterests,
    SetPriority,
)

FAULTY: Final = "faulty"
"""The name of the plugin that has the faults of a plan."""
PRIORITIZE: Final = STATE_TOPICS[JobState.PRIORITY]
UPDATE_DURATION: Final = UPDATE_PREFIX + DURATION_KEY
USUAL: Final = (PRIORITIZE, UPDATE_DURATION)
"""The topics that a plugin answers in each world."""


class Answering(Protocol):
    """A fault that answers in place of a plugin."""

    def answer(self, usual: HookAnswer) -> HookAnswer:
        """Return the answer; `usual` is what comes without the fault."""

    def act(self) -> Any:
        """Do as a handler of a real plugin what the fault says: return, raise, or be awaited."""

    @property
    def late_s(self) -> float:
        """How late the answer comes, in seconds; 0: at once."""


class PluginsOfWorld:
    """Answers the job manager's questions; see `Plugins`.

    `interests` are the topics that it handles. `fault_of` returns the fault of a question. `host`
    has plugins of files, which answer where there is no fault.
    `answer_later` is called with a question, the answer and how late it comes, in seconds; `fails`
    with a question in which a fault lets the plugin fail, and how.
    """

    def __init__(
        self,
        interests: tuple[str, ...],
        fault_of: Callable[[AskHook], Answering | None],
        answer_later: Callable[[AskHook, HookAnswer, float], None],
        forget: Callable[[int], None],
        fails: Callable[[AskHook, str], None],
        host: PluginHost | None = None,
    ) -> None:
        self._interests = interests
        self._news: PluginInterests | None = PluginInterests(interests)
        self._host = host
        self._fault_of = fault_of
        self._answer_later = answer_later
        self._fails = fails
        self.cancel = forget
        self.has_set_priority = False
        """Whether a plugin of a file has set the priority of a job, other than by an answer."""

    def news(self) -> PluginInterests | None:
        if self._host is not None:
            return self._news_of(self._host)
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
            self._fails(question, answer.error)
        if not fault.late_s:
            return answer
        self._answer_later(question, answer, fault.late_s)
        return None

    def _usual(self, question: AskHook) -> HookAnswer:
        """Return the answer without a fault."""
        if self._host is not None:
            answer = self._host.ask(question)
            assert answer is not None  # no handler is async
            for operation in answer.operations:
                self.note(operation)
            return answer
        if question.topic == PRIORITIZE and question.job is not None:
            return HookAnswer(priority=question.job.urgency)
        if question.topic == UPDATE_DURATION:
            return HookAnswer(handled=True, validated=True)  # as update-duration does for the owner
        return HookAnswer()

    def note(self, operation: object) -> None:
        """Note what a plugin of a file does, in a question or outside."""
        if isinstance(operation, SetPriority):
            self.has_set_priority = True

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        answers = [self.ask(each) for each in question.questions()]
        return JobsAnswered(question.ticket, tuple(answers))

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:
        """Tell the plugins of files; without them, no plugin subscribes to a job."""
        if self._host is not None:
            self._host.notify(topic, job, args)
