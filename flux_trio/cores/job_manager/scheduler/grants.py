"""R of each SUCCESS, judged before anyone goes by it (27.success.1, RFC 20).

A grant is looked up in the kvs and must parse, name no core or gpu that another job holds, and none
that the instance does not have. Those of a turn are looked up together, and judged in order.

The inventory is asked of the resource service at each sched-hello, and again before a scheduler is
told that it granted what is not there: nobody says when it changes. As long as it is not known,
because there is no resource service, grants are judged by the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.scheduler.allocated import Allocated
from flux_trio.cores.lookups import LOOKUP_JOBS_MAX, cannot_read, values_in
from flux_trio.formats import FormatError, ResourceSet, job_key, parse_r
from flux_trio.messages import Errno, FluxError, Response, expect_payload, topics

Accept = Callable[[ResourceSet], None]


class Grants:
    """Grants that are being judged, and what jobs hold.

    `refuse` is called with what is wrong with one, and what was expected.
    """

    def __init__(self, ledger: Ledger, refuse: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._refuse = refuse
        self._open: dict[int, Accept] = {}  # by job id, in the order they came
        self._asked: list[tuple[int, Accept]] = []  # those of this turn
        self._allocated = Allocated()
        self._inventory: ResourceSet | None = None

    def begin(self, jobs: Iterable[ActiveJob]) -> None:
        """A scheduler says hello, and is told that `jobs` hold resources."""
        self._allocated.refill([(job.id, job.granted) for job in jobs if job.granted is not None])
        self._inventory = None
        self._ledger.ask(topics.RESOURCE_STATUS, None, self._learn)

    def total(self) -> ResourceSet | None:
        """All that jobs hold; None if they hold nothing."""
        return self._allocated.total()

    def judge(self, jobid: int, accept: Accept) -> None:
        """The scheduler has said SUCCESS: call `accept` with R when nothing is wrong with it."""
        self._open[jobid] = accept
        self._asked.append((jobid, accept))

    def end_turn(self) -> None:
        """Look up what was granted in this turn."""
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), LOOKUP_JOBS_MAX):
            some = asked[start : start + LOOKUP_JOBS_MAX]
            keys = {"keys": [job_key(jobid, "R") for jobid, _ in some]}
            self._ledger.ask(topics.KVS_LOOKUP_ALL, keys, partial(self._found, some))

    def give_back(self, jobid: int) -> None:
        """The job holds nothing any more, nor is to get what is being judged."""
        self._open.pop(jobid, None)
        self._allocated.give_back(jobid)

    def drop(self) -> list[int]:
        """No grant that is being judged matters any more; their jobs."""
        jobids = list(self._open)
        self._open.clear()
        return jobids

    def _learn(self, response: Response) -> list[Any]:
        self._inventory = _inventory_in(response)
        return []

    def _found(self, asked: list[tuple[int, Accept]], response: Response) -> list[Any]:
        try:
            values = values_in(response)
        except FluxError as error:
            return [cannot_read("R of jobs that were granted resources", error)]
        for (jobid, accept), text in zip(asked, values, strict=True):
            if self._open.get(jobid) is accept:
                self._read(jobid, text)
        return []

    def _read(self, jobid: int, text: str | None) -> None:
        try:
            if text is None:
                raise FluxError(Errno.ENOENT, f"R: {job_key(jobid, 'R')}: no such key")
            resources = parse_r(text)
        except (FluxError, FormatError) as error:
            self._refuse(f"job {jobid}: {error}")
        else:
            self._check(jobid, resources, is_known_well=False)

    def _check(self, jobid: int, resources: ResourceSet, *, is_known_well: bool) -> None:
        """Accept or refuse; ask for the inventory first if it might have changed."""
        wrong = self._held_by_another(resources)
        if not wrong and (wrong := self._outside(resources)) and not is_known_well:
            again = partial(self._known_well, jobid, self._open[jobid], resources)
            self._ledger.ask(topics.RESOURCE_STATUS, None, again)
        elif wrong:
            self._refuse(f"job {jobid}: R: expected {wrong}")
        else:
            self._allocated.take(jobid, resources)
            self._open.pop(jobid)(resources)

    def _known_well(
        self, jobid: int, accept: Accept, resources: ResourceSet, response: Response
    ) -> list[Any]:
        self._learn(response)
        if self._open.get(jobid) is accept:
            self._check(jobid, resources, is_known_well=True)
        return []

    def _held_by_another(self, resources: ResourceSet) -> str:
        found = self._allocated.shared(resources)
        if found is None:
            return ""
        holder, shared = found
        return f"what no other job holds, got {shared.summary()}, which job {holder} has"

    def _outside(self, resources: ResourceSet) -> str:
        inventory = self._inventory
        if inventory is None or resources.issubset(inventory):
            return ""
        outside = resources.difference(inventory)
        there = inventory.restrict(outside.ranks).summary() or f"ranks {inventory.ranks}"
        return f"what the instance has, {there}, got {outside.summary()}"


class _Value(msgspec.Struct):
    value: str


class _Status(msgspec.Struct):
    R: dict[str, Any]


def resources_in(response: Response) -> ResourceSet:
    """R as the kvs has it. Raises FluxError or FormatError, both with texts that begin with R."""
    if response.errnum:
        raise FluxError(response.errnum, f"R: {response.error_text}")
    return parse_r(expect_payload(response, _Value).value)


def _inventory_in(response: Response) -> ResourceSet | None:
    """All resources, as the resource service says; None when it does not."""
    if response.errnum:
        return None
    try:
        return ResourceSet.parse(expect_payload(response, _Status).R)
    except (FluxError, FormatError):
        return None
