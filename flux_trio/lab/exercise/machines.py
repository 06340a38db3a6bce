"""The machines of an exercise, and the store of an instance that is years old."""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY
from flux_trio.cores.kvs.ops import Put
from flux_trio.formats import EVENTLOG, Event, Idset, Jobspec, ResourceSet, format_eventlog, job_key
from flux_trio.store.stores import MemoryStore

PROPERTIES: Final = {
    "fast": Idset.of([0, 1, 3]),
    "big": Idset.of([1, 2, 3]),
    "quiet": Idset.of([0, 2, 3]),
}
"""The properties of a scheduler's nodes, each of three of them; node 3 has all."""
NGPUS: Final = {1: 1, 2: 3, 3: 2}
"""The gpus of its nodes; node 0 has none."""
_CORES: Final = {0: 0b1111, 1: 0b110011, 2: 0b1111, 3: 0b111100}

_HOSTS: Final = ("node08", "node10", "node11", "login")


def sched_machine(*, has_gpus: bool = True, has_properties: bool = True) -> ResourceSet:
    """Return four nodes of four cores, for a scheduler.

    Nothing about them is even: R_lite has three entries or more, ranks and cores have gaps, and
    cores do not all begin with 0. The nodelist `node[08,10-11],login` has a gap, numbers with zeros
    in front, and a name alone.
    """
    ngpus = NGPUS if has_gpus else {}
    return ResourceSet.build(
        ((rank, cores, (1 << ngpus.get(rank, 0)) - 1) for rank, cores in _CORES.items()),
        _HOSTS.__getitem__,
        properties=PROPERTIES if has_properties else None,
    )


SCHED_MACHINE: Final = sched_machine()

_LAST_ID: Final = (10 * 365 * 86400 * 1000) << 24


def old_store() -> MemoryStore:
    """Return the store of an instance that had its last job ten years after its first one.

    So the ids of its jobs are beyond 2^53: those of one millisecond are the same as doubles.
    """
    store = MemoryStore()
    store.commit([Put(MAX_JOBID_KEY, str(_LAST_ID))])
    return store


def store_with_old_job() -> MemoryStore:
    """Return the store of an instance whose job of ten years after the first one is still there."""
    submit = {"userid": 0, "urgency": 16, "flags": 0, "version": 1}
    failed = {"type": "cancel", "severity": 0, "note": ""}
    t_submit = 1e9 + 0.25
    events = [
        Event(t_submit, "submit", submit),
        Event(t_submit, "validate"),
        Event(t_submit, "exception", failed),
        Event(t_submit, "clean"),
    ]
    store = MemoryStore()
    store.commit(
        [
            Put(
                job_key(_LAST_ID, "jobspec"),
                msgspec.json.encode(Jobspec.from_command(["true"]).json).decode(),
            ),
            Put(job_key(_LAST_ID, EVENTLOG), format_eventlog(events)),
        ]
    )
    return store
