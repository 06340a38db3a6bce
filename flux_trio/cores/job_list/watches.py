"""job-info.eventlog-watch: the lines of an eventlog of a job, from the first to the end of the job.

While the job is active its log is followed with kvs.watch; once it is inactive the log is complete,
and the rest is read. A stream keeps its place and at most some HELD_CHARS_MAX of what comes next. A
reader without credit is read on for from its place, so it may pause as long as it likes. The output
of a job (`guest.output`) may be several keys, which are read as one eventlog.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.credit import Credit, CreditKey, read_grant
from flux_trio.cores.job_list.exchange import Exchange, JobCounted, LogChanged, LogRead, StreamKey
from flux_trio.cores.job_list.records import Record
from flux_trio.cores.job_list.scan import Value
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.state import Part
from flux_trio.cores.stored_output import OUTPUT, check_not_purged, count_payload, output_key
from flux_trio.formats import job_key
from flux_trio.messages import (
    Errno,
    Flag,
    FluxError,
    Request,
    Response,
    end_of_stream,
    expect_payload,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import JobState

WATCHES_OF_USER_MAX: Final = 1024  # open at once; beyond it EAGAIN
# Of one stream, in memory beyond what its reader has credit for; or one line, if that is longer.
# What is beyond is left in the kvs and read again.
HELD_CHARS_MAX: Final = 1 << 16
# Of a value that is longer than so many times that, it is this part: each read takes all of it.
READS_MAX: Final = 32


class WatchRequest(msgspec.Struct):
    """The job-info.eventlog-watch request; `path` is below the job's directory.

    Without `follow` the stream ends with what is stored now; `credit` is that of the stream.
    """

    id: int
    path: str = "eventlog"
    follow: bool = True
    credit: CreditKey | None = None


class CancelRequest(msgspec.Struct):
    """The job-info.eventlog-watch-cancel request."""

    matchtag: int


class _Change(msgspec.Struct):
    """A kvs.watch response: all of the value, or what was appended."""

    value: str | None = None
    append: str = ""


class _Watch(msgspec.Struct):
    """A stream of one eventlog's lines, and its place."""

    request: Request
    jobid: int
    path: str
    follow: bool
    credit: Credit
    matchtag: int = 0  # of the kvs.watch, 0 when there is none
    is_last: bool = False  # the log grows no more, or is not to be followed
    piece: int = 0  # number of the key that is read; always 0 but for output
    told: int = 0  # characters of its value, in whole lines
    held: str = ""  # what of the value comes after them, from `at` on
    at: int = 0
    behind: bool = False  # the kvs has more than `held`
    reading: bool = False  # a lookup is under way
    reads: int = 0  # lookups so far; the answer to the last one counts

    @property
    def key(self) -> StreamKey:
        """Its sender and matchtag."""
        return self.request.sender, self.request.matchtag

    @property
    def log_key(self) -> str:
        """The key of the kvs that is read."""
        name = output_key(self.piece) if self.path == OUTPUT else self.path
        return job_key(self.jobid, name)

    def take_lines(self) -> list[str]:
        """The next whole lines, as many as there is credit for; the others are not looked at."""
        lines = []
        end = self.held.find("\n", self.at) + 1
        while end and self.credit.allows(1):
            lines.append(self.held[self.at : end - 1])
            self.credit.spend()
            self.told += end - self.at
            self.at = end
            end = self.held.find("\n", end) + 1
        if self.at == len(self.held):
            self.held, self.at = "", 0
        return lines

    @property
    def has_line(self) -> bool:
        """Whether a whole line is held."""
        return self.held.find("\n", self.at) >= 0

    def hold(self, text: str) -> None:
        """Keep of the `text` that follows in the kvs as much as may be held: all without credit."""
        most = max(HELD_CHARS_MAX, (self.told + len(text)) // READS_MAX)
        if self.credit.left is not None and len(text) > most:
            end = text.rfind("\n", 0, most) + 1 or text.find("\n") + 1 or len(text)
            self.behind = end < len(text)
            text = text[:end]
        else:
            self.behind = False
        self.held, self.at = text, 0


class Watches(Part):
    _watches: dict[str, dict[int, _Watch]]
    _by_job: dict[int, dict[StreamKey, _Watch]]
    _of_user: Allowance

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._watches = {}  # open streams, by sender, then matchtag
        self._by_job = {}
        self._of_user = Allowance(WATCHES_OF_USER_MAX, "eventlog watches")

    def open(self, request: Request, wanted: WatchRequest, record: Record) -> None:
        """job-info.eventlog-watch of a job that its sender may read. Raises FluxError."""
        streams = self._watches.get(request.sender, {})
        if not request.is_streaming or request.matchtag in streams:
            text = f"{request.topic}: expected the streaming flag and a matchtag not in use"
            raise FluxError(Errno.EPROTO, text)
        self._of_user.take(request.userid)
        watch = _Watch(request, record.id, wanted.path, wanted.follow, Credit(wanted.credit))
        streams[request.matchtag] = watch
        self._watches[request.sender] = streams
        self._by_job.setdefault(record.id, {})[watch.key] = watch
        if record.state == JobState.INACTIVE or not watch.follow:
            watch.is_last = True
            self._read(watch)
        else:
            payload = {"key": watch.log_key}
            awaited = LogChanged(watch.key)
            watch.matchtag = self._exchange.ask(
                topics.KVS_WATCH, payload, awaited, int(Flag.STREAMING)
            )

    def grant(self, request: Request) -> None:
        """job-info.eventlog-watch-credit: the reader of a stream is ready for more."""
        key, more = read_grant(request)
        watch = self._find(key)
        if watch is not None:
            watch.credit.add(more)
            self._tell(watch)
        self._exchange.send(respond(request))

    def cancel(self, request: Request) -> None:
        """job-info.eventlog-watch-cancel: end one of the sender's streams with ECANCELED."""
        matchtag = expect_payload(request, CancelRequest).matchtag
        watch = self._find((request.sender, matchtag))
        if watch is None:
            raise FluxError(Errno.ENOENT, f"{request.topic}: no watch with matchtag {matchtag}")
        self._end(watch, respond_error(watch.request, Errno.ECANCELED))
        self._exchange.send(respond(request, {}))

    def forget(self, sender: str) -> None:
        """Nobody reads these streams any more."""
        for watch in list(self._watches.get(sender, {}).values()):
            self._end(watch, None)

    def ended(self, jobid: int) -> None:
        """The job is inactive: its eventlogs are complete in the kvs."""
        for watch in self._by_job.get(jobid, {}).values():
            if not watch.is_last:
                self._stop(watch)
                watch.is_last = True
                self._read(watch)

    @property
    def count(self) -> int:
        """Number of open streams."""
        return sum(len(streams) for streams in self._watches.values())

    # What the kvs tells

    def changed(self, key: StreamKey, response: Response) -> None:
        """The log of an active job has grown, or is gone."""
        watch = self._find(key)
        if watch is None:
            return
        if response.errnum:
            watch.matchtag = 0
            self._end(watch, respond_error(watch.request, response.errnum, response.error_text))
            return
        change = expect_payload(response, _Change)
        if change.value is not None:
            watch.hold(change.value[watch.told :])
        elif not watch.behind:
            watch.hold(watch.held[watch.at :] + change.append)
        self._tell(watch)

    def read(self, awaited: LogRead, response: Response) -> None:
        """The value of the key where a stream is."""
        watch = self._find(awaited.stream)
        if watch is None or (watch.log_key, watch.reads) != (awaited.key, awaited.number):
            return
        if response.errnum == Errno.ENOENT and (watch.follow or watch.piece):
            payload = count_payload(watch.jobid)  # a job may end without that eventlog
            self._exchange.ask(topics.KVS_COUNT, payload, JobCounted(watch.key, watch.reads))
            return
        watch.reading = False
        if response.errnum:
            missing = response.errnum == Errno.ENOENT
            text = f"{watch.path}: key not found" if missing else response.error_text
            self._end(watch, respond_error(watch.request, response.errnum, text))
        else:
            watch.hold(expect_payload(response, Value).value[watch.told :])
            self._tell(watch)

    def counted(self, awaited: JobCounted, response: Response) -> None:
        """The key is absent: that is the end, unless the job was purged."""
        watch = self._find(awaited.stream)
        if watch is None or watch.reads != awaited.number:
            return
        try:
            check_not_purged(response)
        except FluxError as error:
            self._end(watch, respond_error(watch.request, error.errnum, error.text))
        else:
            self._end(watch, end_of_stream(watch.request))

    def _tell(self, watch: _Watch) -> None:
        """Send what there is credit for; then read on, or end."""
        for line in watch.take_lines():
            self._exchange.send(respond_stream(watch.request, {"event": line}))
        if watch.reading or watch.has_line:  # without credit
            return
        if watch.behind:
            if watch.credit.allows(1):
                self._read(watch)
        elif watch.is_last:
            self._end_piece(watch)

    def _end_piece(self, watch: _Watch) -> None:
        """All of one value was told."""
        if watch.path == OUTPUT:
            watch.piece += 1
            watch.told = 0
            watch.hold("")
            self._read(watch)
        else:
            self._end(watch, end_of_stream(watch.request))

    def _read(self, watch: _Watch) -> None:
        watch.reading = True
        watch.reads += 1
        awaited = LogRead(watch.key, watch.log_key, watch.reads)
        self._exchange.ask(topics.KVS_LOOKUP, {"key": watch.log_key}, awaited)

    # Ends

    def _end(self, watch: _Watch, last: Response | None) -> None:
        self._stop(watch)
        sender, matchtag = watch.key
        del self._watches[sender][matchtag]
        if not self._watches[sender]:
            del self._watches[sender]
        del self._by_job[watch.jobid][watch.key]
        if not self._by_job[watch.jobid]:
            del self._by_job[watch.jobid]
        self._of_user.give_back(watch.request.userid)
        self._exchange.send(last)

    def _stop(self, watch: _Watch) -> None:
        if watch.matchtag:
            self._exchange.hang_up(watch.matchtag)
            cancel = Request(
                topics.KVS_CANCEL, {"matchtag": watch.matchtag}, flags=int(Flag.NORESPONSE)
            )
            self._exchange.send(cancel)
            watch.matchtag = 0

    def _find(self, key: StreamKey) -> _Watch | None:
        sender, matchtag = key
        return self._watches.get(sender, {}).get(matchtag)
