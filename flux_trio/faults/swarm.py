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

from flux_trio.faults import catalogue as c
from flux_trio.faults.catalogue import Fault, Moment, When, Which
from flux_trio.faults.catalogue.base import AnyModule, Crowded, Module, Type
from flux_trio.faults.catalogue.storage import Stored
from flux_trio.faults.plugins import PRIORITIZE
from flux_trio.messages import topics
from flux_trio.protocols import VALIDATE

STEPS: Final = 800  # faults at a step strike before this one
NTH_MAX: Final = 6
RANKS: Final = 4

_MODULES: Final[tuple[Module, ...]] = get_args(Module)
_ALL_MODULES: Final[tuple[AnyModule, ...]] = get_args(AnyModule)
_CROWDED: Final[tuple[Crowded, ...]] = get_args(Crowded)
_BACK_S: Final = (0.0, 0.0, 0.5, 3.0)

_MESSAGES: Final[tuple[tuple[str, Type], ...]] = (
    (topics.SCHED_ALLOC, "request"),
    (topics.SCHED_ALLOC, "response"),
    (topics.SCHED_FREE, "request"),
    (topics.SCHED_FREE, "response"),
    (topics.SCHED_CANCEL, "request"),
    (topics.SCHED_HELLO, "request"),
    (topics.SCHED_HELLO, "response"),
    (topics.SCHED_READY, "request"),
    (topics.RESOURCE_ACQUIRE, "response"),
    ("job-exec.start", "request"),
    ("job-exec.start", "response"),
    (topics.EXEC_HELLO, "request"),
    (topics.KVS_COMMIT, "request"),
    (topics.KVS_COMMIT, "response"),
    (topics.JOB_SUBMIT, "request"),
    (topics.JOB_EXCEPTION_EVENT, "event"),
)


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


def draw_faults(draw: Random, nfaults: int) -> tuple[Fault, ...]:
    """Return `nfaults` faults. The first one, if there are any, ends or delays the scheduler."""
    kinds = draw.sample(list(_MAKERS), draw.randint(1, len(_MAKERS)))
    first = [_of_scheduler(draw)] if nfaults else []
    return (*first, *(_MAKERS[draw.choice(kinds)](draw) for _ in range(nfaults - 1)))


def _of_scheduler(draw: Random) -> Fault:
    when, back = _moment(draw), draw.choice(_BACK_S)
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


def _moment(draw: Random) -> Moment:
    return draw.randint(1, STEPS) if draw.random() < 0.3 else _when(draw)


def _when(draw: Random) -> When:
    topic, type_ = draw.choice(_MESSAGES)
    return When(topic, draw.randint(1, NTH_MAX), draw.choice(("send", "recv")), type_)


def _which(draw: Random) -> Which:
    topic, type_ = draw.choice(_MESSAGES)
    return Which(topic, draw.randint(1, NTH_MAX), type_)


def _back(draw: Random) -> float:
    return draw.choice(_BACK_S)


def _ranks(draw: Random) -> tuple[int, ...]:
    return tuple(sorted(draw.sample(range(RANKS), draw.randint(1, 2))))


def _module(draw: Random) -> Module:
    return draw.choice(_MODULES)


def _nth(draw: Random) -> int:
    return draw.randint(1, NTH_MAX)


def _lie(draw: Random) -> Fault:
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


def _unpromised(draw: Random) -> Fault:
    """Return a fault after which only `error` holds."""
    match draw.choice(("drop", "duplicate", "jump", "damage")):
        case "drop":
            return c.Drop(_which(draw))
        case "duplicate":
            return c.Duplicate(_which(draw))
        case "jump":
            return c.JumpQueue(_which(draw))
        case _:
            what: Stored = draw.choice(get_args(Stored))
            return c.DamagedValue(_moment(draw), what, _nth(draw))


Maker = Callable[[Random], Fault]

