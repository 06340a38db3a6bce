"""R of each SUCCESS is checked before the job runs on it (27.success.1, RFC 20).

R is looked up in the kvs. It must parse, and each host, core and gpu in it must belong to the
instance (readings: R that is not of the instance); the cores and gpus must be free. R in the
answer, where the edition has it, must be the same. The grants of a turn are looked up together, and
checked in order.

The job manager asks the resource service for the inventory at each sched-hello. It asks again
before it refuses a grant of unknown resources, since no event tells of a changed inventory. Without
a resource service the inventory is unknown, and grants are checked without it.

A job holds its R from SUCCESS until sched.free is sent: the scheduler may grant the resources again
when it gets that (27.free.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from flux_trio.cores.job_manager.calls import GrantsRead, InventoryRead, InventoryReadAgain
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.kvs_calls import LOOKUP_JOBS_MAX, cannot_read, values_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import JobsWanted, read_r
from flux_trio.editions import flux
from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet
from flux_trio.formats.meanings import JobId
from flux_trio.messages import FluxError, Response, topics

PLANES_KEPT: Final = 1024  # cached by the resources on a node: most jobs have the same


class Allocated(Part):
    """For each core and gpu, the ranks where a job holds it: cheap to look up on many nodes."""

    taken: dict[int, int]  # see `_planes`
    holders: dict[JobId, ResourceSet]
    overlaps: bool  # two jobs hold the same since before this start

    def __init__(self) -> None:
        self.taken = {}
        self.holders = {}
        self.overlaps = False

    def refill(self, holders: Iterable[tuple[int, ResourceSet]]) -> None:
        """Forget all and take the resources of `holders`, which may overlap."""
        self.taken, self.holders, self.overlaps = {}, {}, False
        for jobid, resources in holders:
            self.hold(jobid, resources)

    def shared(self, resources: ResourceSet) -> tuple[int, ResourceSet] | None:
        """Return a job that holds some of `resources`, and which of them; None if all are free."""
        taken = self.taken.get
        for ranks, cores, gpus in resources.groups:
            for plane in _planes(cores, gpus):
                if taken(plane, 0) & ranks:
                    return self._holder_of(resources)
        return None  # the usual case: no need to look at every job

    def _holder_of(self, resources: ResourceSet) -> tuple[int, ResourceSet] | None:
        for jobid, held in self.holders.items():
            both = resources.intersection(held)
            if both:
                return jobid, both
        return None

    def hold(self, jobid: int, resources: ResourceSet) -> None:
        """Let the job hold `resources`."""
        taken = self.taken
        for ranks, cores, gpus in resources.groups:
            for plane in _planes(cores, gpus):
                before = taken.get(plane, 0)
                if before & ranks:
                    self.overlaps = True
                taken[plane] = before | ranks
        self.holders[jobid] = resources

    def give_back(self, jobid: int) -> None:
        """Free the resources of the job, if it holds any."""
        resources = self.holders.pop(jobid, None)
        if resources is None:
            return
        if self.overlaps:
            self.refill(list(self.holders.items()))
            return
        taken = self.taken
        for ranks, cores, gpus in resources.groups:
            left = ~ranks
            for plane in _planes(cores, gpus):
                taken[plane] &= left

    def total(self) -> ResourceSet | None:
        """Return what jobs hold, without times and properties; None if they hold nothing."""
        taken: dict[int, tuple[int, int]] = {}
        hosts: dict[int, str] = {}
        for resources in self.holders.values():
            hosts |= resources.hosts
            for group in resources.groups:
                for rank in Idset.from_bits(group.ranks):
                    cores, gpus = taken.get(rank, (0, 0))
                    taken[rank] = (cores | group.cores, gpus | group.gpus)
        if not taken:
            return None
        return ResourceSet.build([(rank, *held) for rank, held in taken.items()], hosts.__getitem__)


@lru_cache(maxsize=PLANES_KEPT)
def _planes(cores: int, gpus: int) -> tuple[int, ...]:
    """Return the planes of what a job has on a node: a core's bit, or minus a gpu's bit."""
    return (*_bits(cores), *(-gpu for gpu in _bits(gpus)))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


class Judging(msgspec.Struct, frozen=True):
    """A grant that is being checked; `number` tells it from another grant of the same job."""

    number: int
    annotations: dict[str, Any]  # sent with SUCCESS
    granted: ResourceSet | None = None  # R, where the edition has it in the answer


class Verdicts(Protocol):
    """Called when a grant has been checked."""

    def accepted(self, jobid: int, annotations: dict[str, Any], resources: ResourceSet) -> None:
        """Called for a valid grant of `resources`."""

    def refused(self, text: str) -> None:
        """Called for an invalid grant; `text` says what was expected, and what came."""


class Grants(Part):
    """Grants that are being checked, and the resources of jobs."""

    open: dict[JobId, Judging]  # in order of arrival
    asked: list[JobId]  # those of this turn
    last_number: int
    inventory: ResourceSet | None

    def __init__(self, ledger: Ledger, verdicts: Verdicts) -> None:
        self._ledger = ledger
        self._verdicts = verdicts
        self.allocated = Allocated()
        self.open = {}
        self.asked = []
        self.last_number = 0
        self._set_inventory(None)

    def begin(self, holders: Iterable[tuple[int, ResourceSet | None]]) -> None:
        """At sched-hello, take what jobs hold, as far as it is known, and ask for the inventory."""
        self.allocated.refill([(jobid, held) for jobid, held in holders if held is not None])
        self._set_inventory(None)
        self._ledger.ask(topics.RESOURCE_STATUS, None, InventoryRead())

    def judge(self, jobid: int, annotations: dict[str, Any], granted: ResourceSet | None) -> None:
        """Check R of a SUCCESS, then tell the verdict.

        `granted` is R in the answer. The R that is checked is the one in the kvs.
        """
        self.last_number += 1
        self.open[jobid] = Judging(self.last_number, annotations, granted)
        self.asked.append(jobid)

    def held_by(self, jobid: int) -> ResourceSet | None:
        """Return what a job has by its last grant; None if that is not known, or it has nothing.

        Of a grant that is being checked it is R in the answer.
        """
        judging = self.open.get(jobid)
        return self.allocated.holders.get(jobid) if judging is None else judging.granted

    def end_turn(self) -> None:
        """Look up R of the grants of this turn."""
        if not self.asked:
            return
        asked, self.asked = self.asked, []
        numbers = [(jobid, self.open[jobid].number) for jobid in asked if jobid in self.open]
        for start in range(0, len(numbers), page_size(LOOKUP_JOBS_MAX)):
            self._look_up(tuple(numbers[start : start + page_size(LOOKUP_JOBS_MAX)]))

    def _look_up(self, grants: tuple[tuple[int, int], ...]) -> None:
        self._ledger.ask_kvs(_r_of(grants).ask(), GrantsRead(grants))

    def give_back(self, jobid: int) -> None:
        """Forget the resources of a job, or its grant that is being checked."""
        self.open.pop(jobid, None)
        self.allocated.give_back(jobid)

    def drop(self) -> list[int]:
        """Forget the grants that are being checked; return their jobs."""
        jobids = list(self.open)
        self.open.clear()
        return jobids

    def inventory_read(self, response: Response) -> None:
        """Take the answer to resource.status; an error leaves the inventory unknown."""
        self._set_inventory(_inventory_in(response))

    def _set_inventory(self, inventory: ResourceSet | None) -> None:
        self.inventory = inventory
        self._hosts: dict[int, str] | None = None  # derived: of the inventory, by rank

    def inventory_read_again(self, call: InventoryReadAgain, response: Response) -> None:
        """Take the same answer, for the grant that `call` names."""
        self.inventory_read(response)
        if self._is_open(call.jobid, call.grant):
            self._check(call.jobid, call.resources, inventory_is_fresh=True)

    def read(self, call: GrantsRead, response: Response) -> None:
        """Take R of some grants."""
        try:
            jobs, _ = _r_of(call.grants).take(values_in(response))
        except FluxError as error:
            failure = cannot_read("R of jobs that were granted resources", error)
            self._ledger.outbox.send(failure)
            return
        if rest := call.grants[len(jobs) :]:
            self._look_up(rest)
        for (jobid, number), (_, (text,)) in zip(call.grants, jobs, strict=False):
            if self._is_open(jobid, number):
                self._read(jobid, text)

    def _is_open(self, jobid: int, number: int) -> bool:
        judging = self.open.get(jobid)
        return judging is not None and judging.number == number

    def _read(self, jobid: int, text: str | None) -> None:
        try:
            resources = read_r(jobid, text)
        except (FluxError, FormatError) as error:
            self._verdicts.refused(f"job {jobid}: {error}")
        else:
            self._check(jobid, resources, inventory_is_fresh=False)

    def _check(self, jobid: int, resources: ResourceSet, *, inventory_is_fresh: bool) -> None:
        """Accept or refuse a grant; ask for the inventory first if it may have changed."""
        wrong = self._contradicts_answer(jobid, resources) or self._held_by_another(resources)
        if not wrong and (wrong := self._outside(resources)) and not inventory_is_fresh:
            again = InventoryReadAgain(jobid, self.open[jobid].number, resources)
            self._ledger.ask(topics.RESOURCE_STATUS, None, again)
        elif wrong:
            self._verdicts.refused(f"job {jobid}: R: expected {wrong}")
        else:
            judged = self.open.pop(jobid)
            granted = judged.granted or resources  # they name the same targets
            self.allocated.hold(jobid, granted)
            self._verdicts.accepted(jobid, judged.annotations, granted)

    def _contradicts_answer(self, jobid: int, resources: ResourceSet) -> str:
        granted = self.open[jobid].granted
        if granted is None or granted.has_same_targets(resources):
            return ""
        return f"in the answer what is in the kvs, {_named(resources)}, got {_named(granted)}"

    def _held_by_another(self, resources: ResourceSet) -> str:
        found = self.allocated.shared(resources)
        if found is None:
            return ""
        holder, shared = found
        return f"resources that no other job holds, got {shared.summary()}, which job {holder} has"

    def _outside(self, resources: ResourceSet) -> str:
        inventory = self.inventory
        if inventory is None:
            return ""
        if resources.issubset(inventory):
            return self._with_other_hosts(resources)
        outside = resources.difference(inventory)
        there = inventory.restrict(outside.ranks).summary() or f"ranks {inventory.ranks}"
        return f"what the instance has, {there}, got {outside.summary()}"

    def _with_other_hosts(self, resources: ResourceSet) -> str:
        assert self.inventory is not None
        if self._hosts is None:
            self._hosts = self.inventory.hosts
        for rank, host in resources.hosts.items():
            if self._hosts[rank] != host:
                return f"host {self._hosts[rank]} at rank {rank}, got {host}"
        return ""


def _r_of(grants: Sequence[tuple[int, int]]) -> JobsWanted:
    return JobsWanted(tuple(jobid for jobid, _ in grants), ("R",))


def _named(resources: ResourceSet) -> str:
    return f"{resources.summary()} of {Hostlist.of(resources.hostnames)}"


def _inventory_in(response: Response) -> ResourceSet | None:
    """Return all resources of the instance; None for an error of the resource service."""
    if response.errnum:
        return None
    try:
        return ResourceSet.parse(flux.RESOURCE_STATUS.read(response).R)
    except (FluxError, FormatError):
        return None
