"""Which resources the instance has, and R at `resource.R`, where Flux's own programs read it. Pure.

An instance starts with the resources that it was given. A module that is loaded again reads R from
the kvs, so that a script may put another R there before; `resource.reload` reads it from a file.
Without Flux's own programs there is no `resource.R`, and the resources stay as they were given.

The ranks of R are execution targets: all of them are on this machine, so that R may have more ranks
than the instance was started with, if the request says `force`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from flux_trio.config import add_queue_properties
from flux_trio.cores.kvs_calls import Ask, commit_values
from flux_trio.cores.resource.targets import parse_targets
from flux_trio.cores.state import Part
from flux_trio.editions import flux
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import Errno, FluxError, Request, unanswered

RESOURCES_KEY: Final = "resource.R"

Kept = Literal["written", "read"]
"""`written`: R stands at `resource.R`, which gets the given one at the start. `read`: the R that is
there counts, if there is one."""


class ReadFile(msgspec.Struct, frozen=True):
    """Action: read a file, and hand back `FileRead`."""

    path: str


class FileRead(msgspec.Struct, frozen=True):
    """Input: the text of a file; None and a `problem` if it cannot be read."""

    path: str
    text: str | None
    problem: str = ""


class Definition(Part):
    """The resources of the instance.

    `exclude` is an idset or a hostlist of them, `queues` has `hosts` of each queue with hosts.
    `inventory` has the properties that those queues have; R does not.
    """

    inventory: ResourceSet
    _resources: ResourceSet
    _loading: Request | None  # the resource.reload request whose file is being read

    def __init__(
        self, given: ResourceSet, exclude: Idset | str, queues: Mapping[str, str], kept: Kept | None
    ) -> None:
        self._size = given.nnodes
        self._exclude = exclude
        self._queues = queues
        self._loading = None
        self.kept = kept
        self._resources = self.inventory = given
        if kept != "read":
            self.take(given)

    def excluded(self) -> Idset:
        """Return the targets that are excluded at the start. Raises FluxError."""
        if not isinstance(self._exclude, str):
            return self._exclude & self._resources.ranks
        return parse_targets(self._exclude, self._resources) if self._exclude else Idset()

    def take(self, resources: ResourceSet) -> None:
        """Take another R. Raises FormatError for one without the hosts of a queue."""
        inventory = add_queue_properties(self._queues, resources)
        self._resources, self.inventory = resources, inventory

    def keep(self) -> None:
        """Take the given R, since none is stored. Raises FormatError: see `take`."""
        self.take(self._resources)

    def expire(self, expiration: float) -> None:
        """Change when the resources end (seconds since the Unix epoch; 0: never)."""
        self.take(self._resources.with_times(self._resources.starttime, expiration))

    def written(self, *ops: KvsOp) -> Ask:
        """Return the commit of R, with `ops`."""
        text = msgspec.json.encode(self._resources.to_json()).decode()
        return commit_values([["put", RESOURCES_KEY, text], *ops])

    # resource.reload

    def load(self, request: Request, asked: flux.Reload) -> ReadFile:
        """Begin to read the file that a request has asked for. Raises FluxError."""
        if asked.xml:
            text = (
                "hwloc XML is not read: give R, as flux R encode and flux R parse-config write it"
            )
            raise FluxError(Errno.EINVAL, text)
        if self._loading is not None:
            raise FluxError(Errno.EBUSY, "R is already being read for another request")
        self._loading = request
        return ReadFile(asked.path)

    def loaded(self, file: FileRead) -> tuple[Request, ResourceSet | FluxError]:
        """Return the request for a file that was read, and R in the file or what is wrong."""
        request, self._loading = self._loading, None
        assert request is not None  # a file is read for a request only
        if file.text is None:
            return request, FluxError(Errno.ENOENT, f"{file.path}: {file.problem}")
        try:
            found = ResourceSet.parse(file.text.encode(), file.path, own_widths=True)
        except FormatError as error:
            return request, FluxError(Errno.EINVAL, str(error))
        beyond = found.ranks - Idset.of(range(self._size))
        if beyond and not flux.RELOAD.read(request).force:
            text = f"R has ranks {beyond} beyond size={self._size} (override with -f)"
            return request, FluxError(Errno.EINVAL, text)
        return request, found

    def unanswered(self, sender: str) -> None:
        """Forget who has asked, when that peer is gone; the file counts all the same."""
        if self._loading is not None:
            self._loading = unanswered(self._loading, sender)
