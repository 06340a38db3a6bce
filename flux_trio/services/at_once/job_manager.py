"""The job manager's core with what its shell has beside it, all of which answers in the turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flux_trio.cores.job_manager.calls import (
    FindUser,
    Housekeep,
    HousekeepingEnded,
    HousekeepingSignal,
    JobManagerAction,
    JobManagerInput,
    User,
    UserFound,
)
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.state import CorePart, Plain
from flux_trio.cores.turns import Log, Note
from flux_trio.jobtap import HostServices, PluginHost
from flux_trio.protocols import PluginReplayed, Plugins
from flux_trio.services.at_once.plugin_turns import PluginNotes, PluginTurns


class Beside:
    """What plugins do in a turn of the job manager, beside their answers. Here: nothing."""

    def begin_turn(self, now: float, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        """Return what the core takes in place of `inputs`."""
        return inputs

    def end_turn(self) -> list[Any]:
        """Return actions that follow those of the core."""
        return []


class RecountedAtRest(Beside):
    """The counters of a host's plugins are recounted now and then."""

    def __init__(self, host: PluginHost) -> None:
        self._host = host

    def end_turn(self) -> list[Any]:
        self._host.recount_at_rest()
        return []


class JobManagerAtOnce:
    """The core, its plugins and the user database, as one `Core`.

    `use` names the plugins before the first turn: a host of plugins needs what is `given` first.
    `now` is the time until then, in seconds since the Unix epoch.
    """

    def __init__(
        self, core: JobManagerCore, find_user: Callable[[int], User], now: float = 0.0
    ) -> None:
        self._core = core
        self._find_user = find_user
        self._now = now
        self._posted: list[JobManagerInput] = []  # by plugins
        self._said: list[JobManagerAction] = []  # by plugins
        self._notes = PluginNotes(
            lambda kind, notes: self._said.extend(Note(kind, data) for data in notes)
        )
        self._turns: PluginTurns
        self._host: PluginHost | None = None
        self.beside = Beside()

    def use(self, plugins: Plugins, host: PluginHost | None, beside: Beside) -> None:
        """Ask `plugins`, those of files being in `host`."""
        self._turns = PluginTurns(self._core, plugins, self._notes)
        self._host, self.beside = host, beside

    @property
    def entered(self) -> dict[str, list[int]]:
        """By plugin of the host: the jobs that have entered a state and have not left it."""
        return {} if self._host is None else self._host.entered

    @property
    def part(self) -> CorePart:
        """The core itself, which has the state."""
        return self._core

    def dump(self) -> Plain:
        """Return the state of the core."""
        return self._core.dump()

    def start(self, now: float) -> list[JobManagerAction]:
        return self._turns.start(now)

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        """Return the actions of the core, with what plugins say before them and after them."""
        self._now = now
        inputs = self.beside.begin_turn(now, inputs)
        before = self._pop_said()
        actions = self._settled(now, inputs)
        more = self.beside.end_turn()
        return [*before, *actions, *more, *self._pop_said()]

    def end(self, now: float) -> list[Any]:
        """Tell the plugins of the host that they are removed; return what they said meanwhile."""
        if self._host is None:
            return []
        self._now = now
        self._host.call_removed()
        return self._pop_said()

    def _settled(self, now: float, inputs: Sequence[JobManagerInput]) -> list[JobManagerAction]:
        """Take a turn; return the core's actions when all that it asked for is answered."""
        actions: list[JobManagerAction] = []
        while inputs:
            found: list[JobManagerInput] = []
            for action in self._turns.turn(now, inputs):
                if type(action) is FindUser:  # a class pattern costs several times as much
                    found.append(UserFound(action.userid, self._find_user(action.userid)))
                elif type(action) is Housekeep:  # its commands are pretended
                    ranks = action.pending
                    found += [HousekeepingEnded(action.jobid, rank) for rank in ranks]
                elif type(action) not in (PluginReplayed, HousekeepingSignal):
                    actions.append(action)
            inputs = [*found, *self._posted]
            self._posted.clear()
        return actions

    def _pop_said(self) -> list[JobManagerAction]:
        """Return what plugins have said, records and lines of the log, since the last call."""
        said, self._said = self._said, []
        return said

    def given(self, owner: int, is_traced: Callable[[], bool]) -> HostServices:
        """Return what a host of plugins gets in place of an instance."""
        return HostServices(
            post=self._posted.append,
            note_all=self.note_all,
            is_traced=is_traced,
            now=lambda: self._now,
            log=lambda level, text: self._said.append(Log(level, text)),
            owner=owner,
        )

    def note_all(self, kind: str, notes: Sequence[dict[str, Any]]) -> None:
        """Put records of plugins into the trace."""
        self._notes.put(kind, notes)
