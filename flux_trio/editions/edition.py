"""What an edition is: a codec for each payload, and answers to questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from flux_trio.editions import rfc27, rfc28, rfc32
from flux_trio.editions.codec import Codec
from flux_trio.editions.kvs import KvsWords


class Edition(msgspec.Struct, frozen=True):
    """The payloads and answers of one edition of RFC 20, 27, 28, 32 and 33."""

    name: str
    has_native_door: bool  # Flux's own programs speak it, and may come in by the native door

    # RFC 11 and 16
    kvs: KvsWords

    # RFC 27
    sched_hello: Codec[rfc27.Hello]
    held_job: Codec[rfc27.HeldJob]
    sched_ready: Codec[rfc27.Ready]
    waiting: Codec[rfc27.Waiting]
    alloc: Codec[rfc27.Alloc]
    alloc_answer: Codec[rfc27.AllocAnswer]
    annotations: Callable[[rfc27.SchedAnnotations], dict[str, Any]]
    keeps_empty_annotations: bool  # Annotate: an object that is left empty stays
    cancel: Codec[rfc27.Cancel]
    prioritize: Codec[rfc27.Prioritize]
    expiration: Codec[rfc27.Expiration]
    free: Codec[rfc27.Free]
    frees_in_parts: bool  # Free: several, the last one final; the job may be over before
    feasibility: Codec[rfc27.Feasibility] | None  # None: there is no service `feasibility`
    free_answer: Codec[rfc27.FreeAnswer] | None  # None: sched.free has no response

    # RFC 20
    grants_local_properties: bool  # an allocated R has properties that begin with +

    # RFC 28
    acquire: Codec[rfc28.Acquire]
    changes: Codec[Sequence[rfc28.Change]]
    release: Codec[rfc28.Release] | None  # None: a shrink is not acknowledged
    targets_change_groups: bool  # Grow, Shrink: targets come and go as they are excluded
    shrink_ends_jobs: bool  # Shrink: jobs on the targets get a fatal exception

    # RFC 32
    exec_hello: Codec[rfc32.Hello]
    start: Codec[rfc32.Start]
    start_streams: bool  # Start Request: it has RFC 6's flag of a streaming RPC
    start_answer: Codec[rfc32.StartAnswer]
    tells_reattached: bool  # Start Request: reattached answers a start with reattach
    hello_needs_no_start_outstanding: bool  # Hello: refused while a start is outstanding

    # RFC 21
    exceptions_have_wait_status: bool  # Exception Event: then it is the status of finish, too
    first_flag: int  # Submit Event: the number of debug; waitable and novalidate follow

    # RFC 33
    queues_have_hosts: bool  # Queue Configuration: queues.NAME.hosts
    ingest_fills_in: bool  # defaults and constraints of queues are part of the stored jobspec
