"""What a job's guest namespace holds: its exec eventlog, and its tasks' output (RFC 16, 24). Pure.

The events are those of flux-core's job-exec and flux-shell, because flux's own programs wait for
them: `flux run` follows no output before `shell.init`, and finds its standard input by it. How much
of each task's output is in the namespace is written in the same commit as the output. So a program
that takes over from one that was killed writes each byte once.

Left out: `shell.task-exit`, and RFC 24's redirect events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flux_trio.attach import kvs
from flux_trio.cores.exec.output import log_begins, log_data, log_ends
from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.editions import rfc21, rfc24
from flux_trio.formats import Event, format_eventlog, parse_eventlog, taskmap_blocks

EXEC_LOG: Final = "exec.eventlog"
OUTPUT: Final = "output"
PLACES: Final = "flux-trio-written"
"""How much of each stream is in the output; our own key, which goes when the job is over."""


class Written(msgspec.Struct):
    """What PLACES has: `nbytes` by task and stream, and the timestamp of the last event."""

    nbytes: dict[str, int] = {}
    stamped: float = 0.0


class Shell(msgspec.Struct, frozen=True):
    """What `shell.init` and `shell.start` tell of a job; `nodes` has the node of each task."""

    service: str
    leader_rank: int
    size: int  # nodes
    nodes: Sequence[int] = ()


class Contents(msgspec.Struct):
    """What is in a namespace, or on its way: `events` and `output` wait to be written."""

    names: set[str] = set()  # of the events in the exec eventlog
    places: dict[str, int] = {}  # by task and stream: bytes in the output
    seen: dict[str, int] = {}  # by task and stream: bytes that this program has taken
    limit: int = 0  # bytes of output
    kept: int = 0  # bytes
    dropped: int = 0  # bytes beyond the limit
    events: list[Event] = []
    output: list[Event] = []
    is_over: bool = False  # after the next commit nothing more comes
    stamped: float = 0.0  # timestamp of the last event, of either log

    def read_log(self, exec_log: str) -> None:
        """Take the events that an earlier program has left. Raises FormatError."""
        events = parse_eventlog(exec_log)
        self.names = {event.name for event in events}
        self.stamped = max((event.timestamp for event in events), default=0.0)

    def read_places(self, places: str) -> None:
        """Take how much output an earlier program has left. Raises msgspec.MsgspecError."""
        if places:
            written = msgspec.json.decode(places, type=Written)
            self.places, self.stamped = written.nbytes, max(self.stamped, written.stamped)
            self.kept = sum(self.places.values())

    def begin(self, now: float, ntasks: int) -> None:
        """Write the first events; in a namespace that was there before, that we have come to it."""
        if "init" in self.names:
            if "done" not in self.names:
                self.events.append(Event(self._stamp(now), "reattach"))
            return
        self._add(now, "init")
        self._add(now, "starting")
        self.output += log_begins(self._stamp(now), ntasks, {})
        # and with it PLACES: the namespace is ours

    def started(self, now: float, shell: Shell) -> None:
        init = {"service": shell.service, "leader-rank": shell.leader_rank, "size": shell.size}
        self._add(now, "shell.init", init)
        taskmap = {"version": 1, "map": taskmap_blocks(shell.nodes)}
        self._add(now, "shell.start", {"taskmap": taskmap})

    def add_piece(self, now: float, piece: dict[str, Any]) -> None:
        """Write a piece of output (RFC 24), without what is in the namespace already.

        Pieces of a stream come in order and from its beginning. Raises ValueError for what is no
        piece.
        """
        if not rfc24.has_data(piece):
            return  # a note to people about the output
        data = rfc24.bytes_of(piece)
        name = f"{piece['rank']}.{piece['stream']}"
        begin = self.seen.get(name, 0)
        self.seen[name] = begin + len(data)
        new = data[max(0, self.places.get(name, 0) - begin) :]
        kept = new[: max(0, self.limit - self.kept)]
        self.dropped += len(new) - len(kept)
        if kept:
            self.kept += len(kept)
            self.places[name] = self.places.get(name, 0) + len(kept)
            chunk = Chunk(int(piece["rank"]), piece["stream"], 0, kept)
            self.output += log_data(self._stamp(now), [chunk])

    def completed(self, now: float, status: int, ntasks: int, leader_rank: int) -> None:
        """Write that all output is there, and how the job's shells ended."""
        if "complete" in self.names:
            return
        note = f"output is cut off: {self.dropped} bytes beyond the limit" if self.dropped else ""
        self.output += log_ends(self._stamp(now), ntasks, [note] if note else [])
        self._add(now, "shell-exit", {"rank": leader_rank, "wait_status": status})
        self._add(now, "complete", rfc21.write(rfc21.Finish(status)))

    def done(self, now: float) -> None:
        """Write the last event."""
        self._add(now, "done")
        self.is_over = True

    def pop_ops(self) -> list[kvs.Op]:
        """Return what waits to be written, as operations of one commit in the namespace."""
        ops = []
        if self.events:
            ops.append(kvs.append(EXEC_LOG, format_eventlog(self.events)))
        if self.output:
            ops.append(kvs.append(OUTPUT, format_eventlog(self.output)))
            written = msgspec.json.encode(Written(self.places, self.stamped)).decode()
            ops.append(kvs.put(PLACES, written))
        if self.is_over:
            self.is_over = False
            ops.append(kvs.unlink(PLACES))
        self.events, self.output = [], []
        return ops

    def _add(self, now: float, name: str, context: dict[str, Any] | None = None) -> None:
        if name not in self.names:
            self.names.add(name)
            self.events.append(Event(self._stamp(now), name, context))

    def _stamp(self, now: float) -> float:
        """Return the timestamp of the next event; the clock may have been set back."""
        self.stamped = max(self.stamped, now)
        return self.stamped
