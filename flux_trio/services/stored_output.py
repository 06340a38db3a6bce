"""Where the kvs has the output of a job that is over: one RFC 24 eventlog, spread over keys. Pure.

`job.<id>.guest.output` holds its beginning. Output that is longer goes on in `guest.output.1`,
`guest.output.2` and so on, whole lines in each; the first of these keys that is absent ends it. So
no value is larger than a message may be, whatever the job has written.
"""

from __future__ import annotations

from typing import Final

OUTPUT: Final = "guest.output"


def output_key(piece: int) -> str:
    """The name, below the job's key, of piece 0, 1, 2 and so on of its output."""
    return f"{OUTPUT}.{piece}" if piece else OUTPUT
