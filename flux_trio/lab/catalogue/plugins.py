"""Faults of a plugin: it raises, hangs, lies or is not available.

Each is at the `nth` question about `hook`. The answer is the one that the plugin host gives to the
job manager when a handler does so.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import msgspec
import trio

from flux_trio.jobtap import Reject
from flux_trio.jobtap.catalogue import Returns, hook_of
from flux_trio.jobtap.results import is_priority, problem_with
from flux_trio.lab.catalogue.base import BaseFault, Count, Seconds
from flux_trio.lab.world.plugins import FAULTY, PRIORITIZE
from flux_trio.protocols import VALIDATE, HookAnswer, Unavailable


class PluginFault(BaseFault, frozen=True):
    """A fault of the plugin at its `nth` question about `hook`, a topic."""

    nth: Count = 1
    hook: str = PRIORITIZE

    @abstractmethod
    def answer(self, usual: HookAnswer) -> HookAnswer:
        """Return the answer; `usual` is what comes without the fault."""

    @abstractmethod
    def act(self) -> Any:
        """Do as a handler of a real plugin what the fault says: return, raise, or be awaited."""

    @property
    def late_s(self) -> float:
        """How late the answer comes, in seconds; 0: at once."""
        return 0.0

    def _priority(self, usual: HookAnswer, said: Any) -> HookAnswer:
        """Return the answer when the handler has `said` a priority, or something else."""
        hook = hook_of(self.hook)
        if hook.returns is Returns.PRIORITY and is_priority(said):
            return msgspec.structs.replace(usual, priority=said)
        return self._blame(problem_with(hook, said))

    def _blame(self, text: str) -> HookAnswer:
        return HookAnswer(error=f"plugin {FAULTY}: {self.hook}: {text}")


class PluginRaises(PluginFault, frozen=True):
    """The handler raises an error."""

    def answer(self, usual: HookAnswer) -> HookAnswer:  # noqa: ARG002 - the interface
        return self._blame("RuntimeError: raised as planned")

    def act(self) -> Any:
        raise RuntimeError("raised as planned")


class PluginHangs(PluginFault, frozen=True):
    """The handler answers `seconds` later."""

    seconds: Seconds = 2.0

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return usual

    async def act(self) -> None:
        await trio.sleep(self.seconds)

    @property
    def late_s(self) -> float:
        return self.seconds


class PluginSaysWrong(PluginFault, frozen=True):
    """The handler returns `said`, which is of a wrong type or out of range."""

    said: int | str | list[Any] = "high"

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, self.said)

    def act(self) -> Any:
        return self.said


class PluginWrongPriority(PluginFault, frozen=True):
    """The handler returns a `priority` that has nothing to do with the urgency."""

    priority: Count = 4_294_967_295

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, self.priority)

    def act(self) -> Any:
        return self.priority


class PluginRejects(PluginFault, frozen=True):
    """The handler rejects the job. After job.validate that is too late, and counts as an error."""

    hook: str = VALIDATE

    def answer(self, usual: HookAnswer) -> HookAnswer:
        if hook_of(self.hook).rejects:
            return msgspec.structs.replace(usual, reject="rejected as planned")
        return self._blame("Reject: rejected as planned, but this hook cannot reject a job")

    def act(self) -> Any:
        raise Reject("rejected as planned")


class PluginUnavailable(PluginFault, frozen=True):
    """The handler says that it cannot compute a priority: the job is held."""

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, Unavailable())

    def act(self) -> Any:
        return Unavailable()
