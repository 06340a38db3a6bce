"""Streams of responses, and the credit of their readers. Pure.

A stream whose source can wait (a job's output, an eventlog, a listing, a key of the kvs) has an
optional request key `credit`. The service sends that many responses, then holds back the rest at
its source until the reader grants more by `<topic>-credit` {matchtag, credit}. The response that
ends the stream, an error or ENODATA, needs no credit. A request without the key sets no bound: its
reader is sent everything at once, and is disconnected when too much waits for it. `<topic>-cancel`
{matchtag} ends a stream with ECANCELED.

A service keeps its streams in a `Streams` and sends no more than a stream's `credit` allows.
Streams that are fed by events (journal, dmesg, subscriptions) have no credit: their source cannot
wait.
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec

from flux_trio.editions.common import CANCEL, CREDIT_MAX, GRANT
from flux_trio.formats.meanings import JobId, Matchtag, Peer
from flux_trio.messages import Request, check_new_stream, unknown_stream

StreamKey: TypeAlias = tuple[Peer, Matchtag]
"""The sender and the matchtag of the request that opened a stream (RFC 6)."""


class Credit(msgspec.Struct):
    """What is left of one stream's credit; None if its request set no bound."""

    left: int | None = None

    def allows(self, wanted: int) -> int:
        """Return how many of `wanted` responses may be sent now."""
        return wanted if self.left is None else max(0, min(wanted, self.left))

    def spend(self, count: int = 1) -> None:
        """Count responses that were sent; there must have been credit for them."""
        if self.left is not None:
            assert count <= self.left, f"{count} responses sent with credit for {self.left}"
            self.left -= count

    def overdraw(self, count: int) -> None:
        """Count further responses that go with one for which there was credit."""
        if self.left is not None:
            self.left -= count

    def add(self, more: int) -> None:
        """Take a grant; it changes nothing for a stream without a bound."""
        if self.left is not None:
            self.left = min(self.left + more, CREDIT_MAX)


class Stream(msgspec.Struct):
    """An open stream: the request that opened it, and its reader's credit."""

    request: Request
    credit: Credit

    @property
    def stream(self) -> StreamKey:
        return self.request.sender, self.request.matchtag


class JobStream(Stream):
    """A stream about one job."""

    jobid: JobId


StreamT = TypeVar("StreamT", bound=Stream)
JobStreamT = TypeVar("JobStreamT", bound=JobStream)


class Streams(Generic[StreamT]):
    """The open streams of one topic; only the streams are dumped."""

    def __init__(self) -> None:
        self._open: dict[StreamKey, StreamT] = {}
        self._by_sender: dict[str, dict[StreamKey, StreamT]] = {}

    def __getstate__(self) -> list[StreamT]:
        return list(self._open.values())

    def __setstate__(self, streams: list[StreamT]) -> None:
        self._open, self._by_sender = {}, {}
        for each in streams:
            self.add(each)

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._open

    def get(self, key: StreamKey) -> StreamT | None:
        return self._open.get(key)

    def all_open(self) -> list[StreamT]:
        """Return the streams, the oldest first."""
        return list(self._open.values())

    def is_open(self, stream: StreamT) -> bool:
        """Return whether `stream` itself is open, rather than a later one with its key."""
        return self._open.get(stream.stream) is stream

    def of_sender(self, sender: str) -> list[StreamT]:
        """Return the streams that peer `sender` has opened, the oldest first."""
        return list(self._by_sender.get(sender, {}).values())

    def check_new(self, request: Request) -> None:
        """Raise FluxError(EPROTO) unless `request` may open a stream."""
        check_new_stream(request, self._open)

    def add(self, stream: StreamT) -> None:
        key = stream.stream
        self._open[key] = stream
        self._by_sender.setdefault(key[0], {})[key] = stream

    def remove(self, stream: StreamT) -> None:
        """Forget `stream`, which is open."""
        key = stream.stream
        del self._open[key]
        _remove_below(self._by_sender, key[0], key)

    def granted(self, request: Request) -> StreamT | None:
        """Add the credit of a `<topic>-credit` request. Raises FluxError(EPROTO).

        Returns the stream; None if it has ended meanwhile, which is no error: grants cross its end.
        """
        grant = GRANT.read(request)
        stream = self._open.get((request.sender, grant.matchtag))
        if stream is not None:
            stream.credit.add(grant.credit)
        return stream

    def canceled(self, request: Request) -> StreamT:
        """Return the stream that a `<topic>-cancel` request is to end. Raises FluxError(ENOENT)."""
        matchtag = CANCEL.read(request).matchtag
        stream = self._open.get((request.sender, matchtag))
        if stream is None:
            raise unknown_stream(request, matchtag)
        return stream


class JobStreams(Streams[JobStreamT]):
    """Open streams that are found by job, too."""

    def __init__(self) -> None:
        super().__init__()
        self._by_job: dict[int, dict[StreamKey, JobStreamT]] = {}

    def __setstate__(self, streams: list[JobStreamT]) -> None:
        self._by_job = {}
        super().__setstate__(streams)

    def of_job(self, jobid: int) -> list[JobStreamT]:
        """Return the streams about the job, the oldest first."""
        return list(self._by_job.get(jobid, {}).values())

    def add(self, stream: JobStreamT) -> None:
        super().add(stream)
        self._by_job.setdefault(stream.jobid, {})[stream.stream] = stream

    def remove(self, stream: JobStreamT) -> None:
        super().remove(stream)
        _remove_below(self._by_job, stream.jobid, stream.stream)


_KeyT = TypeVar("_KeyT")


def _remove_below(
    index: dict[_KeyT, dict[StreamKey, StreamT]], key: _KeyT, stream: StreamKey
) -> None:
    """Remove `stream` below `key`, and `key` if it was the last one there."""
    del index[key][stream]
    if not index[key]:
        del index[key]
