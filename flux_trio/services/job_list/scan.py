"""Reading the eventlogs of all jobs that are not known to be inactive (RFC 16, Event Log)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from flux_trio.formats import FormatError, parse_eventlog, parse_fluid
from flux_trio.messages import Errno, Level, Response, expect_payload, topics
from flux_trio.protocols import InvalidTransition, JobState
from flux_trio.services.job_list.exchange import Exchange
from flux_trio.services.job_list.records import Record, Records
from flux_trio.services.turns import Exit, Log

LOOKUPS_MAX: Final = 1000  # at once: the kvs reads so many in well under a second
EVENTLOG: Final = ".eventlog"
KEY_PERIODS: Final = 5  # of job.<dothex>.eventlog; those of guests are deeper


class Value(msgspec.Struct):
    """A kvs.lookup response."""

    value: str


class _Keys(msgspec.Struct):
    """A kvs.dir response."""

    keys: list[str]


class Scan:
    """One reading at a time; `done` is called at its end."""

    def __init__(self, exchange: Exchange, records: Records, done: Callable[[], None]) -> None:
        self._exchange = exchange
        self._records = records
        self._done = done
        self._keys: deque[str] = deque()  # eventlogs to be asked for
        self._open = 0  # asked for, not answered
        self.running = False

    def start(self) -> None:
        """Ask which jobs there are, then for their eventlogs."""
        self.running = True
        self._exchange.ask(topics.KVS_DIR, {"prefix": "job"}, self._listed)

    def _listed(self, response: Response) -> None:
        if response.errnum and response.errnum != Errno.ENOENT:
            self._exchange.send(Exit(f"cannot read the jobs: {response.error_text}"))
            return
        keys = [] if response.errnum else expect_payload(response, _Keys).keys
        self._keys.extend(key for key in keys if self._is_wanted(key))
        self._go_on()

    def _is_wanted(self, key: str) -> bool:
        if not key.endswith(EVENTLOG) or key.count(".") != KEY_PERIODS:
            return False
        record = self._records.jobs.get(_jobid_of(key))
        return record is None or record.state != JobState.INACTIVE

    def _go_on(self) -> None:
        while self._keys and self._open < LOOKUPS_MAX:
            key = self._keys.popleft()
            self._open += 1
            self._exchange.ask(topics.KVS_LOOKUP, {"key": key}, partial(self._read, key))
        if self._open == 0:
            self.running = False
            self._done()

    def _read(self, key: str, response: Response) -> None:
        self._open -= 1
        if response.errnum == Errno.ENOENT:
            pass  # the job was refused meanwhile
        elif response.errnum == Errno.EBADMSG:  # that job alone is damaged
            self._exchange.send(Log(Level.ERR, f"{key}: left out: {response.error_text}"))
        elif response.errnum:
            self._exchange.send(Exit(f"cannot read {key}: {response.error_text}"))
        else:
            self._fold(key, expect_payload(response, Value).value)
        self._go_on()

    def _fold(self, key: str, text: str) -> None:
        record = Record(_jobid_of(key))
        try:
            for event in parse_eventlog(text):
                record.apply(event)
        except (FormatError, InvalidTransition, KeyError) as error:
            self._exchange.send(Log(Level.ERR, f"{key}: not a job eventlog, left out: {error}"))
        else:
            self._records.put(record)


def _jobid_of(key: str) -> int:
    return parse_fluid(key.removesuffix(EVENTLOG))
