"""job-info: a job's stored data, for its user and the instance owner (RFC 16, Access by Guests).

`lookup` reads values, `eventlog-watch` follows an eventlog to the end of its job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, job_key
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
from flux_trio.services.job_list.details import JOBSPEC, R, current_jobspec, current_r
from flux_trio.services.job_list.exchange import Exchange
from flux_trio.services.job_list.listing import UNKNOWN_JOB
from flux_trio.services.job_list.records import Record, Records
from flux_trio.services.job_list.scan import Value
from flux_trio.services.sharing import Allowance

WATCHES_OF_USER_MAX: Final = 1024  # open at once; beyond it EAGAIN

LOOKUP_KEYS_MAX: Final = 32  # of one request, each a read of the kvs; beyond it EMSGSIZE

RESTRICTED: Final = "access is restricted to job/instance owner"  # flux-core's words

_CURRENT: Final = {JOBSPEC: current_jobspec, R: current_r}


class LookupRequest(msgspec.Struct):
    """The job-info.lookup request; `current` applies the updates that the eventlog tells of."""

    id: int
    keys: list[str]
    current: bool = False


class WatchRequest(msgspec.Struct):
    """The job-info.eventlog-watch request; `path` is below the job's directory."""

    id: int
    path: str = "eventlog"


class CancelRequest(msgspec.Struct):
    """The job-info.eventlog-watch-cancel request."""

    matchtag: int


class _Change(msgspec.Struct):
    """A kvs.watch response: all of the value, or what was appended."""

    value: str | None = None
    append: str = ""


@dataclass(slots=True)
class _Lookup:
    """One lookup under way."""

    request: Request
    record: Record
    wanted: LookupRequest
    left: int  # keys not read yet, 0 when it is answered
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Watch:
    """A stream of one eventlog's lines."""

    request: Request
    jobid: int
    path: str
    matchtag: int = 0  # of the kvs.watch, 0 when there is none
    taken: int = 0  # characters that have come
    rest: str = ""  # the start of a line that is not whole yet

    @property
    def key(self) -> tuple[str, int]:
        """Its sender and matchtag."""
        return self.request.sender, self.request.matchtag


