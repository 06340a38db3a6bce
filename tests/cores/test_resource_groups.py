"""Two schedulers that believe what they are told: whatever happens, their pictures are right."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import inventory_from_config
from flux_trio.cores.resource.groups import Groups
from flux_trio.editions import CLASSIC
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Response
from tests.support.asking import asked

INVENTORY = inventory_from_config([ResourceEntry("n[0-5]", cores="0")])
TARGETS = st.sets(st.integers(0, 5)).map(Idset.of)
GROUPS = st.sampled_from(["default", "exclude"])


class Holder:
    """A scheduler with one group: 28.grow.1, 28.shrink.3, 28.online.1, 28.offline.1."""

    def __init__(self) -> None:
        self.granted = self.online = self.unreleased = Idset()

    def take(self, payload: dict[str, object]) -> None:
        if payload["type"] == "grow":
            new = ResourceSet.parse(payload["resources"]).ranks
            online, offline = (Idset.parse(str(payload[key])) for key in ("online", "offline"))
            assert online.is_disjoint(offline)
            assert online | offline == new
            assert new.is_disjoint(self.granted | self.unreleased)
            self.granted |= new
            self.online |= online
            return
        targets = Idset.parse(str(payload["targets"]))
        assert targets
        assert targets <= self.granted
        if payload["type"] == "online":
            assert targets.is_disjoint(self.online)
            self.online |= targets
            return
        if payload["type"] == "offline":
            assert targets <= self.online
        else:
            self.granted -= targets
            self.unreleased |= targets
        self.online -= targets


class Schedulers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(INVENTORY, Idset(), CLASSIC)
        self.up = INVENTORY.ranks
        self.holders: dict[str, Holder] = {}

    def tell(self) -> None:
        for response in self.groups.update(self.up):
            assert isinstance(response, Response)
            assert isinstance(response.payload, dict)
            self.holders[response.routes[0]].take(response.payload)

    @rule(group=GROUPS)
    def acquire(self, group: str) -> None:
        if group not in self.holders and self.groups.members(group):
            self.holders[group] = Holder()
            request = asked("resource.acquire", {"group": group}, by=group, streaming=True)
            self.groups.acquire(group, request)
            self.tell()

    @precondition(lambda self: self.holders)
    @rule(group=GROUPS)
    def disconnect(self, group: str) -> None:
        self.holders.pop(group, None)
        self.groups.disconnect(group)
        self.tell()

    @rule(ids=TARGETS)
    def exclude(self, ids: Idset) -> None:
        self.groups.exclude = ids
        self.tell()

    @rule(ids=TARGETS)
    def change_up(self, ids: Idset) -> None:
        self.up = ids
        self.tell()

    @rule(group=GROUPS, ids=TARGETS)
    def release(self, group: str, ids: Idset) -> None:
        holder = self.holders.get(group)
        if holder and (freed := holder.unreleased & ids):
            holder.unreleased -= freed
            self.groups.release(group, group, freed)
            self.tell()

    @invariant()
    def pictures_are_right(self) -> None:
        unreleased = Idset()
        for holder in self.holders.values():
            unreleased |= holder.unreleased
        for name, holder in self.holders.items():
            assert holder.granted == self.groups.members(name) - unreleased
            assert holder.online == holder.granted & self.up

    @invariant()
    def no_target_is_held_twice(self) -> None:
        held = [holder.granted | holder.unreleased for holder in self.holders.values()]
        assert len(held) < 2 or held[0].is_disjoint(held[1])


TestSchedulers = Schedulers.TestCase
TestSchedulers.settings = settings(max_examples=60, stateful_step_count=25)
