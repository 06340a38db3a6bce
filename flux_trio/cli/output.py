"""The output of jobs: from where it comes to where it is shown, as bytes."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from flux_trio.cli.errors import complain
from flux_trio.messages import FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client

Sink: TypeAlias = Callable[[bytes], None]


@dataclass(frozen=True)
class Outputs:
    """Where the two streams of a job go, and what is told about the job beside them."""

    stdout: Sink
    stderr: Sink

    def line(self, text: str) -> None:
        """A line about the job, such as its id."""
        self.stdout(f"{text}\n".encode())

    def remark(self, text: str) -> None:
        """A line about the job that is not what was asked for."""
        self.stderr(f"{text}\n".encode())


def standard_outputs() -> Outputs:
    """The streams of the command itself."""
    return Outputs(into(sys.stdout.buffer), into(sys.stderr.buffer))


def into(file: IO[bytes]) -> Sink:
    """A sink that writes to a file at once."""

    def write(data: bytes) -> None:
        file.write(data)
        file.flush()

    return write


class Labels:
    """Lines with a label in front: `prefix`, and the task they come from.

    What of a line has come waits for the rest of it.
    """

    def __init__(self, outputs: Outputs, prefix: str = "") -> None:
        self._outputs = outputs
        self._prefix = prefix
        self._rest: dict[tuple[str, str], bytes] = {}

    def write(self, stream: str, rank: str, data: bytes) -> None:
        """Take a piece of one task's stream, and show the lines that are whole."""
        *lines, rest = (self._rest.pop((stream, rank), b"") + data).split(b"\n")
        for line in lines:
            self._show(stream, rank, line)
        if rest:
            self._rest[stream, rank] = rest

    def finish(self) -> None:
        """Show lines that nothing ended."""
        for (stream, rank), line in self._rest.items():
            self._show(stream, rank, line)
        self._rest.clear()

    def _show(self, stream: str, rank: str, line: bytes) -> None:
        label = f"{self._prefix}{rank}: ".encode()
        _sink(self._outputs, stream)(label + line + b"\n")


async def show_output(
    client: Client, jobid: int, outputs: Outputs, labels: Labels | None = None
) -> None:
    """Show the output of a job to its end, with `labels` by them; what hinders it is told."""
    try:
        async with client.stream(
            topics.EXEC_ATTACH, {"id": jobid}, cancel_topic=topics.EXEC_ATTACH_CANCEL
        ) as pieces:
            async for piece in pieces:
                if labels is None:
                    _sink(outputs, piece["stream"])(_data(piece))
                else:
                    labels.write(piece["stream"], piece["rank"], _data(piece))
    except FluxError as error:
        complain(f"the output ends here: {error}")
    finally:
        if labels is not None:
            labels.finish()


def _sink(outputs: Outputs, stream: str) -> Sink:
    return outputs.stderr if stream == "stderr" else outputs.stdout


def _data(piece: dict[str, Any]) -> bytes:
    """The bytes of one RFC 24 data event."""
    data: str = piece["data"]
    return base64.b64decode(data) if piece.get("encoding") == "base64" else data.encode()
