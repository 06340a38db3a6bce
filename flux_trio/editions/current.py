"""The current edition: the newest text of RFC 27, 28 and 32, as far as it is keys and values.

Where flux-core differs from the text, an answer here is flux-core's: R in a SUCCESS is required,
and a hello says `partial-ok` in any case. One answer is the text's: an execution service may say
hello while starts are outstanding, which flux-core refuses; to accept it harms nobody.

What the text leaves to an implementation and flux-core never sends, changed properties of targets,
the scheduler takes and the resource service does not send either.
"""

from __future__ import annotations

from typing import Final

from flux_trio.editions import flux_kvs, rfc27, rfc28, rfc32
from flux_trio.editions.edition import Edition

CURRENT: Final = Edition(
    name="current",
    has_native_door=True,
    kvs=flux_kvs.WORDS,
    sched_hello=rfc27.HELLO,
    held_job=rfc27.HELD_JOB,
    sched_ready=rfc27.READY,
    waiting=rfc27.WAITING,
    alloc=rfc27.ALLOC,
    alloc_answer=rfc27.ALLOC_ANSWER_WITH_R,
    annotations=rfc27.write_current_annotations,
    keeps_empty_annotations=False,
    cancel=rfc27.CANCEL,
    prioritize=rfc27.PRIORITIZE,
    expiration=rfc27.EXPIRATION,
    free=rfc27.FREE,
    frees_in_parts=True,
    feasibility=rfc27.FEASIBILITY,
    free_answer=None,
    grants_local_properties=False,
    acquire=rfc28.ACQUIRE_ALL,
    changes=rfc28.KEYED_CHANGES,
    release=None,
    targets_change_groups=False,
    shrink_ends_jobs=False,
    exec_hello=rfc32.HELLO,
    start=rfc32.START,
    start_streams=False,
    start_answer=rfc32.CURRENT_ANSWERS,
    tells_reattached=True,
    hello_needs_no_start_outstanding=False,
    exceptions_have_wait_status=True,
    first_flag=2,
    queues_have_hosts=True,
    ingest_fills_in=True,
)
