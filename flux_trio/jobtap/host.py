"""The plugin host: asks plugins in load order, one chain a question, and survives them.

A sync handler answers at once. From the first async one on, the rest of the chain runs in a task of
that plugin's nursery, with a deadline; a later answer's values overwrite an earlier one's.
A plugin that raises or answers badly is named in the answer's error; the others go on.
This is the one place besides the module supervisor that catches `Exception` broadly.
"""

from __future__ import annotations

import reprlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
import trio

from flux_trio.formats import Event, FormatError, Words, format_event
from flux_trio.jobtap.catalogue import takes
from flux_trio.jobtap.legacy import Handler, PluginContext
from flux_trio.jobtap.plugin import Plugin
from flux_trio.protocols import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    AskHook,
    CancelHook,
    HookAnswer,
    HookAnswered,
    JobView,
    PostEvent,
    TopicsChanged,
    check_context,
)
from flux_trio.trace import Kind

HOOK_DEADLINE_S: Final = 60.0  # an async hook that takes longer holds its job for no good reason

Tell = Callable[[Any], None]
NoteTrace = Callable[[str, dict[str, Any]], None]


class PluginHost:
    """Loaded plugins, and the questions that async ones still think about.

    `tell` takes what the job machine is to be told; `note` puts a record into the trace; `now` is
    the instance's clock.
    """

    def __init__(
        self, nursery: trio.Nursery, tell: Tell, note: NoteTrace, now: Callable[[], float]
    ) -> None:
        self._nursery = nursery
        self._tell = tell
        self._note = note
        self._now = now
        self._chains: dict[str, list[tuple[Plugin, Handler]]] = {}
        self._thinking: dict[int, trio.CancelScope] = {}

    def load(self, plugins: Iterable[Plugin]) -> None:
        """Add `plugins` behind those that are loaded."""
        for plugin in plugins:
            for topic, handler in plugin.handlers().items():
                self._chains.setdefault(topic, []).append((plugin, handler))
            loaded: Any = plugin.loaded
            if takes(loaded, 1):
                loaded(PluginContext(self._nursery, self._poster(plugin.name)))
            else:
                loaded()
        self._tell(TopicsChanged(frozenset(self._chains)))

    def ask(self, question: AskHook) -> None:
        """Put `question` to every plugin that handles its topic."""
        self._advance(question, HookAnswer(), self._chains.get(question.topic, []))

    def cancel(self, question: CancelHook) -> None:
        """Nobody waits for the answer any more."""
        scope = self._thinking.pop(question.ticket, None)
        if scope is not None:
            scope.cancel()

    def _advance(
        self, question: AskHook, so_far: HookAnswer, chain: list[tuple[Plugin, Handler]]
    ) -> None:
        for place, (plugin, handler) in enumerate(chain):
            began = self._now()
            try:
                said = handler(_job_of(question))
            except Exception as error:  # noqa: BLE001 - a plugin must not end the host
                self._failed(question, plugin, began, _describe(error))
                return
            if isinstance(said, Awaitable):
                scope = self._thinking[question.ticket] = trio.CancelScope()
                self._nursery.start_soon(self._think, question, so_far, chain[place:], said, scope)
                return
            so_far = self._heard(question, so_far, plugin, began, said)
            if so_far.error is not None or so_far.reject is not None:
                break  # a failure stops the chain for this question
        self._tell(HookAnswered(question.ticket, so_far))

    async def _think(
        self,
        question: AskHook,
        so_far: HookAnswer,
        chain: list[tuple[Plugin, Handler]],
        said: Awaitable[HookAnswer | None],
        scope: trio.CancelScope,
    ) -> None:
        """Wait for what the first of `chain` says, then go on with the others."""
        (plugin, _), *rest = chain
        began = self._now()
        with scope:
            try:
                with trio.move_on_after(HOOK_DEADLINE_S) as deadline:
                    answer = await said
            except Exception as error:  # noqa: BLE001 - a plugin must not end the host
                self._failed(question, plugin, began, _describe(error))
                return
            finally:
                self._thinking.pop(question.ticket, None)
        if scope.cancel_called:
            self._trace(question, plugin, began, result=None, error="canceled")
            return
        if deadline.cancelled_caught:
            self._failed(question, plugin, began, f"no answer in {HOOK_DEADLINE_S:g} s")
            return
        so_far = self._heard(question, so_far, plugin, began, answer)
        if so_far.error is not None or so_far.reject is not None:
            rest = []
        self._advance(question, so_far, rest)

    def _heard(
        self, question: AskHook, so_far: HookAnswer, plugin: Plugin, began: float, said: Any
    ) -> HookAnswer:
        problem = _problem_with(said)
        result = None if problem is not None else _summary(said)
        self._trace(question, plugin, began, result=result, error=problem)
        if problem is not None:
            return HookAnswer(error=_blame(plugin, question, problem))
        if said is None:
            return so_far
        return HookAnswer(
            priority=so_far.priority if said.priority is None else said.priority,
            reject=said.reject,
            posts=(*so_far.posts, *said.posts),
        )

    def _failed(self, question: AskHook, plugin: Plugin, began: float, text: str) -> None:
        self._trace(question, plugin, began, result=None, error=text)
        answer = HookAnswer(error=_blame(plugin, question, text))
        self._tell(HookAnswered(question.ticket, answer))

    def _trace(
        self, question: AskHook, plugin: Plugin, began: float, result: Any, error: str | None
    ) -> None:
        data = {
            "plugin": plugin.name,
            "hook": question.topic,
            "id": _job_of(question).id,
            "result": result,
            "error": error,
            "duration": self._now() - began,
        }
        self._note(Kind.HOOK, data)

    def _poster(self, plugin: str) -> Callable[[int, str, dict[str, Any]], None]:
        def post(jobid: int, name: str, context: dict[str, Any]) -> None:
            _check_posts(((name, context),))
            self._tell(PostEvent(jobid, name, context, plugin))

        return post


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _blame(plugin: Plugin, question: AskHook, text: str) -> str:
    return f"plugin {plugin.name} failed in {question.topic}: {text}"