class Info:
    """Answers job-info requests."""

    def __init__(self, exchange: Exchange, records: Records) -> None:
        self._exchange = exchange
        self._records = records
        self._watches: dict[str, dict[int, _Watch]] = {}  # open streams, by sender, then matchtag
        self._by_job: dict[int, dict[tuple[str, int], _Watch]] = {}
        self._of_user = Allowance(WATCHES_OF_USER_MAX, "eventlog watches")

    # --- lookup

    def lookup(self, request: Request) -> None:
        """job-info.lookup: the values of all keys, or the first error."""
        wanted = expect_payload(request, LookupRequest)
        record = self._find(request, wanted.id)
        keys = list(dict.fromkeys(wanted.keys))
        if len(keys) > LOOKUP_KEYS_MAX:
            text = f"{request.topic}: {len(keys)} keys, at most {LOOKUP_KEYS_MAX} in one request"
            raise FluxError(Errno.EMSGSIZE, text)
        if not keys:
            self._exchange.send(respond(request, {"id": record.id}))
        lookup = _Lookup(request, record, wanted, len(keys))
        for key in keys:
            payload = {"key": job_key(record.id, key)}
            self._exchange.ask(topics.KVS_LOOKUP, payload, partial(self._found, lookup, key))

    def _found(self, lookup: _Lookup, key: str, response: Response) -> None:
        if not lookup.left:
            return
        try:
            lookup.found[key] = self._value(lookup, key, response)
        except FluxError as error:
            lookup.left = 0
            self._exchange.send(respond_error(lookup.request, error.errnum, error.text))
            return
        lookup.left -= 1
        if not lookup.left:
            payload = {"id": lookup.record.id} | lookup.found
            self._exchange.send(respond(lookup.request, payload))

    def _value(self, lookup: _Lookup, key: str, response: Response) -> str:
        if response.errnum:
            missing = response.errnum == Errno.ENOENT
            text = "key not found" if missing else response.error_text
            raise FluxError(response.errnum, f"{key}: {text}")
        text = expect_payload(response, Value).value
        if not lookup.wanted.current or key not in _CURRENT:
            return text
        try:
            return msgspec.json.encode(_CURRENT[key](text, lookup.record)).decode()
        except FormatError as error:
            raise FluxError(Errno.EINVAL, f"{key}: cannot apply its updates: {error}") from None

    # --- eventlog-watch

    def watch(self, request: Request) -> None:
        """job-info.eventlog-watch: every line, then ENODATA once the job is inactive."""
        wanted = expect_payload(request, WatchRequest)
        streams = self._watches.get(request.sender, {})
        if not request.is_streaming or request.matchtag in streams:
            text = f"{request.topic}: expected the streaming flag and a matchtag not in use"
            raise FluxError(Errno.EPROTO, text)
        record = self._find(request, wanted.id)
        self._of_user.take(request.userid)
        watch = streams[request.matchtag] = _Watch(request, record.id, wanted.path)
        self._watches[request.sender] = streams
        self._by_job.setdefault(record.id, {})[watch.key] = watch
        if record.state == JobState.INACTIVE:
            self._read_rest(watch)
        else:
            payload = {"key": job_key(record.id, wanted.path)}
            take = partial(self._changed, watch)
            watch.matchtag = self._exchange.ask_stream(topics.KVS_WATCH, payload, take)

    def watch_cancel(self, request: Request) -> None:
        """job-info.eventlog-watch-cancel: end one of the sender's streams with ECANCELED."""
        matchtag = expect_payload(request, CancelRequest).matchtag
        watch = self._watches.get(request.sender, {}).get(matchtag)
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
            self._stop(watch)
            self._read_rest(watch)

    def _changed(self, watch: _Watch, response: Response) -> None:
        if response.errnum:
            watch.matchtag = 0
            self._end(watch, respond_error(watch.request, response.errnum, response.error_text))
            return
        change = expect_payload(response, _Change)
        if change.value is None:
            self._tell(watch, change.append)
        else:
            self._tell(watch, change.value[watch.taken :])

    def _read_rest(self, watch: _Watch) -> None:
        payload = {"key": job_key(watch.jobid, watch.path)}
        self._exchange.ask(topics.KVS_LOOKUP, payload, partial(self._read, watch))

    def _read(self, watch: _Watch, response: Response) -> None:
        if not self._is_open(watch):
            return
        if response.errnum and response.errnum != Errno.ENOENT:
            self._end(watch, respond_error(watch.request, response.errnum, response.error_text))
            return
        if not response.errnum:  # a job may end without that eventlog
            self._tell(watch, expect_payload(response, Value).value[watch.taken :])
        self._end(watch, end_of_stream(watch.request))

    def _tell(self, watch: _Watch, text: str) -> None:
        watch.taken += len(text)
        *lines, watch.rest = (watch.rest + text).split("\n")
        for line in lines:
            self._exchange.send(respond_stream(watch.request, {"event": line}))

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

    def _is_open(self, watch: _Watch) -> bool:
        sender, matchtag = watch.key
        return self._watches.get(sender, {}).get(matchtag) is watch

    # --- who may

    @property
    def nwatches(self) -> int:
        """Number of open streams."""
        return sum(len(streams) for streams in self._watches.values())

    def _find(self, request: Request, jobid: int) -> Record:
        record = self._records.jobs.get(jobid)
        if record is None:
            raise FluxError(Errno.ENOENT, UNKNOWN_JOB)
        if not request.is_owner and request.userid != record.userid:
            raise FluxError(Errno.EPERM, RESTRICTED)
        return record
