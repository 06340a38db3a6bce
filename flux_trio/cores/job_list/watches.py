"""job-info.eventlog-watch: the lines of an eventlog of a job, from the first to the end of the job.

One stream, in order:

    reader  job-info.eventlog-watch         → a response for each line
    asks    job-exec.copy, if output is wanted that may not be stored; kvs.watch
    reader  job-info.eventlog-watch-credit  → as many lines more
    asks    a lookup of the key, when the job is inactive or a reader was slow
    reader                                  ← ENODATA after the last line; ENOENT without a log

While the job is active, the log is followed with kvs.watch; once the job is inactive, the log is
complete and the rest is read. A stream keeps its place and at most some HELD_CHARS_MAX of the text
after it. When a reader grants credit again, reading goes on from its place, so a reader may pause
as long as it likes. The output of a job (`guest.output`) may be in several keys, which are read as
one eventlog: a key is full when it has PIECE_CHARS, and then the next one is followed.

While a job runs, the execution service stores its output when somebody reads it. The reader waits
until what was there when he came is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from flux_trio.cores.job_list.exchange import (
    Exchange,
    JobCounted,
    LogChanged,
    LogRead,
    OutputStored,
)
from flux_trio.cores.job_list.output_lines import OutputLines
from flux_trio.cores.job_list.records import Record
from flux_trio.cores.kvs_calls import change_in, look_up_own, value_in, watch_key
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import (
    OUTPUT,
    PIECE_CHARS,
    check_not_purged,
    count_keys,
    output_key,
)
from flux_trio.cores.streams import Credit, JobStream, JobStreams, StreamKey
from flux_trio.editions import exec_requests, job_list
from flux_trio.editions.common import canceled
from flux_trio.formats import EVENTLOG, FormatError, format_event, job_key, parse_event
from flux_trio.formats.meanings import EventlogText, Matchtag
from flux_trio.messages import (
    Errno,
    Flag,
    FluxError,
    Request,
    Response,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import JobEvent, JobState

WATCHES_OF_USER_MAX: Final = 2048  # open at once; beyond it EAGAIN
WATCHES_OF_OWNER_MAX: Final = 20_000  # of the owner, whose programs hold one for each job
# Characters of one stream's text that are held without credit, or one line if it is longer. The
# rest is left in the kvs and read later.
HELD_CHARS_MAX: Final = 1 << 16
# At least this fraction of a long value is held, 1 / READS_MAX, since each read is of all of it.
READS_MAX: Final = 32


class _Watch(JobStream):
    """A stream of one eventlog's lines, and its place."""

    path: str
    follow: bool
    matchtag: Matchtag = 0  # of the kvs.watch, 0 without one
    is_last: bool = False  # the log grows no more, or is not to be followed
    piece: int = 0  # number of the key that is read; 0 unless output is read
    chars_sent: int = 0  # characters of its value, in whole lines
    held: EventlogText = ""  # the next part of its value, from `at` on
    at: int = 0
    behind: bool = False  # the kvs has more than `held`
    flags: int | None = None  # of a request of Flux's own programs
    is_checked: bool = True  # it is known whether the eventlog is there, or may come
    copied: Matchtag = 0  # of the job-exec.copy under way, 0 without one
    lines: OutputLines = msgspec.field(default_factory=OutputLines)  # of output, for Flux's own
    owes_sentinel: bool = False  # an empty response follows what is there already
    has_run: bool = False  # the job has had resources; if it is over, no eventlog comes any more
    asked: Matchtag = 0  # of the lookup under way, or the count after it; 0 without one

    @property
    def log_key(self) -> str:
        """The kvs key that is being read."""
        name = output_key(self.piece) if self.path == OUTPUT else self.path
        return job_key(self.jobid, name)

    @property
    def waits_for_log(self) -> bool:
        """Return whether a missing eventlog is waited for, as flux-core does for those of tasks."""
        flags = self.flags
        return flags is None or bool(flags & job_list.WATCH_WAITCREATE) or self.path != EVENTLOG

    @property
    def must_exist(self) -> bool:
        """Return whether it is an error that the eventlog of a job that is over is missing.

        Flux's own programs are told so, unless the job never ran. A job may have no output.
        """
        return self.flags is not None and self.is_last and self.has_run and self.path != OUTPUT

    def pop_lines(self) -> Iterator[str]:
        """Remove and yield the next whole lines, as long as there is credit.

        Of a stream with a bound, no more than the beginning of what is left is held.
        """
        newline = 0 if self.flags is None else 1  # flux-core's lines keep theirs
        end = self.held.find("\n", self.at) + 1
        while end and self.credit.allows(1):
            line = self.held[self.at : end - 1 + newline]
            self.credit.spend()
            self.chars_sent += end - self.at
            self.at = end
            yield line
            end = self.held.find("\n", end) + 1
        left = len(self.held) - self.at
        if not left:
            self.held, self.at = "", 0
        elif self.credit.left is not None and left > HELD_CHARS_MAX:
            self._hold_beginning(max(HELD_CHARS_MAX, (self.chars_sent + left) // READS_MAX))

    def _hold_beginning(self, most: int) -> None:
        """Keep whole lines of the text that is left: at least one, and `most` characters."""
        text = self.held[self.at :]
        end = text.rfind("\n", 0, most) + 1 or text.find("\n") + 1 or len(text)
        self.behind |= end < len(text)
        self.held, self.at = text[:end], 0

    @property
    def has_line(self) -> bool:
        """Return whether a whole line is held."""
        return self.held.find("\n", self.at) >= 0

    def hold(self, text: str) -> None:
        """Take the text that follows what was sent; `pop_lines` sends it."""
        self.held, self.at, self.behind = text, 0, False


class Watches(Part):
    _watches: JobStreams[_Watch]
    _of_user: Allowance

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._watches = JobStreams()
        self._of_user = Allowance(
            WATCHES_OF_USER_MAX, "eventlog watches", of_owner=WATCHES_OF_OWNER_MAX
        )

    def check(self, request: Request) -> job_list.Watch:
        """Return what a request asks for, of a job that may be unknown. Raises FluxError."""
        self._watches.check_new(request)
        wanted = job_list.WATCH.read(request)
        known = job_list.WATCH_WAITCREATE | job_list.WATCH_INITIAL_SENTINEL
        if (wanted.flags or 0) & ~known:
            text = f"{request.topic}: invalid flags: expected 0 to {known}, got {wanted.flags}"
            raise FluxError(Errno.EPROTO, text)
        return wanted

    def open(self, request: Request, wanted: job_list.Watch, record: Record) -> None:
        """Open the stream of a job that the sender may read. Raises FluxError."""
        self._of_user.count_opened(request.userid, is_owner=request.is_owner)
        watch = _Watch(request, Credit(wanted.credit), record.id, wanted.path, wanted.follow)
        watch.has_run = record.t_run is not None
        watch.flags = wanted.flags
        watch.owes_sentinel = bool((wanted.flags or 0) & job_list.WATCH_INITIAL_SENTINEL)
        self._watches.add(watch)
        if record.state == JobState.INACTIVE or not watch.follow:
            watch.is_last = True
            self._read(watch)
        elif watch.path == OUTPUT:
            self._have_output_stored(watch)
        elif watch.waits_for_log and not (watch.owes_sentinel and watch.has_run):
            self._follow(watch)
        else:  # flux-core says at once that there is no such eventlog, or nothing in it yet
            watch.is_checked = False
            self._read(watch)

    def _follow(self, watch: _Watch) -> None:
        awaited = LogChanged(watch.stream)
        watch.matchtag = self._exchange.ask_kvs(
            watch_key(watch.log_key), awaited, int(Flag.STREAMING)
        )

    def _have_output_stored(self, watch: _Watch) -> None:
        """Let the execution service store the output of a job that runs."""
        payload = exec_requests.COPY.write(exec_requests.Copy(watch.jobid))
        watch.copied = self._exchange.ask(topics.EXEC_COPY, payload, OutputStored(watch.stream))

    def output_stored(self, key: StreamKey) -> None:
        """Follow output that is stored as far as there is any, or as the service can."""
        watch = self._watches.get(key)
        assert watch is not None, "a stream has ended without its job-exec.copy"
        watch.copied = 0
        if not watch.is_last:
            self._follow(watch)

    def _send_sentinel(self, watch: _Watch) -> None:
        """Send a response without a payload, if the reader waits for one after what is there."""
        if watch.owes_sentinel:
            watch.owes_sentinel = False
            self._exchange.send(respond_stream(watch.request, None))

    def _send_line(self, watch: _Watch, line: str) -> None:
        payload = job_list.WATCHED_LINE.write(job_list.WatchedLine(line))
        self._exchange.send(respond_stream(watch.request, payload))

    def grant(self, request: Request) -> None:
        """job-info.eventlog-watch-credit: the reader of a stream is ready for more."""
        watch = self._watches.granted(request)
        if watch is not None:
            self._send_lines(watch)
        self._exchange.send(respond(request))

    def cancel(self, request: Request) -> None:
        """job-info.eventlog-watch-cancel: end one of the sender's streams with ECANCELED.

        One of Flux's own programs ends as they expect it.
        """
        watch = self._watches.canceled(request)
        is_ours = watch.flags is None
        end = respond_error(watch.request, Errno.ECANCELED) if is_ours else None
        self._end(watch, end or canceled(watch.request, request))
        self._exchange.send(respond(request, {}))

    def forget(self, sender: str) -> None:
        """End the streams of a peer that is gone."""
        for watch in self._watches.of_sender(sender):
            self._end(watch, None)

    def ended(self, record: Record) -> None:
        """Read the rest of the logs of a job that is inactive: they are complete in the kvs."""
        for watch in self._watches.of_job(record.id):
            watch.has_run = record.t_run is not None
            if not watch.is_last:
                self._stop(watch)
                watch.is_last = True
                self._read(watch)

    def count(self, beginning: str = "") -> int:
        """Return the number of open streams whose path has this beginning."""
        return sum(watch.path.startswith(beginning) for watch in self._watches.all_open())

    # What the kvs tells

    def changed(self, key: StreamKey, response: Response) -> None:
        """Take a change of the log of an active job, or an error."""
        watch = self._watches.get(key)
        assert watch is not None, "a stream has ended without its kvs.watch"
        try:
            change = change_in(response)
        except FluxError as error:
            watch.matchtag = 0
            self._end(watch, respond_error(watch.request, error.errnum, error.text))
            return
        if change.value is not None:
            watch.hold(change.value[watch.chars_sent :])
        elif not watch.behind:
            watch.hold(watch.held[watch.at :] + (change.append or ""))
        self._send_lines(watch)

    def read(self, awaited: LogRead, response: Response) -> None:
        """Take the value of the key that a stream is reading."""
        watch = self._of(awaited)
        try:
            value = value_in(response)
        except FluxError as error:
            self._end(watch, respond_error(watch.request, error.errnum, error.text))
            return
        is_checked, watch.is_checked = watch.is_checked, True
        comes = value is not None or watch.piece or watch.waits_for_log
        if not is_checked and not watch.is_last and comes:
            if value is None:
                self._send_sentinel(watch)
            self._follow(watch)
        elif value is not None:
            watch.hold(value[watch.chars_sent :])
            self._send_lines(watch)
        elif not watch.must_exist and ((watch.follow and is_checked) or watch.piece):
            counted = JobCounted(watch.stream)
            watch.asked = self._exchange.ask_kvs(count_keys(watch.jobid), counted)
        else:
            text = f"{watch.path}: key not found"
            self._end(watch, respond_error(watch.request, Errno.ENOENT, text))

    def counted(self, awaited: JobCounted, response: Response) -> None:
        """End the stream after its last key, or with an error if the job was purged."""
        watch = self._of(awaited)
        try:
            check_not_purged(response)
        except FluxError as error:
            self._end(watch, respond_error(watch.request, error.errnum, error.text))
        else:
            for event in watch.lines.end(self._exchange.now):
                self._send_line(watch, format_event(event))
            self._end(watch, end_of_stream(watch.request))

    def _of(self, awaited: LogRead | JobCounted) -> _Watch:
        """Return the stream of an answer; it waits for no other one."""
        watch = self._watches.get(awaited.stream)
        assert watch is not None, "a stream has ended without its read"
        watch.asked = 0
        return watch

    def _send_lines(self, watch: _Watch) -> None:
        """Send as many lines as there is credit for; then read on, or end the stream."""
        for line in watch.pop_lines():
            lines = [line]
            if watch.path == OUTPUT and watch.flags is not None:
                with suppress(FormatError):  # its reader sees what is damaged
                    lines = [*map(format_event, watch.lines.of_stored(parse_event(line)))]
                watch.credit.overdraw(len(lines) - 1)
            for each in lines:
                self._send_line(watch, each)
            if watch.is_last and watch.path == EVENTLOG and _is_clean(line):
                self._send_sentinel(watch)
                self._end(watch, end_of_stream(watch.request))  # nothing of the job comes later
                return
        if watch.asked or watch.has_line:  # without credit
            return
        if watch.behind:
            if watch.credit.allows(1):
                self._read(watch)
        elif watch.is_last:
            self._send_sentinel(watch)
            self._end_piece(watch)
        elif watch.path == OUTPUT and watch.chars_sent >= PIECE_CHARS:
            self._stop(watch)
            watch.is_checked = False
            self._end_piece(watch)
        else:
            self._send_sentinel(watch)

    def _end_piece(self, watch: _Watch) -> None:
        """Go on with the next key after all of one value was sent, or end the stream."""
        if watch.path == OUTPUT:
            watch.piece += 1
            watch.chars_sent = 0
            watch.hold("")
            self._read(watch)
        else:
            self._end(watch, end_of_stream(watch.request))

    def _read(self, watch: _Watch) -> None:
        self._exchange.calls.close(watch.asked)  # of a shorter log
        watch.asked = self._exchange.ask_kvs(look_up_own(watch.log_key), LogRead(watch.stream))

    # Ends

    def _end(self, watch: _Watch, last: Response | None) -> None:
        self._stop(watch)
        self._exchange.calls.close(watch.asked)
        self._watches.remove(watch)
        self._of_user.count_closed(watch.request.userid)
        self._exchange.send(last)

    def _stop(self, watch: _Watch) -> None:
        self._exchange.calls.close(watch.copied)
        watch.copied = 0
        if watch.matchtag:
            self._exchange.calls.close(watch.matchtag)
            self._exchange.cancel_watch(watch.matchtag)
            watch.matchtag = 0


def _is_clean(line: str) -> bool:
    """Return whether a line of a job's eventlog is its last event."""
    if JobEvent.CLEAN not in line:
        return False
    with suppress(FormatError):
        return parse_event(line).name == JobEvent.CLEAN
    return False
