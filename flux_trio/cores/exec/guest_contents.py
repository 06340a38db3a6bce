"""What a job's guest namespace holds: its exec eventlog, and what its tasks wrote. Pure.

The events are those of flux-core's job-exec and flux-shell (RFC 16, 24), because Flux's own
programs wait for them: `flux run` follows no output before `shell.init`, and finds by it where to
send standard input. How much of each stream is in the namespace is written in the same commit as
the output. So a service that takes over from one that was killed writes each byte once.

What the tasks read is in `input_log`. Left out: `shell.task-exit`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.cores.exec.output import log_data, log_ends
from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.editions import exec_requests, rfc21, rfc24
from flux_trio.formats import Event, format_eventlog, parse_eventlog
from flux_trio.formats.meanings import KvsOp, Stamp

EXEC_LOG: Final = "exec.eventlog"
OUTPUT: Final = "output"
PLACES: Final = "flux-trio-written"
"""How much of each stream is there; our own key, which goes when the job is over."""


class Written(msgspec.Struct):
    """What PLACES has: `nbytes` by task and stream, and the timestamp of the last event."""

    nbytes: dict[str, int] = {}
    stamped: float = 0.0


class Contents(msgspec.Struct):
    """What is in a namespace, or on its way: `events`, `output` and `more` wait to be written."""

    names: set[str] = set()  # of the events in the exec eventlog
    places: dict[str, int] = {}  # by task and stream: bytes in the output
    seen: dict[str, int] = {}  # by task and stream: bytes that this service has taken
    limit: int = 0  # bytes of output
    kept: int = 0  # bytes of output
    events: list[Event] = []
    output: list[Event] = []
    more: list[KvsOp] = []
    is_over: bool = False  # after the next commit nothing more comes
    stamped: Stamp = 0.0  # timestamp of the last event, of any log

    def read_log(self, exec_log: str) -> None:
        """Take the events that an earlier service has left. Raises FormatError."""
        events = parse_eventlog(exec_log)
        self.names = {event.name for event in events}
        self.stamped = max((event.timestamp for event in events), default=0.0)

    def read_places(self, places: str) -> None:
        """Take how much an earlier service has left. Raises msgspec.MsgspecError."""
        if places:
            written = msgspec.json.decode(places, type=Written)
            self.places, self.stamped = written.nbytes, max(self.stamped, written.stamped)
            self.kept = sum(self.places.values())

    def begin(self, now: float) -> None:
        """Write the first events; in a namespace that was there before, that we have come to it."""
        if "init" not in self.names:
            self.add(now, "init")
            self.add(now, "starting")
        elif "done" not in self.names:
            self.events.append(Event(self.stamp(now), "reattach"))

    def shells_started(self, now: float, shell: exec_requests.ShellInit, nodes: list[int]) -> None:
        """Write that the tasks run, once; `nodes` has the node of each."""
        self.add(now, "shell.init", msgspec.to_builtins(shell))
        self.add(now, "shell.start", exec_requests.taskmap(nodes))

    def add_piece(self, now: float, piece: dict[str, Any]) -> None:
        """Write a piece of output (RFC 24), without what is in the namespace already.

        Pieces of a stream come in order and from its beginning.
        """
        data = rfc24.bytes_of(piece)
        stream, rank = rfc24.place_in(piece)
        name = f"{rank}.{stream}"
        begin = self.seen.get(name, 0)
        self.seen[name] = begin + len(data)
        new = data[max(0, self.places.get(name, 0) - begin) :]
        kept = new[: max(0, self.limit - self.kept)]
        if kept:
            self.kept += len(kept)
            self.places[name] = self.places.get(name, 0) + len(kept)
            chunk = Chunk(int(rank), stream, 0, kept)
            self.output += log_data(self.stamp(now), [chunk])

    def completed(
        self, now: float, status: int, ntasks: int, leader: int | None, lacks: list[str]
    ) -> None:
        """Write how the job ended; all its output is there, but for what `lacks` says.

        `leader` has the first of its shells; without it the job had none: it was simulated.
        """
        if "complete" in self.names:
            return
        if leader is not None:
            self.output += log_ends(self.stamp(now), ntasks, lacks)
            shell = exec_requests.ShellExit(leader, status)
            self.add(now, "shell-exit", msgspec.to_builtins(shell))
        self.add(now, "complete", rfc21.write(rfc21.Finish(status)))

    def done(self, now: float) -> None:
        """Write the last event."""
        self.add(now, "done")
        self.is_over = True

    def pop_ops(self) -> list[KvsOp]:
        """Return what waits to be written, as operations of one commit in the namespace."""
        ops, logs = self.more, {EXEC_LOG: self.events, OUTPUT: self.output}
        ops += [["append", key, format_eventlog(log)] for key, log in logs.items() if log]
        self.events, self.output, self.more = [], [], []
        if self.is_over:
            self.is_over = False
            ops.append(["unlink", PLACES])
        elif ops:  # and with it: the namespace is ours
            written = msgspec.json.encode(Written(self.places, self.stamped)).decode()
            ops.append(["put", PLACES, written])
        return ops

    def add(self, now: float, name: str, context: dict[str, Any] | None = None) -> None:
        """Write an event that the exec eventlog has once."""
        if name not in self.names:
            self.names.add(name)
            self.events.append(Event(self.stamp(now), name, context))

    def stamp(self, now: float) -> float:
        """Return the timestamp of the next event; the clock may have been set back."""
        self.stamped = max(self.stamped, now)
        return self.stamped