def _problem_with(said: Any) -> str | None:
    """What is wrong with a handler's answer, None when nothing is."""
    if said is None:
        return None
    if not isinstance(said, HookAnswer):
        return f"expected a HookAnswer or None, got {reprlib.repr(said)}"
    answer: Any = said  # its fields are what a plugin put there
    if answer.error is not None:
        return str(answer.error)
    if answer.priority is not None and not _is_priority(answer.priority):
        got = reprlib.repr(answer.priority)
        return f"expected a priority from {PRIORITY_MIN} to {PRIORITY_MAX}, got {got}"
    if answer.reject is not None and not isinstance(answer.reject, str):
        return f"expected the reason of a rejection, got {reprlib.repr(answer.reject)}"
    try:
        _check_posts(answer.posts)
    except FormatError as error:
        return str(error)
    return None


def _is_priority(value: Any) -> bool:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and PRIORITY_MIN <= value <= PRIORITY_MAX


def _check_posts(posts: Any) -> None:
    """Raise FormatError unless each is (name, context) of an event that can be logged."""
    try:
        pairs = msgspec.convert(posts, tuple[tuple[str, dict[str, Any]], ...])
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at("posts") from None
    for name, context in pairs:
        event = Event(1.0, name, context)
        check_context(event)
        try:
            format_event(event)
        except (TypeError, ValueError) as error:
            raise FormatError("values that JSON has", Words(error), name) from None


def _summary(said: Any) -> Any:
    """What the trace shows of an answer."""
    if not isinstance(said, HookAnswer):
        return None
    parts = {"priority": said.priority, "reject": said.reject, "posts": [n for n, _ in said.posts]}
    return {key: value for key, value in parts.items() if value not in (None, [])}


def _job_of(question: AskHook) -> JobView:
    assert question.job is not None  # no topic without one is asked yet
    return question.job
