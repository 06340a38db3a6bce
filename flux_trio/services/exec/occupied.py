"""Which cores run which job here, so that no two jobs ever run on the same ones.

RFC 27 leaves the choice to the scheduler. One that grants what another job still runs on is found
out when the second job is to start: R is read here anyway. Jobs that run already when this service
comes are not judged, since ending their stream would free what they run on. Left out: cores of a
job whose tasks have ended and whose epilog goes on, and ranks that the instance does not have.
"""

from __future__ import annotations

from collections.abc import Iterator

from flux_trio.formats import ResourceSet, format_fluid


class Occupied:
    """Cores by rank, as bit sets."""

    def __init__(self) -> None:
        self._cores: dict[int, int] = {}
        self._holders: dict[int, ResourceSet] = {}

    def conflict(self, resources: ResourceSet) -> str:
        """Why a job must not start on `resources`; "" when nobody else holds any of them."""
        if not any(self._cores.get(rank, 0) & cores for rank, cores in _cores_of(resources)):
            return ""  # as nearly always: without a look at every job
        for jobid, held in self._holders.items():
            shared = resources.intersection(held)
            if shared.groups:
                other = format_fluid(jobid, "f58")
                return f"R: {shared.summary()} is still in use by job {other}"
        return ""

    def take(self, jobid: int, resources: ResourceSet) -> None:
        """The job runs on `resources`."""
        for rank, cores in _cores_of(resources):
            self._cores[rank] = self._cores.get(rank, 0) | cores
        self._holders[jobid] = resources

    def give_back(self, jobid: int) -> None:
        """Nothing of the job runs; one that holds nothing changes nothing."""
        resources = self._holders.pop(jobid, None)
        if resources is not None:
            for rank, cores in _cores_of(resources):
                self._cores[rank] &= ~cores


def _cores_of(resources: ResourceSet) -> Iterator[tuple[int, int]]:
    for group in resources.groups:
        left = group.ranks
        while left:
            lowest = left & -left
            yield lowest.bit_length() - 1, group.cores
            left ^= lowest
