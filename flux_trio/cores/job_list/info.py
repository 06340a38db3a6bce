"""job-info: a job's stored data, for its user and the instance owner (RFC 16, Access by Guests).

`lookup` reads values, `eventlog-watch` follows an eventlog to the end of its job.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.cores.job_list.changes import Changes
from flux_trio.cores.job_list.details import JOBSPEC, R, current_jobspec, current_r
from flux_trio.cores.job_list.exchange import Exchange, KeyRead
from flux_trio.cores.job_list.listing import UNKNOWN_JOB
from flux_trio.cores.job_list.records import Record, Records
from flux_trio.cores.job_list.watches import Watches
from flux_trio.cores.kvs_calls import look_up, look_up_all, value_in, values_in
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import OUTPUT, output_key
from flux_trio.editions import job_list
from flux_trio.formats import FormatError, Jobspec, document, job_key
from flux_trio.formats.signed_jobspec import sign
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    check_job_access,
    respond,
    respond_error,
    topics,
)

SIGNED: Final = "J"
"""The key of the jobspec with its signature: it is made from the stored jobspec when it is read."""

LOOKUP_KEYS_MAX: Final = 32  # of one request, each a read of the kvs; beyond it EMSGSIZE
OUTPUT_PIECES_MAX: Final = 16  # of a job's output in one answer: 10 MB at most; beyond it EMSGSIZE


class _Lookup(msgspec.Struct, frozen=True):
    """One lookup under way."""

    request: Request
    record: Record
    wanted: job_list.Lookup
    left: int  # keys not read yet
    found: dict[str, Any] = msgspec.field(default_factory=dict)


class Info(Part):
    """Answers job-info requests."""

    _lookups: dict[int, _Lookup]
    _of_sender: dict[str, set[int]]
    _last_number: int

    def __init__(
        self, exchange: Exchange, records: Records, watches: Watches, changes: Changes
    ) -> None:
        self._exchange = exchange
        self._records = records
        self._watches = watches
        self._changes = changes
        self._lookups = {}  # by number; bounded by the requests that their senders have open
        self._of_sender = {}  # numbers of lookups, by sender
        self._last_number = 0

    # --- lookup

    def lookup(self, request: Request) -> None:
        """job-info.lookup: answer with the values of all keys, or with the first error."""
        wanted = job_list.LOOKUP.read(request)
        if (wanted.flags or 0) & ~(job_list.LOOKUP_JSON_DECODE | job_list.LOOKUP_CURRENT):
            raise FluxError(
                Errno.EPROTO, f"{request.topic}: flags: expected 0 to 3, got {wanted.flags}"
            )
        record = self._find(request, wanted.id)
        keys = list(dict.fromkeys(wanted.keys))
        if len(keys) > LOOKUP_KEYS_MAX:
            text = f"{request.topic}: {len(keys)} keys, at most {LOOKUP_KEYS_MAX} in one request"
            raise FluxError(Errno.EMSGSIZE, text)
        if not keys:
            self._exchange.send(respond(request, job_list.found(record.id, {})))
            return
        self._last_number += 1
        self._lookups[self._last_number] = _Lookup(request, record, wanted, len(keys))
        self._of_sender.setdefault(request.sender, set()).add(self._last_number)
        for key in keys:
            if key == OUTPUT:
                pieces = map(output_key, range(OUTPUT_PIECES_MAX + 1))
                stored = [job_key(record.id, piece) for piece in pieces]
                asked = look_up_all(stored)
            else:
                asked = look_up(job_key(record.id, JOBSPEC if key == SIGNED else key))
            self._exchange.ask_kvs(asked, KeyRead(self._last_number, key))

    def forget(self, sender: str) -> None:
        """Forget the lookups of a peer that is gone."""
        for number in self._of_sender.pop(sender, ()):
            del self._lookups[number]

    def found(self, call: KeyRead, response: Response) -> None:
        """Take the value of one key; answer the lookup after its last key."""
        key, lookup = call.key, self._lookups.get(call.lookup)
        if lookup is None:
            return  # the error of another key was the answer, or its sender is gone
        try:
            value = _output(response) if key == OUTPUT else self._value(lookup, key, response)
        except FluxError as error:
            self._end(call.lookup)
            self._exchange.send(respond_error(lookup.request, error.errnum, error.text))
            return
        found = {**lookup.found, key: value}
        if lookup.left > 1:
            lookup = msgspec.structs.replace(lookup, left=lookup.left - 1, found=found)
            self._lookups[call.lookup] = lookup
            return
        self._end(call.lookup)
        self._exchange.send(respond(lookup.request, job_list.found(lookup.record.id, found)))

    def _end(self, number: int) -> None:
        sender = self._lookups.pop(number).request.sender
        of_sender = self._of_sender[sender]
        of_sender.remove(number)
        if not of_sender:
            del self._of_sender[sender]

    def _value(self, lookup: _Lookup, key: str, response: Response) -> Any:
        try:
            text = value_in(response)
        except FluxError as error:
            raise FluxError(error.errnum, f"{key}: {error.text}") from None
        if text is None:
            raise FluxError(Errno.ENOENT, f"{key}: key not found")
        if key == SIGNED:
            return sign(lookup.record.userid, text.encode())
        if key not in (JOBSPEC, R):
            return text
        try:
            return _shown(lookup, key, text)
        except FormatError as error:
            raise FluxError(Errno.EINVAL, f"{key}: cannot apply its updates: {error}") from None

    @property
    def lookups_count(self) -> int:
        """The number of lookups under way."""
        return len(self._lookups)

    # --- eventlog-watch

    def watch(self, request: Request) -> None:
        """job-info.eventlog-watch: send every line, and ENODATA once the job is inactive."""
        wanted = self._watches.check(request)
        self._watches.open(request, wanted, self._find(request, wanted.id))

    def watch_updates(self, request: Request) -> None:
        """job-info.update-watch: send R or jobspec, now and after each update."""
        wanted = job_list.UPDATE_WATCH.read(request)
        self._changes.watch(request, wanted, self._find(request, wanted.id))

    # --- access

    def _find(self, request: Request, jobid: int) -> Record:
        record = self._records.find(jobid)
        if record is None:
            raise FluxError(Errno.ENOENT, UNKNOWN_JOB)
        check_job_access(request, record.userid)
        return record


def _shown(lookup: _Lookup, key: str, text: str) -> Any:
    """Return a jobspec or R as the request wants it. Raises FormatError."""
    wanted = lookup.wanted
    is_redacted = key == JOBSPEC and wanted.flags is not None  # flux-core keeps it in J alone
    value: Any = None
    if wanted.is_current:
        value = (current_jobspec if key == JOBSPEC else current_r)(text, lookup.record)
    if is_redacted:
        value = Jobspec.parse(document(text.encode()) if value is None else value)
        value = value.without_environment()
    if (wanted.flags or 0) & job_list.LOOKUP_JSON_DECODE:
        return document(text.encode()) if value is None else value
    return text if value is None else msgspec.json.encode(value).decode()


def _output(response: Response) -> str:
    """Return the output of a job, which may be in several keys. Raises FluxError."""
    values = values_in(response)
    pieces = values[: values.index(None)] if None in values else values
    if not pieces:
        raise FluxError(Errno.ENOENT, f"{OUTPUT}: key not found")
    if len(pieces) > OUTPUT_PIECES_MAX:
        text = f"{OUTPUT}: too long for one answer; follow it with {topics.INFO_WATCH}"
        raise FluxError(Errno.EMSGSIZE, text)
    return "".join(piece for piece in pieces if piece is not None)
