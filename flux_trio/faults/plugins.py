"""The plugins of a world of cores: a job's priority is its urgency."""

from __future__ import annotations

from typing import Any, Final

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

_PRIORITIZE: Final = STATE_TOPICS[JobState.PRIORITY]


class PriorityIsUrgency:
    """Answers the job manager's questions at once; see `Plugins`."""

    def __init__(self) -> None:
        self._news: PluginInterests | None = PluginInterests((_PRIORITIZE,))

    def news(self) -> PluginInterests | None:
        news, self._news = self._news, None
        return news

    def ask(self, question: AskHook) -> HookAnswer | None:
        return HookAnswer(priority=None if question.job is None else question.job.urgency)

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        answers = [self.ask(each) for each in question.questions()]
        return JobsAnswered(question.ticket, tuple(answers))

    def cancel(self, ticket: int) -> None:
        """Do nothing: no answer comes later."""

    def tell(self, topic: str, job: JobView, args: Any = None) -> None:
        """Do nothing: no plugin subscribes to a job."""
