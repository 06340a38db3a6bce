"""What a job's guest namespace holds: its exec eventlog, and what its tasks wrote. Pure.

The events are those of flux-core's job-exec and flux-shell (RFC 16, 24), because Flux's own
programs wait for them: `flux run` follows no output before `shell.init`, and finds by it where to
send standard input. How much of each stream is in the namespace is written in the same commit as
the output. So a service that takes over from one that was killed writes each byte once.

What the tasks read is in `input_log`. Left out: `shell.task-exit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.cores.exec.output import log_data, log_ends, truncated, whole_length
from flux_trio.cores.exec.vocabulary import Chunk
from flux_trio.cores.stored_jobs import PIECE_CHARS
from flux_trio.formats import Event, format_eventlog, parse_eventlog
from flux_trio.formats.meanings import KvsOp, Stamp

EXEC_LOG: Final = "exec.eventlog"
OUTPUT: Final = "output"
PLACES: Final = "flux-trio-written"
"""How much of each stream is there; our own key, which goes when the job is over."""
ENDS: Final = frozenset({"shell-exit", "complete", "done"})


class Written(msgspec.Struct, omit_defaults=True):
    """What PLACES has: `nbytes` by task and stream, and the timestamp of the last event.

    `piece` and `chars` say where the output ends, if it is not one value for who writes it.
    """

    nbytes: dict[str, int] = {}
    stamped: float = 0.0
    piece: int = 0
    chars: int = 0


class Contents(msgspec.Struct):
    """What is in a namespace, or on its way: `events`, `output` and `more` wait to be written."""

    names: set[str] = set()  # of the events in the exec eventlog
    places: dict[str, int] = {}  # by task and stream: bytes in the output
    seen: dict[str, int] = {}  # by task and stream: bytes that this service has taken
    limit: int = 0  # bytes of output
    kept: int = 0  # bytes of output
    taken: int = 0  # bytes of output since the last commit
    refused: str = ""  # why the kvs did not take output; then no more of it is written
    piece: int = 0  # number of the last key of the output
    chars: int = 0  # of its value
    is_marked: bool = False  # PLACES is written with what else is written
    is_placed: bool = False  # PLACES is there
    before: tuple[int, int, bool] = (0, 0, False)  # these three before the last commit
    sent: list[Event] = []  # the events in it
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
            self.piece, self.chars, self.is_placed = written.piece, written.chars, True
            self.is_marked = True
            self.kept = sum(self.places.values())

    def begin(self, now: float) -> None:
        """Write the first events; in a namespace that was there before, that we have come to it."""
        if "init" not in self.names:
            self.add(now, "init")
            self.add(now, "starting")
        elif "done" not in self.names:
            self.events.append(Event(self.stamp(now), "reattach"))

    def add_output(self, now: float, chunk: Chunk) -> None:
        """Write output, without what is in the namespace already.

        Chunks of a stream come in order and from its beginning.
        """
        name, data = f"{chunk.taskid}.{chunk.stream}", chunk.data
        begin = self.seen.get(name, 0)
        self.seen[name] = begin + len(data)
        self.taken += len(data)
        kept = data[max(0, self.places.get(name, 0) - begin) :]
        if (room := self.limit - self.kept) < len(kept):
            kept = kept[: whole_length(kept[: max(0, room)])]
            self.limit = self.kept + len(kept)
        if kept and not self.refused:
            self.kept += len(kept)
            self.places[name] = self.places.get(name, 0) + len(kept)
            kept_chunk = Chunk(chunk.taskid, chunk.stream, chunk.offset, kept)
            self.output += log_data(self.stamp(now), [kept_chunk])

    def end_output(self, now: float, ntasks: int, sizes: Mapping[tuple[int, str], int]) -> None:
        """Write that no more output comes, once, and what of it is not there.

        `sizes` has how many bytes each task has written to each stream.
        """
        if "complete" in self.names:
            return
        lacks = truncated(sizes, self.limit)
        if self.refused:
            lacks = [f"output is cut off, the rest is refused: {self.refused}"]
        self.output += log_ends(self.stamp(now), ntasks, lacks)

    def end(self, now: float) -> None:
        """Write the last event."""
        self.add(now, "done")
        self.is_over = True

    def pop_ops(self, *, in_pieces: bool) -> list[KvsOp]:
        """Return what waits to be written, as operations of one commit in the namespace.

        `in_pieces` says that long output needs several keys (`stored_jobs`).
        """
        if not (self.events or self.output or self.more or self.is_over):
            return []
        ops: list[KvsOp] = self.more
        self.is_marked |= bool(self.output or self.more)
        self.before = self.piece, self.chars, self.is_placed
        if self.events:
            ops.append(["append", EXEC_LOG, format_eventlog(self.events)])
        if self.output:
            ops.append(self._output_op(format_eventlog(self.output), in_pieces=in_pieces))
        self.sent, self.events, self.output, self.more = self.events, [], [], []
        if self.is_over:
            ops += [["unlink", PLACES]] if self.is_placed else []
            self.is_over = self.is_placed = False
        elif ops and self.is_marked:
            self.is_placed = True
            written = Written(self.places, self.stamped, self.piece, self.chars)
            ops.append(["put", PLACES, msgspec.json.encode(written).decode()])
        return ops

    def _output_op(self, text: str, *, in_pieces: bool) -> KvsOp:
        """Return what writes `text`; a key that begins has nothing of an earlier service."""
        if not in_pieces:
            return ["append", OUTPUT, text]
        if self.chars >= PIECE_CHARS:
            self.piece, self.chars = self.piece + 1, 0
        op = "append" if self.chars else "put"
        self.chars += len(text)
        return [op, f"{OUTPUT}.{self.piece}" if self.piece else OUTPUT, text]

    def refuse(self, reason: str) -> None:
        """Write no more output: the kvs has refused the last commit.

        The events in it are written once more, and the end is written again, with a note.
        """
        if not self.refused:
            self.refused = reason
            self.piece, self.chars, self.is_placed = self.before
            self.events[:0] = [event for event in self.sent if event.name not in ENDS]
            self.names -= ENDS

    def pop_taken(self) -> int:
        """Return how many bytes of output were taken since the last call."""
        taken, self.taken = self.taken, 0
        return taken

    def add(self, now: float, name: str, context: dict[str, Any] | None = None) -> None:
        """Write an event that the exec eventlog has once."""
        if name not in self.names:
            self.names.add(name)
            self.events.append(Event(self.stamp(now), name, context))

    def stamp(self, now: float) -> float:
        """Return the timestamp of the next event; the clock may have been set back."""
        self.stamped = max(self.stamped, now)
        return self.stamped
