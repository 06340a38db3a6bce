"""The output of a finished job in the kvs: one RFC 24 eventlog in several keys. Pure.

`job.<id>.guest.output` holds its beginning. Longer output goes on in `guest.output.1`,
`guest.output.2` and so on, with whole lines in each; the output ends before the first of these keys
that is absent. So no value is larger than a message may be.

A key is also absent if the job was purged while its output was read. So a reader who finds no
further key asks `kvs.count` for the job: if the job has no key at all, the output was cut off.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.kvs_calls import Ask, count_below, count_in
from flux_trio.formats import format_fluid
from flux_trio.messages import Errno, FluxError, Response

OUTPUT: Final = "guest.output"


def output_key(piece: int) -> str:
    """Return the name, below the job's key, of piece 0, 1, 2 and so on of its output."""
    return f"{OUTPUT}.{piece}" if piece else OUTPUT


def count_keys(jobid: int) -> Ask:
    """Ask the kvs how many keys it has of a job."""
    return count_below(format_fluid(jobid, "kvs"))


def check_not_purged(response: Response) -> None:
    """Raise FluxError if the answer to `count_keys` is that the job has no key, or an error."""
    if not count_in(response):
        raise FluxError(Errno.ENOENT, "the job was purged meanwhile")
