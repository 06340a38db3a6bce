"""Whether what the scheduler has acquired can serve a job (readings: Unsatisfiable)."""

from __future__ import annotations

import re
from typing import Final

from flux_trio.judge.checks.constraints import Targets
from flux_trio.judge.checks.satisfying import Needs, can_serve
from flux_trio.judge.engine.selector import job_id, payload
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.granting import SCHED_JOBS, sched_job
from flux_trio.judge.views.resource_sets import HOSTS, hosts_by_target
from flux_trio.judge.views.resources import AS_RECEIVED, Acquired, as_received, surely_took_change
from flux_trio.trace import Record

SERVING: Final = (SCHED_JOBS, AS_RECEIVED, HOSTS)
"""The views that these functions read."""

_UNSUPPORTED: Final = re.compile(r"(?i)(un|not )support")


def serves(had: Acquired, needs: Needs, seen: Seen) -> bool | None:
    """Whether the targets that a peer has can serve a job when all of them are up and free.

    None if that is not certain. Only for rare records: it looks at every target.
    """
    targets = Targets(had.granted, hosts_by_target(seen), dict(had.properties))
    offered = {
        rank: (rank, len(piece.cores), len(piece.gpus))
        for piece in had.pieces
        for rank in piece.ranks & had.granted
    }
    return can_serve(needs, targets, offered.values())


def denied_though_served(record: Record, seen: Seen) -> bool | None:
    """Whether a DENY is of a request that the scheduler can meet when all it has is free.

    None if that is not certain: of inventories with an end, since a job may last too long for them;
    if the note says that the scheduler does not support what the job asks for; and if it may not
    have known yet what it has acquired.
    """
    known, had = sched_job(seen, job_id(record)), as_received(seen, record.party)
    if not known.alloc or known.needs is None or had is None or not had.grown or had.expiration:
        return None
    if _UNSUPPORTED.search(str(payload(record).get("note"))):
        return None
    if known.alloc < had.changed and not surely_took_change(seen, record.party, had.changed):
        return None
    return serves(had, known.needs, seen)
