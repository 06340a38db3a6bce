"""A property of a user: what is granted is soon used."""

from collections.abc import Sequence

from flux_trio.lab import over_trace
from flux_trio.trace import Kind, Record

SOON_S = 5.0


@over_trace("prompt-start")
def prompt_start(trace: Sequence[Record]) -> str:
    """A job starts at most 5 seconds after it got its resources."""
    granted: dict[int, float] = {}  # job id → time of its alloc event
    for record in trace:
        if record.kind != Kind.EVENT or record.data is None:
            continue
        jobid, name = record.data["id"], record.data["name"]
        if name == "alloc":
            granted[jobid] = record.t
        elif name == "start" and jobid in granted:  # else it was read back, with its alloc event
            waited = record.t - granted[jobid]
            if waited > SOON_S:
                return f"job {jobid} starts {waited:g} s after its alloc event"
    return ""


@over_trace("prompt-start")
def prompt_start_by_durations(trace: Sequence[Record]) -> str:
    """A job starts at most 5 seconds after it got its resources, however the clock is set."""
    granted: dict[int, float] = {}
    ahead = 0.0  # how far the wall clock was set so far, in seconds
    for record in trace:
        data = record.data or {}
        passed = record.t - ahead
        if record.kind == Kind.CLOCK:
            ahead += data["by"]
        elif record.kind == Kind.EVENT and data["name"] == "alloc":
            granted[data["id"]] = passed
        elif record.kind == Kind.EVENT and data["name"] == "start" and data["id"] in granted:
            waited = passed - granted[data["id"]]
            if waited > SOON_S:
                return f"job {data['id']} starts {waited:g} s after its alloc event"
    return ""
