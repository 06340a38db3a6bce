"""RFC 28's resource groups: the holder of each group, and the targets that the holder knows. Pure.

A target belongs to `default` or to `exclude`. A target that leaves a group is shrunk from the
holder of that group, and goes to the other group only when the holder has released it. So no target
has two holders. In an edition without groups, targets that are excluded later are down: a scheduler
has the targets that were not excluded when it has acquired them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.cores.state import Part
from flux_trio.editions import Edition
from flux_trio.editions.rfc28 import (
    DEFAULT_GROUP,
    EXCLUDE_GROUP,
    Change,
    Expires,
    Grown,
    Offline,
    Online,
    Shrunk,
)
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Errno, FluxError, Request, Response, respond_stream
from flux_trio.protocols import ACQUIRE, AcquireEvent, GroupStream

_NONE: Final = Idset()


class Group:
    """One group and the stream of `resource.acquire` responses to its holder."""

    def __init__(self, name: str, inventory: ResourceSet) -> None:
        self.name = name
        self._inventory = inventory
        self.request: Request | None = None  # the stream of the holder
        self._stream = GroupStream()
        self._forget_targets()

    def _forget_targets(self) -> None:
        self.granted = _NONE  # grown and not shrunk
        self._online = _NONE  # targets of `_granted` that the holder knows as online
        self.unreleased = _NONE  # shrunk and not released

    @property
    def holder(self) -> str | None:
        """Return the peer that has acquired the group, if any."""
        return self.request.sender if self.request else None

    def acquire(self, request: Request) -> None:
        """Take `request` as the stream. Raises FluxError(EBUSY) if the group has a holder."""
        if self.holder is not None:
            text = f"resource group {self.name} is already acquired by {self.holder}"
            raise FluxError(Errno.EBUSY, text)
        self.request = request
        self._step(AcquireEvent.ACQUIRE)

    def disconnect(self) -> None:
        """Let the group be acquired again: the holder is gone (28.disconnect.3)."""
        self._step(AcquireEvent.DISCONNECT)
        self.request = None
        self._forget_targets()

    def release(self, targets: Idset) -> None:
        """Take `targets` back. Raises FluxError(EPROTO) unless all wait for it (28.release.6)."""
        if not targets or not targets <= self.unreleased:
            is_shrinking = ACQUIRE.allows(self._stream.state, AcquireEvent.RELEASE)
            waiting = f"targets {self.unreleased}" if is_shrinking else "nothing"
            raise FluxError(
                Errno.EPROTO,
                f"resource.release: targets {str(targets)!r}: {waiting} of group {self.name} "
                "to release",
            )
        self.unreleased -= targets
        self._step(AcquireEvent.RELEASE if self.unreleased else AcquireEvent.RELEASE_LAST)

    def shrink(self, members: Idset) -> list[Change]:
        """Take back the targets that are no longer among `members`."""
        lost = self.granted - members
        if not lost:
            return []
        self.granted -= lost
        self._online -= lost
        self.unreleased |= lost
        self._step(AcquireEvent.SHRINK)
        return [Shrunk(lost)]

    def grow(self, members: Idset, up: Idset) -> list[Change]:
        """Give `members`, which the other group does not hold; tell which targets are `up`."""
        if self.request is None:
            return []
        changes = self._grow(members - self.granted, up)
        if back := (self.granted & up) - self._online:
            self._online |= back
            self._step(AcquireEvent.ONLINE)
            changes.append(Online(back))
        if lost := self._online - up:
            self._online -= lost
            self._step(AcquireEvent.OFFLINE)
            changes.append(Offline(lost))
        return changes

    def renew(self, inventory: ResourceSet) -> list[Change]:
        """Take `inventory`: the same resources with another expiration."""
        self._inventory = inventory
        if not self.granted:
            return []
        self._step(AcquireEvent.GROW)
        acquired = self._grown(self.granted, self._online)
        return [Expires(inventory.expiration, acquired)]

    def _grow(self, new: Idset, up: Idset) -> list[Change]:
        if not new:
            return []
        self.granted |= new
        self._online |= new & up
        self._step(AcquireEvent.GROW)
        return [self._grown(new, up)]

    def _grown(self, new: Idset, up: Idset) -> Grown:
        return Grown(self._inventory.restrict(new), online=new & up, offline=new - up)

    def _step(self, event: AcquireEvent) -> None:
        self._stream.step(event, self.name)


class Groups(Part):
    """Both groups of `inventory`; `exclude` has the members of the group of that name."""

    exclude: Idset
    _all: Idset
    _groups: dict[str, Group]

    def __init__(self, inventory: ResourceSet, exclude: Idset, edition: Edition) -> None:
        self._edition = edition
        self._all = inventory.ranks
        self.exclude = exclude
        self._groups = {name: Group(name, inventory) for name in (DEFAULT_GROUP, EXCLUDE_GROUP)}

    def members(self, name: str) -> Idset:
        """Return the targets of a group, with or without a holder."""
        return self.exclude if name == EXCLUDE_GROUP else self._all - self.exclude

    def acquire(self, name: str, request: Request) -> None:
        """Let `request` acquire a group.

        Raises FluxError: ENOENT for an unknown or empty group, EBUSY for a group with a holder.
        """
        group = self._groups.get(name)
        if group is None:
            known = " and ".join(self._groups)
            raise FluxError(Errno.ENOENT, f"no resource group {name}: there are {known}")
        if not self.members(name):
            raise FluxError(Errno.ENOENT, f"resource group {name} has no targets")
        group.acquire(request)

    def release(self, name: str, sender: str, targets: Idset) -> None:
        """Take back `targets`. Raises FluxError(EPROTO) unless `sender` holds group and targets."""
        group = self._groups.get(name)
        if group is None or group.holder != sender:
            text = f"resource.release: group {name} is not acquired by {sender}"
            raise FluxError(Errno.EPROTO, text)
        group.release(targets)

    def disconnect(self, peer: str) -> None:
        """Free the groups of `peer`, which is gone, so that they can be acquired again."""
        for group in self._groups.values():
            if group.holder == peer:
                group.disconnect()

    @property
    def are_free(self) -> bool:
        """Return whether no group has a holder."""
        return all(group.holder is None for group in self._groups.values())

    def take(self, inventory: ResourceSet, exclude: Idset) -> None:
        """Take other resources, while no group has a holder."""
        self.exclude, self._all = exclude, inventory.ranks
        for group in self._groups.values():
            group.renew(inventory)

    def renew(self, inventory: ResourceSet) -> list[Response]:
        """Return the responses about `inventory`, which has the same resources with other times."""
        return [
            response
            for group in self._groups.values()
            for response in self._responses(group, group.renew(inventory))
        ]

    def update(self, up: Idset) -> list[Response]:
        """Return responses with the changes for the holders; `up` are the usable targets."""
        if not self._edition.targets_change_groups:
            return [
                response
                for name, group in self._groups.items()
                for response in self._responses(
                    group, group.grow(group.granted or self.members(name), up - self.exclude)
                )
            ]
        responses = []
        for name, group in self._groups.items():
            responses += self._responses(group, group.shrink(self.members(name)))
        unreleased = Idset()
        for group in self._groups.values():
            unreleased |= group.unreleased
        for name, group in self._groups.items():
            responses += self._responses(group, group.grow(self.members(name) - unreleased, up))
        return responses

    def _responses(self, group: Group, changes: Iterable[Change]) -> list[Response]:
        """Return a response for each change, if the group has a holder."""
        request = group.request
        if request is None:
            return []
        payloads = [self._edition.changes.write([change]) for change in changes]
        responses = [respond_stream(request, payload) for payload in payloads]
        return [response for response in responses if response is not None]
