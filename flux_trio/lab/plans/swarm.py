"""Draws faults: every seed has its own subset of the catalogue (a swarm).

Faults after which only `error` holds are one kind together, and so are lies, so that few seeds have
one. Who lies is the scheduler, the execution service or the resource service, in messages that the
others must bear: who trusts a lie of the job manager or the kvs may break clauses himself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, get_args

from msgspec.structs import replace

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import Fault, Moment, When, Which
from flux_trio.lab.catalogue.base import AnyModule, Crowded, Module, Type
from flux_trio.lab.catalogue.storage import Stored
from flux_trio.lab.world.plugins import PRIORITIZE
from flux_trio.messages import topics
from flux_trio.protocols import VALIDATE

STEPS_OF_JOB: Final = 20
STEPS_OF_BOOT: Final = 40  # faults at a step strike while the world boots, or its jobs run
NTH_MAX: Final = 6
AIMS_MAX: Final = 4

_MODULES: Final[tuple[Module, ...]] = get_args(Module)
_LIKELY: Final[tuple[AnyModule, ...]] = (
    *get_args(AnyModule),
    *_MODULES,
    *("job-manager", "job-exec") * 3,
    *("sched", "resource"),
)
"""The modules by how often they are drawn: those that keep jobs more often, the kvs seldom."""
_CROWDED: Final[tuple[Crowded, ...]] = get_args(Crowded)
_BACK_S: Final = (0.0, 0.0, 0.5, 3.0, 12.0)

_EACH_JOBS: Final[tuple[tuple[str, Type], ...]] = (
    (topics.INGEST_SUBMIT, "request"),
    (topics.JOB_SUBMIT, "request"),
    (topics.JOB_SUBMIT, "response"),
    (topics.SCHED_ALLOC, "request"),
    (topics.SCHED_ALLOC, "response"),
    ("job-exec.start", "request"),
    ("job-exec.start", "response"),
    ("job-exec.start", "response"),
    (topics.SCHED_FREE, "request"),
    (topics.SCHED_FREE, "response"),
    (topics.KVS_COMMIT, "request"),
    (topics.KVS_COMMIT, "response"),
    (topics.KVS_LOOKUP, "response"),
    (topics.JOB_JOURNAL, "response"),
    (topics.JOB_EXCEPTION_EVENT, "event"),
)
"""Messages that are sent about each job, or nearly each."""
_SELDOM: Final[tuple[tuple[str, Type], ...]] = (
    (topics.SCHED_CANCEL, "request"),
    (topics.SCHED_PRIORITIZE, "request"),
    (topics.SCHED_HELLO, "request"),
    (topics.SCHED_HELLO, "response"),
    (topics.SCHED_READY, "request"),
    (topics.RESOURCE_ACQUIRE, "request"),
    (topics.RESOURCE_ACQUIRE, "response"),
    (topics.RESOURCE_OFFLINE_EVENT, "event"),
    (topics.EXEC_HELLO, "request"),
    (topics.EXEC_HELLO, "response"),
    (topics.SERVICE_BACK_EVENT, "event"),
    (topics.JOB_RAISE, "request"),
    (topics.JOB_URGENCY, "request"),
    (topics.JOB_QUEUE_START, "request"),
    ("*.disconnect", "request"),
)
"""Messages that are sent when a module starts or goes, or a user asks for something."""


_BY_SCHED: Final = (
    Which(topics.SCHED_ALLOC, type="response", party="sched"),
    Which(topics.SCHED_FREE, type="response", party="sched"),
)
_BY_EXEC: Final = (Which("job-exec.start", type="response", party="job-exec"),)
_BY_RESOURCE: Final = (Which(topics.RESOURCE_ACQUIRE, type="response", party="resource"),)
_HELLOS: Final = (
    Which(topics.SCHED_HELLO, party="sched"),
    Which(topics.SCHED_READY, party="sched"),
    Which(topics.EXEC_HELLO, party="job-exec"),
    Which(topics.RESOURCE_STATUS, type="response", party="resource"),
)
_R_STORED: Final = Which(topics.KVS_COMMIT, party="sched")


class Aim:
    """Draws the moments of one world: most are near a few messages, so that faults meet."""

    def __init__(self, draw: Random, njobs: int, nnodes: int) -> None:
        self._draw = draw
        self._njobs = max(njobs, 1)
        self._nnodes = nnodes
        self._aims = [self._message() for _ in range(draw.randint(1, AIMS_MAX))]

    def moment(self) -> Moment:
        """Return a message or the number of a step."""
        if self._draw.random() < 0.2:
            return self._draw.randint(1, STEPS_OF_BOOT + STEPS_OF_JOB * self._njobs)
        return self.when()

    def when(self) -> When:
        """Return a message that is sent or received."""
        topic, type_, nth = self._aim()
        return When(topic, nth, self._draw.choice(("send", "recv")), type_)

    def which(self) -> Which:
        """Return a message that is sent."""
        topic, type_, nth = self._aim()
        return Which(topic, nth, type_)

    def ranks(self) -> tuple[int, ...]:
        """Return one or two of the nodes."""
        count = self._draw.randint(1, min(2, self._nnodes))
        return tuple(sorted(self._draw.sample(range(self._nnodes), count)))

    def _aim(self) -> tuple[str, Type, int]:
        """Return topic, type and number of a message: one of the aims, or a little later."""
        if self._draw.random() < 0.4:
            return self._message()
        topic, type_, nth = self._draw.choice(self._aims)
        return topic, type_, nth + self._draw.choice((0, 0, 1))

    def _message(self) -> tuple[str, Type, int]:
        if self._draw.random() < 0.3:
            return (*self._draw.choice(_SELDOM), self._draw.choice((1, 1, 1, 2, 3)))
        nth = 1 + int(self._draw.expovariate(2 / self._njobs))
        return (*self._draw.choice(_EACH_JOBS), min(nth, 2 * self._njobs, 2 * NTH_MAX))


def draw_faults(draw: Random, nfaults: int, aim: Aim) -> tuple[Fault, ...]:
    """Return `nfaults` faults at moments of `aim`. The first ends or delays the scheduler."""
    kinds = draw.sample(list(_MAKERS), draw.randint(1, len(_MAKERS)))
    first = [_of_scheduler(draw, aim)] if nfaults else []
    return (*first, *(_fault(draw, aim, kinds) for _ in range(nfaults - 1)))


def _fault(draw: Random, aim: Aim, kinds: list[type]) -> Fault:
    """Return a fault of one of the kinds; every third ends a module."""
    kind = draw.choice(kinds if draw.random() < 0.67 else _ENDINGS)
    return _MAKERS[kind](draw, aim)


def _of_scheduler(draw: Random, aim: Aim) -> Fault:
    when, back = aim.moment(), draw.choice(_BACK_S)
    match draw.choice(("crash", "crash", "unload", "linger", "reload", "return", "cut")):
        case "crash":
            return c.Crash("sched", when, back)
        case "unload":
            return c.Unload("sched", when, back)
        case "linger":
            return c.Linger("sched", when, draw.choice((0.5, 2.0, 10.0)))
        case "reload":
            return c.Reload("sched", when)
        case "return":
            return c.Return("sched", when, back)
        case _:
            return c.Disconnect("sched", when, back)


def _back(draw: Random) -> float:
    return draw.choice(_BACK_S)


def _any_module(draw: Random) -> AnyModule:
    return draw.choice(_LIKELY)


def _module(draw: Random) -> Module:
    drawn = draw.choice(_LIKELY)
    return draw.choice(_MODULES) if drawn == "kvs" else drawn


def _nth(draw: Random) -> int:
    return draw.randint(1, NTH_MAX)


def _lie(draw: Random, _aim: Aim) -> Fault:
    """Return a lie about the nth message of one kind."""
    match draw.choice(("sched", "sched", "sched", "grant", "exec", "resource", "hello")):
        case "sched":
            which, lies = draw.choice(_BY_SCHED), _ABOUT_ANSWERS
        case "grant":
            which, lies = _R_STORED, (c.GrantOverlap, c.GrantForeign)
        case "exec":
            which, lies = draw.choice(_BY_EXEC), (c.ErrorAnswer, c.Withheld)
        case "resource":
            which, lies = draw.choice(_BY_RESOURCE), _ABOUT_RESOURCES
        case _:
            which, lies = draw.choice(_HELLOS), (c.NoObject, c.Withheld)
    return draw.choice(lies)(replace(which, nth=_nth(draw)))


_ABOUT_ANSWERS: Final[tuple[Callable[[Which], Fault], ...]] = (
    lambda which: c.RemovedKey(which, "id"),
    lambda which: c.ChangedKey(which, "id", -1),
    c.NoObject,
    c.WrongType,
    c.UnknownId,
    c.Repeated,
    c.StrayAnswer,
    c.Withheld,
    c.ErrorAnswer,
)
_ABOUT_RESOURCES: Final[tuple[Callable[[Which], Fault], ...]] = (
    c.NoObject,
    c.Repeated,
    c.Withheld,
    c.ErrorAnswer,
)


def _unpromised(draw: Random, aim: Aim) -> Fault:
    """Return a fault after which only `error` holds."""
    match draw.choice(("drop", "duplicate", "jump", "damage")):
        case "drop":
            return c.Drop(aim.which())
        case "duplicate":
            return c.Duplicate(aim.which())
        case "jump":
            return c.JumpQueue(aim.which())
        case _:
            what: Stored = draw.choice(get_args(Stored))
            return c.DamagedValue(aim.moment(), what, _nth(draw))


Maker = Callable[[Random, Aim], Fault]

_MAKERS: Final[dict[type, Maker]] = {
    c.Crash: lambda d, aim: c.Crash(_any_module(d), aim.moment(), _back(d)),
    c.Return: lambda d, aim: c.Return(_module(d), aim.moment(), _back(d)),
    c.Unload: lambda d, aim: c.Unload(_any_module(d), aim.moment(), _back(d)),
    c.Reload: lambda d, aim: c.Reload(_module(d), aim.moment()),
    c.CrashTogether: lambda d, aim: c.CrashTogether(
        tuple(d.sample(_MODULES, d.randint(2, 4))), aim.moment(), _back(d)
    ),
    c.CrashLoop: lambda d, aim: c.CrashLoop(
        _module(d), aim.moment(), d.randint(1, 4), d.choice((0.0, 0.5))
    ),
    c.Linger: lambda d, aim: c.Linger(_any_module(d), aim.moment(), d.choice((0.5, 2.0, 10.0))),
    c.Slow: lambda d, aim: c.Slow(_any_module(d), aim.moment(), 0.1, 5.0),
    c.FullInbox: lambda d, aim: c.FullInbox(d.choice(_CROWDED), aim.moment(), d.choice((0.5, 3.0))),
    c.Disconnect: lambda d, aim: c.Disconnect(_module(d), aim.moment(), _back(d)),
    c.LateSpeech: lambda d, aim: c.LateSpeech(_module(d), aim.moment(), _back(d), 1.0),
    c.SecondScheduler: lambda _, aim: c.SecondScheduler(aim.moment()),
    c.LoseClient: lambda d, aim: c.LoseClient(aim.moment(), d.choice((0.0, 0.5)), 1.0),
    c.LostReader: lambda d, aim: c.LostReader(aim.moment(), d.choice((0.0, 2.0))),
    c.GuestFlood: lambda d, aim: c.GuestFlood(aim.moment(), d.randint(1, 10)),
    c.WrongRequest: lambda d, aim: c.WrongRequest(
        aim.moment(), d.choice((topics.JOB_RAISE, topics.RESOURCE_DRAIN)), {"id": "no number"}
    ),
    c.NodesDown: lambda d, aim: c.NodesDown(aim.ranks(), aim.moment(), d.choice((0.5, 5.0, 60.0))),
    c.NodesUp: lambda _, aim: c.NodesUp(aim.ranks(), aim.moment()),
    c.Drain: lambda d, aim: c.Drain(aim.ranks(), aim.moment(), d.choice((0.5, 5.0))),
    c.Shrink: lambda d, aim: c.Shrink(aim.ranks(), aim.moment(), d.choice((0.5, 5.0))),
    c.Exclude: lambda _, aim: c.Exclude(aim.ranks(), aim.moment()),
    c.SlowDisk: lambda d, aim: c.SlowDisk(aim.moment(), d.choice((0.1, 1.0)), 5.0),
    c.DiskFull: lambda d, aim: c.DiskFull(aim.moment(), d.choice((0.5, 5.0))),
    c.DiskFails: lambda d, aim: c.DiskFails(aim.moment(), d.choice((0.0, 2.0))),
    c.TornCommit: lambda d, aim: c.TornCommit(aim.moment(), d.random() < 0.5, _back(d)),
    c.KillInstance: lambda d, aim: c.KillInstance(aim.moment(), _back(d)),
    c.RestartInstance: lambda d, aim: c.RestartInstance(aim.moment(), _back(d)),
    c.ClockJump: lambda d, aim: c.ClockJump(aim.moment(), d.choice((-3600.0, -1.0, 1.0, 3600.0))),
    c.ClockDrift: lambda d, aim: c.ClockDrift(aim.moment(), d.choice((-0.5, 0.5))),
    c.Sleep: lambda d, aim: c.Sleep(aim.moment(), d.choice((3.0, 3600.0))),
    c.Delay: lambda d, aim: c.Delay(aim.which(), d.choice((0.1, 2.0))),
    c.Overtaken: lambda d, aim: c.Overtaken(aim.which(), d.randint(1, 5)),
    c.HeldUntil: lambda _, aim: c.HeldUntil(aim.which(), aim.when()),
    c.PluginRaises: lambda d, _: c.PluginRaises(_nth(d)),
    c.PluginHangs: lambda d, _: c.PluginHangs(_nth(d), seconds=d.choice((0.5, 5.0))),
    c.PluginSaysWrong: lambda d, _: c.PluginSaysWrong(_nth(d), said=d.choice((-1, "high"))),
    c.PluginWrongPriority: lambda d, _: c.PluginWrongPriority(_nth(d)),
    c.PluginRejects: lambda d, _: c.PluginRejects(_nth(d), d.choice((VALIDATE, PRIORITIZE))),
    c.PluginUnavailable: lambda d, _: c.PluginUnavailable(_nth(d)),
    c.Lie: _lie,
    c.Drop: _unpromised,
}
"""Draws a fault of each kind."""
_ENDINGS: Final[list[type]] = [c.Crash, c.Crash, c.Return, c.Unload, c.Reload, c.Disconnect]
"""Faults after which a module is another one."""
