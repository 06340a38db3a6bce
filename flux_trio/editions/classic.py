"""The classic edition: RFC 27 of 2023-08, RFC 28 as first drafted, RFC 32 and 33 of 2022."""

from __future__ import annotations

from typing import Final

from flux_trio.editions import kvs, rfc27, rfc28, rfc32
from flux_trio.editions.edition import Edition

CLASSIC: Final = Edition(
    name="classic",
    has_native_door=False,
    kvs=kvs.CLASSIC_WORDS,
    sched_hello=rfc27.HELLO_EMPTY,
    held_job=rfc27.HELD_JOB_WHOLE,
    sched_ready=rfc27.READY,
    waiting=rfc27.WAITING,
    alloc=rfc27.ALLOC,
    alloc_answer=rfc27.ALLOC_ANSWER,
    annotations=rfc27.write_classic_annotations,
    keeps_empty_annotations=True,
    cancel=rfc27.CANCEL,
    prioritize=rfc27.PRIORITIZE,
    expiration=rfc27.EXPIRATION,
    free=rfc27.FREE_WHOLE,
    frees_in_parts=False,
    feasibility=None,
    free_answer=rfc27.FREE_ANSWER,
    grants_local_properties=True,
    acquire=rfc28.ACQUIRE,
    changes=rfc28.TYPED_CHANGES,
    release=rfc28.RELEASE,
    targets_change_groups=True,
    shrink_ends_jobs=True,
    exec_hello=rfc32.HELLO,
    start=rfc32.START_WITHOUT_R,
    start_streams=True,
    start_answer=rfc32.CLASSIC_ANSWERS,
    tells_reattached=False,
    hello_needs_no_start_outstanding=True,
    exceptions_have_wait_status=False,
    first_flag=1,
    queues_have_hosts=False,
    ingest_fills_in=False,
)
