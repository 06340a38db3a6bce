"""Draws where faults strike, and with what values: the same for all kinds of faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeAlias, get_args

from flux_trio.lab.catalogue.places import AnyModule, Module, Moment, SentMessage, Type, When
from flux_trio.messages import topics

STEPS_OF_JOB: Final = 20
STEPS_OF_BOOT: Final = 40  # faults at a step strike while the world boots, or its jobs run
NTH_MAX: Final = 6
AIMS_MAX: Final = 4

MODULES: Final[tuple[Module, ...]] = get_args(Module)
LIKELY: Final[tuple[AnyModule, ...]] = (
    *get_args(AnyModule),
    *MODULES,
    *("job-manager", "job-exec") * 3,
    *("sched", "resource"),
)
"""The modules by how often they are drawn: those that keep jobs more often, the kvs seldom."""

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


class Aim:
    """Draws the moments and nodes of faults in one world.

    Most moments are near a few messages that are drawn first, so that several faults come together.
    """

    def __init__(self, draw: Random, njobs: int, nnodes: int) -> None:
        self._draw = draw
        self._njobs = max(njobs, 1)
        self._nnodes = nnodes
        self._aims = [self._message() for _ in range(draw.randint(1, AIMS_MAX))]

    def moment(self) -> Moment:
        """Draw a moment: a message, or now and then the number of a step."""
        if self._draw.random() < 0.2:
            return self._draw.randint(1, STEPS_OF_BOOT + STEPS_OF_JOB * self._njobs)
        return self.when()

    def when(self) -> When:
        """Draw a message that is sent or received."""
        topic, type_, nth = self._aim()
        return When(topic, nth, self._draw.choice(("send", "recv")), type_)

    def which(self) -> SentMessage:
        """Draw a message that is sent."""
        topic, type_, nth = self._aim()
        return SentMessage(topic, nth, type_)

    def ranks(self) -> tuple[int, ...]:
        """Draw one or two of the nodes."""
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


# --- the values of a fault


Drawer: TypeAlias = Callable[[Random, Aim], Any]
"""Draws the value of a field of a fault."""


def one_of(*values: Any) -> Drawer:
    """Draw one of these values."""
    return lambda draw, _aim: draw.choice(values)


def always(value: Any) -> Drawer:
    """Draw nothing: the value is always the same."""
    return lambda _draw, _aim: value


def number(least: int, most: int) -> Drawer:
    """Draw a number."""
    return lambda draw, _aim: draw.randint(least, most)


def any_moment(_draw: Random, aim: Aim) -> Moment:
    return aim.moment()


def message(_draw: Random, aim: Aim) -> When:
    return aim.when()


def message_sent(_draw: Random, aim: Aim) -> SentMessage:
    return aim.which()


def some_ranks(_draw: Random, aim: Aim) -> tuple[int, ...]:
    return aim.ranks()


def half_of_them(draw: Random, _aim: Aim) -> bool:
    return draw.random() < 0.5


back_s: Final = one_of(0.0, 0.0, 0.5, 3.0, 12.0)
"""Draws after how many seconds something that was taken away is back."""
small_number: Final = number(1, NTH_MAX)
"""Draws the number of a message or question among those of its kind."""
any_module: Final = one_of(*LIKELY)
"""Draws a module; the kvs may be drawn, too."""


def module_but_kvs(draw: Random, _aim: Aim) -> Module:
    """Draw a module that is not the kvs, with which the instance would end."""
    drawn = draw.choice(LIKELY)
    return draw.choice(MODULES) if drawn == "kvs" else drawn


def some_modules(draw: Random, _aim: Aim) -> tuple[Module, ...]:
    """Draw several modules that are not the kvs."""
    return tuple(draw.sample(MODULES, draw.randint(2, 4)))
