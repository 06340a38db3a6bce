"""Faults of a plugin: it raises, hangs, lies or is not available.

Each strikes when the plugin is asked about a `hook` for the `nth` time. The job manager gets the
answer that the host of plugins gives when a handler does so.
"""

from __future__ import annotations

import difflib
from abc import abstractmethod
from typing import Any, ClassVar

import msgspec
import trio

from flux_trio.formats import FormatError
from flux_trio.formats.glob import is_glob
from flux_trio.jobtap import Reject
from flux_trio.jobtap.catalogue import HOOKS, Returns, hook_of, problem_with
from flux_trio.jobtap.values import is_priority
from flux_trio.lab.catalogue.aim import Drawer, always, one_of, small_number
from flux_trio.lab.catalogue.base import DrawnFault, fault
from flux_trio.lab.catalogue.places import Count, Machine, Seconds
from flux_trio.lab.world.plugins import FAULTY, PRIORITIZE
from flux_trio.protocols import VALIDATE, HookAnswer, Unavailable


class PluginFault(DrawnFault, frozen=True):
    """A fault of the plugin when it is asked for the `nth` time about the topic `hook`."""

    nth: Count = 1
    hook: str = PRIORITIZE

    draws: ClassVar[tuple[Drawer, ...]] = (small_number,)

    @property
    def place(self) -> None:
        return None

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        """Raise FormatError unless plugins are asked about this topic, and about a job.

        A plugin that fails at `conf.update` is not loaded, and nobody queries one.
        """
        if hook_of(self.hook).parameters[:1] == ("job",) and not is_glob(self.hook):
            return
        expected = "a hook about a job"
        spelled = [each.topic for each in HOOKS if each.parameters[:1] == ("job",)]
        if close := difflib.get_close_matches(self.hook, spelled, n=1):
            expected += f" (did you mean {close[0]}?)"
        raise FormatError(f"{expected}: {', '.join(spelled)}", self.hook, "hook")

    @abstractmethod
    def answer(self, usual: HookAnswer) -> HookAnswer:
        """Return the answer with the fault; `usual` is the one without it."""

    @abstractmethod
    def act(self) -> Any:
        """Do what the handler of a real plugin with this fault does: return, raise, or be
        awaited.
        """

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


@fault
class PluginRaises(PluginFault, frozen=True):
    """The handler raises an error."""

    def answer(self, usual: HookAnswer) -> HookAnswer:  # noqa: ARG002 - the interface
        return self._blame("RuntimeError: raised as planned")

    def act(self) -> Any:
        raise RuntimeError("raised as planned")


@fault
class PluginHangs(PluginFault, frozen=True):
    """The handler answers `seconds` later."""

    seconds: Seconds = 2.0

    draws = (small_number, always(PRIORITIZE), one_of(0.5, 5.0))

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return usual

    async def act(self) -> None:
        await trio.sleep(self.seconds)

    @property
    def late_s(self) -> float:
        return self.seconds


@fault
class PluginSaysWrong(PluginFault, frozen=True):
    """The handler returns `said`, which is of a wrong type or out of range."""

    said: int | str | list[Any] = "high"

    draws = (small_number, always(PRIORITIZE), one_of(-1, "high"))

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, self.said)

    def act(self) -> Any:
        return self.said


@fault
class PluginWrongPriority(PluginFault, frozen=True):
    """The handler returns a `priority` that has nothing to do with the urgency."""

    priority: Count = 4_294_967_295

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, self.priority)

    def act(self) -> Any:
        return self.priority


@fault
class PluginRejects(PluginFault, frozen=True):
    """The handler rejects the job. After job.validate that is too late, and counts as an error."""

    hook: str = VALIDATE

    draws = (small_number, one_of(VALIDATE, PRIORITIZE))

    def answer(self, usual: HookAnswer) -> HookAnswer:
        if hook_of(self.hook).rejects:
            return msgspec.structs.replace(usual, reject="rejected as planned")
        return self._blame("Reject: rejected as planned, but this hook cannot reject a job")

    def act(self) -> Any:
        raise Reject("rejected as planned")


@fault
class PluginUnavailable(PluginFault, frozen=True):
    """The handler says that it cannot compute a priority: the job is held."""

    def answer(self, usual: HookAnswer) -> HookAnswer:
        return self._priority(usual, Unavailable())

    def act(self) -> Any:
        return Unavailable()
