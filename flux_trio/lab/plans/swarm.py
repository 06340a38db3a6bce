"""Draws faults: every seed has its own subset of the catalogue (a swarm).

Faults after which only `error` holds are one kind together, and so are lies, so that few seeds have
one. Who lies is the scheduler, the execution service or the resource service, in messages that the
others must bear: who trusts a lie of the job manager or the kvs may break clauses himself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import FAULTS, Fault, Holds, SentMessage, Strike
from flux_trio.lab.catalogue.aim import Aim, back_s, small_number
from flux_trio.lab.catalogue.base import DrawnFault, LieInPlaceOf
from flux_trio.messages import topics

_LIED_ABOUT: Final[dict[str, tuple[SentMessage, ...]]] = {
    "answer": (
        SentMessage(topics.SCHED_ALLOC, type="response", party="sched"),
        SentMessage(topics.SCHED_FREE, type="response", party="sched"),
    ),
    "grant": (SentMessage(topics.KVS_COMMIT, party="sched"),),
    "execution": (SentMessage("job-exec.start", type="response", party="job-exec"),),
    "resources": (SentMessage(topics.RESOURCE_ACQUIRE, type="response", party="resource"),),
    "hello": (
        SentMessage(topics.SCHED_HELLO, party="sched"),
        SentMessage(topics.SCHED_READY, party="sched"),
        SentMessage(topics.EXEC_HELLO, party="job-exec"),
        SentMessage(topics.RESOURCE_STATUS, type="response", party="resource"),
    ),
}
"""The messages in which seeds let a party lie: answers of the scheduler, the R that it stores,
answers of the execution service and of the resource service, and first messages."""


def draw_faults(draw: Random, nfaults: int, aim: Aim) -> tuple[Fault, ...]:
    """Return `nfaults` faults, most of them at a few moments of `aim`, so that they come together.

    The first one ends or delays the scheduler.
    """
    kinds = draw.sample(_KINDS, draw.randint(1, len(_KINDS)))
    first = [_of_scheduler(draw, aim)] if nfaults else []
    return (*first, *(_fault(draw, aim, kinds) for _ in range(nfaults - 1)))


def _fault(draw: Random, aim: Aim, kinds: list[Maker]) -> Fault:
    """Return a fault of one of the kinds; every third ends a module."""
    return draw.choice(kinds if draw.random() < 0.67 else _ENDINGS)(draw, aim)


def _of_scheduler(draw: Random, aim: Aim) -> Fault:
    when, back = aim.moment(), back_s(draw, aim)
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


def _lie(draw: Random, aim: Aim) -> Fault:
    """Return a lie about the nth message of one kind."""
    about = draw.choice(("answer", "answer", "answer", "grant", "execution", "resources", "hello"))
    which = draw.choice(_LIED_ABOUT[about])
    lie = draw.choice(_LIES[about])
    return lie.about(replace(which, nth=small_number(draw, aim)))


def _unpromised(draw: Random, aim: Aim) -> Fault:
    """Return a fault after which only `error` holds."""
    return draw.choice(_UNPROMISED).drawn(draw, aim)


Maker = Callable[[Random, Aim], Fault]

_DRAWN: Final = [each for each in FAULTS if issubclass(each, DrawnFault)]
_UNPROMISED: Final = sorted(
    [each for each in _DRAWN if each.holds is Holds.NO_ERROR],
    key=lambda each: issubclass(each, Strike),
)
_KINDS: Final[list[Maker]] = [
    *(each.drawn for each in _DRAWN if each not in _UNPROMISED),
    _lie,
    _unpromised,
]
"""Draws a fault of each kind."""
_LIES: Final[dict[str, list[type[LieInPlaceOf]]]] = {
    about: [each for each in FAULTS if issubclass(each, LieInPlaceOf) and about in each.drawn_about]
    for about in _LIED_ABOUT
}
_LIES["execution"].reverse()  # seeds that are known draw them in this order
_ENDINGS: Final[list[Maker]] = [
    each.drawn for each in (c.Crash, c.Crash, c.Return, c.Unload, c.Reload, c.Disconnect)
]
"""Faults after which a module is another one."""
