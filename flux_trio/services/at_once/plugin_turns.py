"""The job manager's core with its plugins: a plugin that answers at once does so in the turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from flux_trio.cores.job_manager.calls import (
    JobManagerAction,
    JobManagerInput,
    JobManagerOwnAction,
    JobManagerOwnInput,
    JobManagerTimer,
)
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.turns import Core
from flux_trio.protocols import (
    AskHook,
    AskJobs,
    CancelHook,
    HookAnswered,
    HookPostponed,
    NotifyPlugins,
    PluginAction,
    PluginReply,
    Plugins,
)

_FOR_PLUGINS: Final = (AskHook, NotifyPlugins, AskJobs, CancelHook)


class PluginTurns(Core[JobManagerTimer, JobManagerOwnInput, JobManagerOwnAction]):
    """Performs the core's actions for plugins, in order, and returns its other actions.

    The actions that follow from an answer are performed before the next question.
    """

    def __init__(self, core: JobManagerCore, plugins: Plugins) -> None:
        self._core = core
        self._plugins = plugins

    def start(self, now: float) -> list[JobManagerAction]:
        """See `Core`."""
        return self._core.start(now)

    def turn(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """Return the actions of a turn that are for no plugin; those for plugins are performed."""
        core = self._core
        actions = self._turn(now, inputs)
        while core.is_turning:
            todo = actions[::-1]  # the next one is the last
            while todo:
                action = todo.pop()
                if not isinstance(action, _FOR_PLUGINS):
                    raise TypeError(f"expected an action for plugins, got {action!r}")
                if (reply := self._do(action)) is not None:
                    todo += reversed(self._turn(now, [reply]))
            actions = self._turn(now, [])
        return actions

    def _turn(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """A turn of the core that begins with the interests of plugins if these have changed."""
        news = self._plugins.news()
        return self._core.turn(now, inputs if news is None else [news, *inputs])

    def _do(self, action: PluginAction) -> PluginReply | None:
        match action:
            case AskHook(ticket=ticket):
                answer = self._plugins.ask(action)
                return HookPostponed(ticket) if answer is None else HookAnswered(ticket, answer)
            case AskJobs():
                return self._plugins.ask_jobs(action)
            case NotifyPlugins(topic=topic, job=job, args=args):
                self._plugins.notify(topic, job, args)
            case CancelHook(ticket=ticket):
                self._plugins.cancel(ticket)
            case _:
                assert_never(action)
        return None
