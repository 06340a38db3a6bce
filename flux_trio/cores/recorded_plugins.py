"""What plugins say in a turn of the job manager: written down, and said again in a replay. Pure.

Nearly all answers are empty, so they are only counted. What plugins were asked has no record; a
checksum tells whether a core that is replayed asks the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, TypeAlias

from flux_trio.cores.plain import Plain, Reader, StateError, Writer
from flux_trio.protocols import (
    AskHook,
    AskJobs,
    HookAnswer,
    HookArgs,
    JobsAnswered,
    JobView,
    PluginInterests,
    Plugins,
)

RecordedAnswers: TypeAlias = list[Plain]
"""The answers of a turn in order. A number counts empty answers; null is an answer that comes
later; an object with `priority` is an answer with only that; any other answer is a list, as plain
data. An object with `news` has the new interests that call number `look` of `news` returned.
"""

_NOTHING: Final = HookAnswer()


class RecordedPlugins:
    """Asks `plugins`, and writes down what they say."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._said: RecordedAnswers = []
        self._nothing = 0  # empty answers since the last other one
        self._looks = 0
        self._asked: list[str] = []

    def pop_answers(self) -> dict[str, Plain]:
        """Return what was said since the last call, and a checksum of what was asked."""
        self._count_nothing()
        said, self._said = self._said, []
        asked, self._asked = self._asked, []
        self._looks = 0
        return {"said": said, "asked": checksum(asked)} if said or asked else {}

    def news(self) -> PluginInterests | None:
        self._looks += 1
        news = self._plugins.news()
        if news is not None:
            self._say({"look": self._looks, "news": Writer().write(news, "news")})
        return news

    def ask(self, question: AskHook) -> HookAnswer | None:
        self._asked.append(question.topic)
        answer = self._plugins.ask(question)
        self._answer(answer)
        return answer

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        answered = self._plugins.ask_jobs(question)
        for answer in answered.answers:
            self._asked.append(question.topic)
            self._answer(answer)
        return answered

    def cancel(self, ticket: int) -> None:
        self._plugins.cancel(ticket)

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:
        self._asked.append(topic)
        self._plugins.notify(topic, job, args)

    def _answer(self, answer: HookAnswer | None) -> None:
        if answer is None:
            self._say(None)
        elif answer == _NOTHING:
            self._nothing += 1
        elif type(answer.priority) is int and answer == HookAnswer(answer.priority):
            self._say({"priority": answer.priority})
        else:
            self._say(Writer().write(answer, "answer"))

    def _say(self, said: Plain) -> None:
        self._count_nothing()
        self._said.append(said)

    def _count_nothing(self) -> None:
        if self._nothing:
            self._said.append(self._nothing)
            self._nothing = 0


class Unanswered(Exception):
    """Plugins are asked `topic`, and the recorded turn has no answer to it."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"no answer of plugins to {topic} is recorded in this turn")
        self.topic = topic


class RepeatedPlugins:
    """Says again what plugins said in a recorded turn.

    Raises Unanswered if it is asked more than the plugins were, and StateError for an answer that
    is none of this version.
    """

    def __init__(self) -> None:
        self._said: RecordedAnswers = []  # the next one is the last
        self._looks = 0
        self.asked: list[str] = []
        """The topics that were asked in this turn."""

    def begin(self, said: RecordedAnswers) -> None:
        """Give the answers `said` in the next turn."""
        self._said = said[::-1]
        self._looks, self.asked = 0, []

    def news(self) -> PluginInterests | None:
        self._looks += 1
        match self._said[-1:]:
            case [{"look": look, "news": news}] if look == self._looks:
                self._said.pop()
                found: PluginInterests = Reader().read(news)
                return found
        return None

    def ask(self, question: AskHook) -> HookAnswer | None:
        self.asked.append(question.topic)
        return self._next(question.topic)

    def ask_jobs(self, question: AskJobs) -> JobsAnswered:
        self.asked += [question.topic] * len(question.jobs)
        answers = tuple(self._next(question.topic) for _ in question.jobs)
        return JobsAnswered(question.ticket, answers)

    def cancel(self, ticket: int) -> None:
        pass

    def notify(self, topic: str, job: JobView, args: HookArgs = None) -> None:  # noqa: ARG002
        self.asked.append(topic)

    def _next(self, topic: str) -> HookAnswer | None:
        match self._said[-1:]:
            case [int(count)] if count > 1:
                self._said[-1] = count - 1
                return _NOTHING
            case [1]:
                self._said.pop()
                return _NOTHING
            case [None]:
                self._said.pop()
                return None
            case [{"priority": priority}]:
                self._said.pop()
                return HookAnswer(priority)
            case [list()]:
                answer: HookAnswer = Reader().read(self._said.pop())
                return answer
            case []:
                raise Unanswered(topic)
        raise StateError(f"expected an answer of plugins to {topic}, got {self._said[-1]!r:.100}")


def checksum(asked: Iterable[str]) -> int:
    """Return the checksum of the topics that were asked in a turn."""
    return zlib.crc32(" ".join(asked).encode())
