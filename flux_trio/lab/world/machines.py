"""The modules of a world of cores, as the room `at_once` has them, with what faults need.

The store answers at once unless its disk is slow, the user database knows every user, and plugins
answer at once unless a fault lets them answer later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.job_manager.requests.admissions import User
from flux_trio.cores.turns import ClearTimer, SetTimer, TimerFired
from flux_trio.formats import Idset, ResourceSet
from flux_trio.jobtap.calls import note_of
from flux_trio.jobtap.watchdog import Watchdog
from flux_trio.lab.world.disk import Disk, KvsOnDisk, StoreKind
from flux_trio.lab.world.plugin_files import PluginFile, host_of
from flux_trio.lab.world.plugins import FAULTY, USUAL, Answering, PluginsOfWorld
from flux_trio.protocols import AskHook, HookAnswer, HookAnswered
from flux_trio.services.at_once import JobManagerAtOnce, ModulePlan, module_plans
from flux_trio.trace import Kind

USERID: Final = 1000  # the owner of the instance
LATE: Final = "plugin"
LateKey: TypeAlias = tuple[str, int]
"""With the ticket of its question, the key of the timer at which a plugin that hangs answers."""


@dataclass(frozen=True)
class Surroundings:
    """What the modules of a world are given.

    `exclude` and `missing` are the targets that are excluded and down from the start of each life.
    `hooks` are the topics that the plugin handles beside those of each world. `plugins` are files
    of jobtap plugins. `store` is where the kvs keeps its values.
    """

    inventory: ResourceSet
    exclude: Idset = Idset()  # noqa: RUF009 - it is frozen
    missing: Mapping[int, str] | None = None
    hooks: tuple[str, ...] = ()
    plugins: tuple[PluginFile, ...] = ()
    store: StoreKind = "memory"


class Late(NamedTuple):
    """An answer that comes so many seconds after its question."""

    question: AskHook
    answer: HookAnswer
    seconds: float


def is_late_answer(key: Hashable) -> bool:
    """Return whether this is the key of a timer at which a plugin that hangs answers."""
    return isinstance(key, tuple) and key[0] == LATE


def plans_of_world(
    config: Config,
    given: Surroundings,
    disk: Disk,
    fault_of: Callable[[AskHook], Answering | None],
    watchdog: Watchdog,
) -> dict[str, ModulePlan]:
    """Return the modules of a world, in the order of their start; `watchdog` is for plugins."""
    return module_plans(
        config,
        given.inventory,
        kvs=lambda: KvsOnDisk(disk),
        job_manager=lambda: JobManagerOfWorld(config, given, fault_of, watchdog),
        exclude=given.exclude,
        missing=given.missing,
    )


class JobManagerOfWorld(JobManagerAtOnce):
    """The job manager with plugins that a fault may let answer later.

    A plugin that hangs answers at a timer.
    """

    def __init__(
        self,
        config: Config,
        given: Surroundings,
        fault_of: Callable[[AskHook], Answering | None],
        watchdog: Watchdog,
    ) -> None:
        core = JobManagerCore(USERID, config)
        super().__init__(core, lambda userid: User(f"user{userid}"))
        self._late: dict[int, Late] = {}  # by ticket
        self._timers: list[SetTimer[LateKey] | ClearTimer[LateKey]] = []
        self._host = None
        if given.plugins:
            parts = msgspec.structs.replace(self.given(USERID, lambda: True), post=self._post)
            self._host = host_of(given.plugins, config, parts, watchdog)
            self._host.jobs = core
        interests = tuple(dict.fromkeys((*USUAL, *given.hooks)))
        self._plugins = PluginsOfWorld(
            interests, fault_of, self._answer_later, self._forget, self._note_failure, self._host
        )
        self.use(self._plugins)

    @property
    def entered(self) -> dict[str, list[int]]:
        """By plugin of a file: the jobs that have entered a state and have not left it."""
        return {} if self._host is None else self._host.entered

    @property
    def has_set_priority(self) -> bool:
        """Whether a plugin of a file has set the priority of a job, other than by an answer."""
        return self._plugins.has_set_priority

    def turn(self, now: float, inputs: Sequence[Any]) -> list[Any]:
        inputs = [self._through(each) for each in inputs]
        late = self.take_said()  # what the core does about a late answer follows it
        actions = self.answered(now, inputs)
        if self._host is not None:
            self._host.recount()
        more, self._timers = self._timers, []
        return [*late, *actions, *more, *self.take_said()]

    def end(self, now: float) -> list[Any]:
        """Tell the plugins of files that they are removed; return what they said meanwhile."""
        if self._host is None:
            return []
        self._now = now
        self._host.call_removed()
        return self.take_said()

    def note_all(self, kind: str, notes: Sequence[dict[str, Any]]) -> None:
        """Put records of plugins into the trace; of counters those that are wrong."""
        if kind == Kind.COUNTERS:
            notes = [each for each in notes if each["declared"] != each["recounted"]]
        super().note_all(kind, notes)

    def _post(self, operation: Any) -> None:
        self._plugins.note(operation)
        self._posted.append(operation)

    def _through(self, item: Any) -> Any:
        """Return what the core gets: for the timer of a late answer the answer."""
        match item:
            case TimerFired(key=(_, int() as ticket) as key) if is_late_answer(key):
                late = self._late.pop(ticket)
                self._note_call(late.question, None, late.seconds)
                return HookAnswered(ticket, late.answer)
        return item

    def _answer_later(self, question: AskHook, answer: HookAnswer, seconds: float) -> None:
        self._late[question.ticket] = Late(question, answer, seconds)
        self._timers.append(SetTimer((LATE, question.ticket), self._now + seconds))

    def _note_failure(self, question: AskHook, error: str) -> None:
        """Put a failure into the trace, as a host of plugins does: it may hold the job."""
        self._note_call(question, error, 0.0)

    def _note_call(self, question: AskHook, error: str | None, duration: float) -> None:
        jobid = None if question.job is None else question.job.id
        self.note_all(Kind.HOOK, [note_of(FAULTY, question.topic, jobid, None, error, duration)])

    def _forget(self, ticket: int) -> None:
        if self._late.pop(ticket, None) is not None:
            self._timers.append(ClearTimer((LATE, ticket)))
