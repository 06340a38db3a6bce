"""What commands and the job manager ask the execution service beside RFC 32; our own payloads."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.editions.codec import codec


class Input(msgspec.Struct, frozen=True):
    """The <service>.input request; `data` is base64 in the message."""

    id: int
    data: bytes = b""
    eof: bool = False


class JournalContext(msgspec.Struct, frozen=True):
    """Of the contexts of resource-update and release: the keys that matter to the service."""

    expiration: float | None = None
    final: bool = False


class JournalEvent(msgspec.Struct, frozen=True):
    """An event of a job's eventlog."""

    name: str
    context: JournalContext | None = None


class Journal(msgspec.Struct, frozen=True):
    """A job-manager.events-journal response: id of a job, place in its eventlog, event."""

    events: list[tuple[int, int, JournalEvent]]


class Stats(msgspec.Struct, frozen=True):
    """What <service>.stats-get counts beside requests: jobs by phase."""

    jobs: dict[str, int]


INPUT: Final = codec(Input)
JOURNAL: Final = codec(Journal)


def stats(counted: Stats) -> dict[str, Any]:
    """The counts as plain data."""
    return msgspec.structs.asdict(counted)
