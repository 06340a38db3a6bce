"""The modules of a world of cores: their service names, subscriptions and cores.

Whatever a module's shell does under Trio beside its core is done here within the turn: the store
answers at once unless its disk is slow, the user database knows every user, and plugins answer at
once unless a fault lets them answer later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flux_trio.config import Config
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.cores.job_list.core import JobListCore
from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.cores.job_manager.requests.admissions import FindUser, User, UserFound
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.sched.tables import scheduler_policies
from flux_trio.cores.state import CorePart, Plain
from flux_trio.cores.turns import ClearTimer, Core, Log, Note, SetTimer, TimerFired
from flux_trio.faults.disk import Disk, KvsOnDisk, StoreKind
from flux_trio.faults.plugin_files import host_of
from flux_trio.faults.plugins import PRIORITIZE, Answering, PluginsOfWorld
from flux_trio.formats import Idset, ResourceSet
from flux_trio.jobtap import Given
from flux_trio.messages import topics
from flux_trio.protocols import AskHook, HookAnswer, HookAnswered, PluginReplayed
from flux_trio.services.plugin_turns import PluginTurns
from flux_trio.trace import Kind

USERID: Final = 1000  # the owner of the instance
KVS_MODULE: Final = "kvs"


@dataclass(frozen=True)
class Surroundings:
    """What the modules of a world are given.

    `exclude` and `missing` are the targets that are excluded and down from the start of each life.
    `hooks` are the topics that the plugin handles beside job.state.priority. `plugins` are files of
    jobtap plugins. `store` is where the kvs keeps its values.
    """

    inventory: ResourceSet
    exclude: Idset = Idset()  # noqa: RUF009 - it is frozen
    missing: Mapping[int, str] | None = None
    hooks: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    store: StoreKind = "memory"


@dataclass(frozen=True)
class ModulePlan:
    """How a world loads a module: `make` returns its core as it is when the module starts."""

    services: tuple[str, ...]
    events: tuple[str, ...]
    make: Callable[[], Core[Any, Any]]


def module_plans(
    config: Config, given: Surroundings, disk: Disk, fault_of: Callable[[AskHook], Answering | None]
) -> dict[str, ModulePlan]:
    """Return the modules of an instance, in the order of their start."""
    back = topics.SERVICE_BACK_EVENT
    edition = config.edition_value
    return {
        KVS_MODULE: ModulePlan((topics.KVS,), (back,), lambda: KvsOnDisk(disk)),
        "resource": ModulePlan(
            (topics.RESOURCE,),
            (),
            lambda: ResourceCore(
                given.inventory, given.exclude, missing=given.missing, edition=edition
            ),
        ),
        "job-manager": ModulePlan(
            (topics.JOB_MANAGER,),
            (topics.RESOURCE_EXPIRATION_EVENT, topics.KVS_DAMAGED_EVENT),
            lambda: JobManagerAtOnce(config, given, fault_of),
        ),
        "job-exec": ModulePlan(
            (topics.JOB_EXEC,),
            (
                topics.JOB_EXCEPTION_EVENT,
                back,
                topics.RESOURCE_OFFLINE_EVENT,
                topics.RESOURCE_ONLINE_EVENT,
            ),
            lambda: ExecCore(config.exec, edition=edition),
        ),
        "sched": ModulePlan((topics.SCHED,), (back,), lambda: _sched(config)),
        "job-ingest": ModulePlan((topics.JOB_INGEST,), (back,), IngestCore),
        "job-list": ModulePlan(
            (topics.JOB_LIST, topics.JOB_INFO),
            (back, topics.JOB_PURGE_EVENT),
            lambda: JobListCore(config),
        ),
    }


def _sched(config: Config) -> Core[Any, Any]:
    sched, queues = scheduler_policies(config)
    return SchedCore(sched, config.edition_value, queues)


class JobManagerAtOnce:
    """The job manager's core, its plugins and the user database, which answer within the turn.

    A plugin that hangs answers at a timer, whose key has the ticket of the question.
    """

    def __init__(
        self,
        config: Config,
        given: Surroundings,
        fault_of: Callable[[AskHook], Answering | None],
    ) -> None:
        self._late: dict[int, HookAnswer] = {}  # by ticket
        self._timers: list[SetTimer | ClearTimer] = []
        self._now = 0.0
        self._told: list[Any] = []  # by plugins of files: inputs of the core
        self._said: list[Any] = []  # by plugins of files: actions
        self._core = JobManagerCore(USERID, config)
        self._host = host_of(given.plugins, config, self._given()) if given.plugins else None
        if self._host is not None:
            self._host.jobs = self._core
        interests = tuple(dict.fromkeys((PRIORITIZE, *given.hooks)))
        plugins = PluginsOfWorld(interests, fault_of, self._answer_later, self._forget, self._host)
        self._turns = PluginTurns(self._core, plugins)
        self.start = self._turns.start

    @property
    def part(self) -> CorePart:
        """The core itself, which has the state."""
        return self._core

    def dump(self) -> Plain:
        """Return the state of the core."""
        return self._core.dump()

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        """See `Core`."""
        self._now = now
        actions: list[Any] = []
        inputs = [self._through(each) for each in inputs]
        while inputs:
            todo, inputs = self._turns.turn(now, inputs), []
            for action in todo:
                match action:
                    case FindUser(userid):
                        inputs.append(UserFound(userid, User(f"user{userid}")))
                    case PluginReplayed():
                        pass  # no plugin is loaded later
                    case _:
                        actions.append(action)
            inputs += self._told
            self._told.clear()
        if self._host is not None:
            self._host.recount()
        more, self._timers, self._said = [*self._timers, *self._said], [], []
        return actions + more

    def _given(self) -> Given:
        """Return what plugins of files get in place of an instance."""

        def note_all(kind: str, notes: Sequence[dict[str, Any]]) -> None:
            if kind == Kind.COUNTERS:
                notes = [each for each in notes if each["declared"] != each["recounted"]]
            if not self._core.note_all(kind, notes):
                self._said.extend(Note(kind, data) for data in notes)

        return Given(
            tell=self._told.append,
            note_all=note_all,
            is_traced=lambda: True,
            now=lambda: self._now,
            log=lambda level, text: self._said.append(Log(level, text)),
            owner=USERID,
        )

    def _through(self, item: Any) -> Any:
        """Return what the core gets: for the timer of a late answer the answer."""
        match item:
            case TimerFired(key=("plugin", int() as ticket)):
                return HookAnswered(ticket, self._late.pop(ticket))
        return item

    def _answer_later(self, ticket: int, answer: HookAnswer, seconds: float) -> None:
        self._late[ticket] = answer
        self._timers.append(SetTimer(("plugin", ticket), self._now + seconds))

    def _forget(self, ticket: int) -> None:
        if self._late.pop(ticket, None) is not None:
            self._timers.append(ClearTimer(("plugin", ticket)))
