"""Faults of connections, of second services and of clients."""

from __future__ import annotations

from typing import Any, ClassVar

from flux_trio.lab.catalogue.aim import always, any_moment, back_s, module_but_kvs, number, one_of
from flux_trio.lab.catalogue.base import Holds, Strike, fault
from flux_trio.lab.catalogue.places import Machine, Module, Moment, Seconds, Times
from flux_trio.lab.catalogue.requests import check_topic, check_topic_of_client, unfit_ranks
from flux_trio.lab.world import parties
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.messages import topics


@fault
class Disconnect(Strike, frozen=True):
    """The module's connection is lost, with what was sent to it and what it has just taken.

    Another one is loaded after `back` seconds.
    """

    module: Module
    when: Moment
    back: Seconds = 0.0

    draws = (module_but_kvs, any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        parties.cut_off(world, self.module)
        world.load_later(self.module, self.back)


@fault
class LateSpeech(Strike, frozen=True):
    """The module's connection is lost; another one is loaded after `back` seconds.

    After `late` seconds the old one is connected again, under another name, and sends the answers
    that it has then; they are stale, and to speak so breaks clauses.
    """

    holds: ClassVar[Holds] = Holds.OTHERS

    module: Module
    when: Moment
    back: Seconds = 0.0
    late: Seconds = 1.0

    draws = (module_but_kvs, any_moment, back_s)

    def strike(self, world: CoresWorld) -> None:
        found = parties.cut_off(world, self.module)
        world.load_later(self.module, self.back)
        if found is not None:
            world.later(self.late, world.when_up, lambda: parties.speak_again(world, *found))


@fault
class SecondScheduler(Strike, frozen=True):
    """Another scheduler comes while the first one serves; it goes if it acquires resources."""

    when: Moment

    draws = (any_moment,)

    def strike(self, world: CoresWorld) -> None:
        parties.add_second(world, topics.SCHED)


@fault
class LoseClient(Strike, frozen=True, omit_defaults=True):  # TOML has no null
    """The owner's connection is lost, with the answers to come; the owner connects again.

    If `late` is given, the old connection is there again after so many seconds, under another name.
    It sends the requests again that were open, reads no answer, and is gone.
    """

    when: Moment
    back: Seconds = 0.5
    late: Seconds | None = None

    draws = (any_moment, one_of(0.0, 0.5), always(1.0))

    def strike(self, world: CoresWorld) -> None:
        parties.lose_client(world, self.back, self.late)


@fault
class LostReader(Strike, frozen=True):
    """A client follows the job manager's journal, reads nothing, and is lost after `seconds`.

    It is dropped when its queue is full, in which there is still room for `room` messages.
    """

    when: Moment
    seconds: Seconds = 2.0
    room: Times = 4

    draws = (any_moment, one_of(0.0, 2.0))

    def strike(self, world: CoresWorld) -> None:
        parties.follow_journal(world, self.seconds, self.room)


@fault
class GuestFlood(Strike, frozen=True):
    """A guest sends `count` submissions at once and is gone `seconds` later."""

    when: Moment
    count: Times = 20
    seconds: Seconds = 5.0

    draws = (any_moment, number(1, 10))

    def strike(self, world: CoresWorld) -> None:
        parties.flood(world, self.count, self.seconds)


@fault
class WrongRequest(Strike, frozen=True):
    """A client sends a request that the service does not understand, and gets an error."""

    when: Moment
    topic: str
    payload: dict[str, Any]

    draws = (
        any_moment,
        one_of(topics.JOB_RAISE, topics.RESOURCE_DRAIN),
        always({"id": "no number"}),
    )

    def check(self, machine: Machine) -> None:  # noqa: ARG002 - the interface
        check_topic(self.topic)
        check_topic_of_client(self.topic)

    def unfit_ranks(self, machine: Machine) -> tuple[int, ...]:
        return unfit_ranks(self.payload, machine)

    @property
    def may_exclude(self) -> bool:
        return self.topic == topics.RESOURCE_EXCLUDE

    def strike(self, world: CoresWorld) -> None:
        parties.ask_once(world, self.topic, self.payload)
