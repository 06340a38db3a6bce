"""The job manager's core with its plugins: a plugin that answers at once does so in the turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Final, assert_never

from flux_trio.cores.job_manager.calls import (
    JobManagerAction,
    JobManagerInput,
    JobManagerOwnAction,
    JobManagerOwnInput,
    JobManagerTimer,
)
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.turns import Core, NoteAll
from flux_trio.formats.meanings import JobNote
from flux_trio.protocols import (
    AskHook,
    AskJobs,
    CancelHook,
    HookAnswered,
    HookPostponed,
    NotifyPlugins,
    PluginAction,
    PluginInterests,
    PluginReply,
    Plugins,
)

_FOR_PLUGINS: Final = (AskHook, NotifyPlugins, AskJobs, CancelHook)


class PluginNotes:
    """Records of plugins for the trace: within a turn for the core, else for `outside`."""

    def __init__(self, outside: Callable[[str, Sequence[JobNote]], None]) -> None:
        self._outside = outside
        self._within: list[tuple[str, JobNote]] | None = None

    def put(self, kind: str, notes: Sequence[JobNote]) -> None:
        """Keep records that plugins make within a turn; others go outside."""
        if self._within is None:
            self._outside(kind, notes)
        else:
            self._within.extend(zip(repeat(kind), notes))

    @contextmanager
    def within_turn(self) -> Iterator[None]:
        """From here to the end of this block a turn is under way."""
        self._within = []
        try:
            yield
        finally:
            self._within = None

    def pop(self) -> list[NoteAll]:
        """Return the records of this turn since the last call."""
        if not self._within:
            return []
        notes, self._within = self._within, []
        return [NoteAll(notes)]


class PluginTurns(Core[JobManagerTimer, JobManagerOwnInput, JobManagerOwnAction]):
    """Performs the core's actions for plugins, in order, and returns its other actions.

    The actions that follow from an answer are performed before the next question. `notes` gets the
    records of plugins that make records.
    """

    def __init__(
        self, core: JobManagerCore, plugins: Plugins, notes: PluginNotes | None = None
    ) -> None:
        self._core = core
        self._plugins = plugins
        self._notes = notes or PluginNotes(lambda _kind, _notes: None)

    def start(self, now: float) -> list[JobManagerAction]:
        return self._core.start(now)

    def turn(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """Return the actions of a turn that are for no plugin; those for plugins are performed."""
        core = self._core
        with self._notes.within_turn():
            actions = core.turn(now, [*self._news(), *inputs])
            while core.is_turning:
                todo = actions[::-1]  # the next one is the last
                while todo:
                    action = todo.pop()
                    if not isinstance(action, _FOR_PLUGINS):
                        raise TypeError(f"expected an action for plugins, got {action!r}")
                    reply = self._do(action)
                    said = [*self._news(), *self._notes.pop(), *([] if reply is None else [reply])]
                    if said:
                        todo += reversed(core.plugins_replied(said))
                actions = core.go_on()
        return actions

    def _news(self) -> list[PluginInterests]:
        """Return the interests of plugins if these have changed."""
        news = self._plugins.news()
        return [] if news is None else [news]

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