_MAKERS: Final[dict[type, Maker]] = {
    c.Crash: lambda d: c.Crash(_any_module(d), _moment(d), _back(d)),
    c.Return: lambda d: c.Return(_module(d), _moment(d), _back(d)),
    c.Unload: lambda d: c.Unload(_any_module(d), _moment(d), _back(d)),
    c.Reload: lambda d: c.Reload(_module(d), _moment(d)),
    c.CrashTogether: lambda d: c.CrashTogether(
        tuple(d.sample(_MODULES, d.randint(2, 4))), _moment(d), _back(d)
    ),
    c.CrashLoop: lambda d: c.CrashLoop(
        _module(d), _moment(d), d.randint(1, 4), d.choice((0.0, 0.5))
    ),
    c.Linger: lambda d: c.Linger(_any_module(d), _moment(d), d.choice((0.5, 2.0, 10.0))),
    c.Slow: lambda d: c.Slow(_any_module(d), _moment(d), 0.1, 5.0),
    c.FullInbox: lambda d: c.FullInbox(d.choice(_CROWDED), _moment(d), d.choice((0.5, 3.0))),
    c.Disconnect: lambda d: c.Disconnect(_module(d), _moment(d), _back(d)),
    c.LateSpeech: lambda d: c.LateSpeech(_module(d), _moment(d), _back(d), 1.0),
    c.SecondScheduler: lambda d: c.SecondScheduler(_moment(d)),
    c.LoseClient: lambda d: c.LoseClient(_moment(d), d.choice((0.0, 0.5))),
    c.LostReader: lambda d: c.LostReader(_moment(d), d.choice((0.0, 2.0))),
    c.GuestFlood: lambda d: c.GuestFlood(_moment(d), d.randint(1, 10)),
    c.WrongRequest: lambda d: c.WrongRequest(
        _moment(d), d.choice((topics.JOB_RAISE, topics.RESOURCE_DRAIN)), {"id": "no number"}
    ),
    c.NodesDown: lambda d: c.NodesDown(_ranks(d), _moment(d), d.choice((0.5, 5.0))),
    c.NodesUp: lambda d: c.NodesUp(_ranks(d), _moment(d)),
    c.Drain: lambda d: c.Drain(_ranks(d), _moment(d), d.choice((0.5, 5.0))),
    c.Shrink: lambda d: c.Shrink(_ranks(d), _moment(d), d.choice((0.5, 5.0))),
    c.Exclude: lambda d: c.Exclude(_ranks(d), _moment(d)),
    c.SlowDisk: lambda d: c.SlowDisk(_moment(d), d.choice((0.1, 1.0)), 5.0),
    c.DiskFull: lambda d: c.DiskFull(_moment(d), d.choice((0.5, 5.0))),
    c.DiskFails: lambda d: c.DiskFails(_moment(d), d.choice((0.0, 2.0))),
    c.TornCommit: lambda d: c.TornCommit(_moment(d), d.random() < 0.5, _back(d)),
    c.KillInstance: lambda d: c.KillInstance(_moment(d), _back(d)),
    c.RestartInstance: lambda d: c.RestartInstance(_moment(d), _back(d)),
    c.ClockJump: lambda d: c.ClockJump(_moment(d), d.choice((-3600.0, -1.0, 1.0, 3600.0))),
    c.ClockDrift: lambda d: c.ClockDrift(_moment(d), d.choice((-0.5, 0.5))),
    c.Sleep: lambda d: c.Sleep(_moment(d), d.choice((3.0, 3600.0))),
    c.Delay: lambda d: c.Delay(_which(d), d.choice((0.1, 2.0))),
    c.Overtaken: lambda d: c.Overtaken(_which(d), d.randint(1, 5)),
    c.HeldUntil: lambda d: c.HeldUntil(_which(d), _when(d)),
    c.PluginRaises: lambda d: c.PluginRaises(_nth(d)),
    c.PluginHangs: lambda d: c.PluginHangs(_nth(d), seconds=d.choice((0.5, 5.0))),
    c.PluginSaysWrong: lambda d: c.PluginSaysWrong(_nth(d), said=d.choice((-1, "high"))),
    c.PluginWrongPriority: lambda d: c.PluginWrongPriority(_nth(d)),
    c.PluginRejects: lambda d: c.PluginRejects(_nth(d), d.choice((VALIDATE, PRIORITIZE))),
    c.PluginUnavailable: lambda d: c.PluginUnavailable(_nth(d)),
    c.Lie: _lie,
    c.Drop: _unpromised,
}
"""Draws a fault of each kind."""


def _any_module(draw: Random) -> AnyModule:
    """Return a module; the kvs is the rarest."""
    return draw.choice((*_MODULES, *_ALL_MODULES))
