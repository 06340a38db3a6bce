"""Finds the moments of a plan's faults, and lets each strike: the nth message that matches, a step,
or the nth question to a plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.cores.turns import Outgoing
from flux_trio.formats.glob import Glob
from flux_trio.lab.catalogue import Fault, Lie, OnTheWay, PluginFault, SentMessage, When
from flux_trio.lab.catalogue.messages import Flight
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.parties import prompt_owner
from flux_trio.messages import Event, Request, Response
from flux_trio.protocols import AskHook
from flux_trio.trace import Kind, Record

_TYPES: Final[dict[str, type]] = {"request": Request, "response": Response, "event": Event}
PARTY: Final = "faults"


class NthMessage:
    """Finds the message that a moment names: of all that match, the nth.

    With `fits`, only messages for which it returns True are counted.
    """

    def __init__(
        self, sought: When | SentMessage, fits: Callable[[Any], bool] = lambda _: True
    ) -> None:
        self._fits = fits
        self._kind: str = sought.side if isinstance(sought, When) else Kind.SEND.value
        self._type = _TYPES[sought.type]
        self._party = sought.party
        self._topics = Glob(sought.topic)
        self._left = sought.nth

    def may_be(self, kind: str, type_: type, topic: str) -> bool:
        """Return whether a message of this kind, type and topic may be the one looked for."""
        return kind == self._kind and type_ is self._type and self._topics.matches(topic)

    def is_it(self, kind: str, party: str, message: Any) -> bool:
        """Return whether this message is the one; count it if it matches."""
        if not self.may_be(kind, type(message), getattr(message, "topic", "")) or (
            self._party and party != self._party
        ):
            return False
        if not self._fits(message):
            return False
        self._left -= 1
        return self._left == 0


_Awaited: TypeAlias = tuple[NthMessage, Callable[[Record], None]]
"""A message that is sought, and what strikes at it."""


class Moments:
    """Lets each fault of a plan strike at its moment.

    `struck` has those that have struck. `prompts` are the messages at which the owner makes a
    request, by the place of the request in the plan.
    """

    def __init__(
        self, faults: tuple[Fault, ...], world: CoresWorld, prompts: Mapping[int, When]
    ) -> None:
        self._world = world
        self._at_step: dict[int, list[Fault]] = {}
        self._awaited: list[_Awaited] = []
        self._found: dict[tuple[str, type, str], list[_Awaited]] = {}
        """The moments that a message of this kind, type and topic may be; computed from
        `_awaited`."""
        self._lies: list[tuple[NthMessage, Lie]] = []
        self._plugin: list[tuple[PluginFault, int]] = []  # and how often it is asked before
        self.struck: list[Fault] = []
        for fault in faults:
            self._expect(fault)
        self.prompted: set[int] = set()
        """The places of the owner's requests whose message has come, so that they are made now."""
        for place, when in prompts.items():
            self._await(when, self._prompting(place))
        world.trace.add_sink(self.observe)
        world.answers = self._fault_of
        if self._lies:
            world.in_place_of = self._in_place_of

    def _expect(self, fault: Fault) -> None:
        if isinstance(fault, OnTheWay):
            self._await(fault.which, lambda record: self._apply(fault, record))
        elif isinstance(fault, Lie):
            self._lies.append((NthMessage(fault.which, fault.fits), fault))
        elif isinstance(fault, PluginFault):
            self._plugin.append((fault, fault.nth - 1))
        elif isinstance(fault.place, When):
            self._await(fault.place, lambda _: self._strike(fault))
        elif isinstance(fault.place, int):
            self._at_step.setdefault(fault.place, []).append(fault)

    def _await(self, sought: When | SentMessage, strike: Callable[[Record], None]) -> None:
        self._awaited.append((NthMessage(sought), strike))
        self._found.clear()

    def end(self) -> None:
        """Let no other fault strike, and release all messages that are held."""
        self._world.disk.torn = None  # no transaction came since TornCommit
        self._world.trace.remove_sink(self.observe)
        self._world.answers = lambda _: None
        self._world.in_place_of = None
        self._world.release_all()

    def step(self) -> None:
        """Let the faults strike whose moment is the step that comes now."""
        for fault in self._at_step.pop(self._world.nsteps, ()):
            self._strike(fault)

    def observe(self, record: Record) -> None:
        """Look whether the next record of the trace is a moment that a fault or a request waits
        for.
        """
        message = record.message
        if message is None:
            return
        what = (record.kind, type(message), getattr(message, "topic", ""))
        found = self._found.get(what)
        if found is None:
            found = [each for each in self._awaited if each[0].may_be(*what)]
            self._found[what] = found
        for sought, strike in found:
            if sought.is_it(record.kind, record.party, message):
                self._world.at_once(_with(strike, record))

    def _prompting(self, place: int) -> Callable[[Record], None]:
        def prompt(_: Record) -> None:
            self.prompted.add(place)
            prompt_owner(self._world, place)

        return prompt

    def _strike(self, fault: Any) -> None:
        self.note(fault)
        fault.strike(self._world)

    def _apply(self, fault: OnTheWay, record: Record) -> None:
        for flight in flights_of(self._world, record):
            self.note(fault)
            fault.apply(flight)
            if fault.until is not None:
                self._await(fault.until, _releasing(flight))

    def _in_place_of(self, party: str, message: Outgoing) -> list[Outgoing] | None:
        """Return what `party` says in place of `message`; None: the message itself."""
        for sought, lie in self._lies:
            if sought.is_it(Kind.SEND, party, message):
                self.note(lie)
                self._world.liars[party] = None
                return lie.in_place_of(message)
        return None

    def _fault_of(self, question: AskHook) -> PluginFault | None:
        """Return the fault that answers a question to a plugin, or None."""
        found = None
        for place, (fault, nbefore) in enumerate(self._plugin):
            if fault.hook == question.topic:
                self._plugin[place] = (fault, nbefore - 1)
                if nbefore == 0:
                    self.note(fault)
                    found = fault
        return found

    def note(self, fault: Any) -> None:
        """Put a fault into the trace, and among those that have struck."""
        self.struck.append(fault)
        self._world.trace.note(Kind.FAULT, PARTY, msgspec.to_builtins(fault))


def flights_of(world: CoresWorld, record: Record) -> list[Flight]:
    """Return the message of this record on its way to each receiver that has not taken it."""
    if record.message is None:
        return []
    return [
        Flight(world, station, record.n, record.message)
        for station in world.stations.values()
        if station.has(record.n)
    ]


def _releasing(flight: Flight) -> Callable[[Record], None]:
    return lambda _: flight.release()


def _with(strike: Callable[[Record], None], record: Record) -> Callable[[], None]:
    return lambda: strike(record)
