"""The rows of jobs, with the facts of their jobspec and R. Pure.

All that a row needs is read from the kvs when a list shows it. Then the facts of an active job are
kept, which change rarely, and the row of a finished job, which changes never. A fact of R replaces
the jobspec's. A jobspec or R that cannot be parsed has no facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from flux_trio.cores.job_index import name_of
from flux_trio.cores.job_list.exchange import Exchange, JobListCall, Listed
from flux_trio.cores.job_list.records import Record, Records, folded
from flux_trio.cores.job_list.rows import row_of
from flux_trio.cores.kvs_calls import look_up_all
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions.job_list import NO_FACTS, Facts, Row
from flux_trio.editions.journal import Ended
from flux_trio.formats import (
    EVENTLOG,
    FormatError,
    Groups,
    Hostlist,
    Jobspec,
    PerResource,
    ResourceSet,
    apply_update,
    apply_updates,
    job_key,
    per_resource_of,
)
from flux_trio.formats.meanings import JobId
from flux_trio.messages import FluxError, Level

JOBSPEC: Final = "jobspec"
R: Final = "R"
_FINISHED: Final = (EVENTLOG, JOBSPEC, R)  # keys that are read of a finished job
FACTS_MAX: Final = 20_000  # kept, of about 0.7 kB each; the oldest go first
FACTS_CHARS_MAX: Final = 16 << 20  # of the texts in them
ROWS_BYTES_MAX: Final = 16 << 20  # of the kept rows, as JSON: some 25,000; the oldest go first
CWD_BYTES_MAX: Final = 4096  # of a working directory; the longest path of Linux
LOOKUP_CHARS_MAX: Final = 1 << 19  # of the values of one read, or of one job if that has more
CACHED_CHARS_MAX: Final = 1 << 14  # of a jobspec whose facts are remembered by its text

Texts = dict[tuple[int, str], str | None]  # by job id and name


def current_jobspec(text: str, record: Record) -> dict[str, object]:
    """Return the stored jobspec with every jobspec-update applied. Raises FormatError."""
    return apply_updates(_decode(text), record.jobspec_updates or {})


def current_r(text: str, record: Record) -> dict[str, object]:
    """Return the stored R with the job's last expiration. Raises FormatError."""
    r = _decode(text)
    if record.expiration is None:
        return r
    return apply_update(r, "execution.expiration", record.expiration)


class _Kept(msgspec.Struct):
    """Facts, and the jobspec updates that they include; with other updates they are outdated."""

    facts: Facts
    updates: Mapping[str, Any] | None


class Details(Part):
    """Reads what lists show of jobs; keeps what was read, since they are listed often."""

    _kept: dict[tuple[JobId, str], _Kept]
    _nchars: int
    _rows: dict[JobId, bytes]
    _nbytes: int

    def __init__(self, exchange: Exchange, records: Records) -> None:
        self._exchange = exchange
        self._records = records
        self._kept = {}
        self._nchars = 0  # characters of the kept facts
        self._rows = {}  # of finished jobs, as JSON
        self._nbytes = 0  # of them

    def keys_of(self, jobs: Sequence[Listed]) -> Iterator[tuple[int, str]]:
        """Yield what has to be read of `jobs`: job id and key name.

        If anything is, all of the finished jobs is read, too: their kept rows may be gone by then.
        """
        active = [
            (job.id, key) for job in jobs if isinstance(job, Record) for key in self._missing(job)
        ]
        finished = [job.id for job in jobs if isinstance(job, Ended)]
        yield from active
        if active or not all(map(self._rows.__contains__, finished)):
            yield from ((jobid, name) for jobid in finished for name in _FINISHED)

    def ask(self, keys: Sequence[tuple[int, str]], call: JobListCall) -> int:
        """Read `keys` by one kvs.lookup-all, whose answer is for `call`; return its matchtag.

        If the values of several jobs are too long together, the answer has only the first ones.
        """
        wanted = [job_key(jobid, name) for jobid, name in keys]
        chars_max = None if keys[0][0] == keys[-1][0] else page_size(LOOKUP_CHARS_MAX)
        return self._exchange.ask_kvs(look_up_all(wanted, chars_max), call)

    def rows(
        self, jobs: Iterable[Listed], keys: Iterable[tuple[int, str]], values: Iterable[str | None]
    ) -> list[Row]:
        """Return the rows of the jobs that are still stored; `keys` have been read."""
        texts = dict(zip(keys, values, strict=True))
        rows = (
            self._finished(job, texts) if isinstance(job, Ended) else self._row(job, texts)
            for job in jobs
        )
        return [row for row in rows if row is not None]

    def ended(self, jobid: int) -> None:
        """Drop the facts of a job that is over."""
        for name in (JOBSPEC, R):
            self._drop((jobid, name))

    def purged(self, jobid: int) -> None:
        """Drop the row of a job that is not stored any more."""
        self._nbytes -= len(self._rows.pop(jobid, b""))

    def _missing(self, record: Record) -> Iterator[str]:
        for name in (JOBSPEC, R) if record.t_run is not None else (JOBSPEC,):
            kept = self._kept.get((record.id, name))
            if kept is None or kept.updates is not record.jobspec_updates:
                yield name

    def _finished(self, job: Ended, texts: Texts) -> Row | None:
        """Return a finished job; None if it was purged meanwhile or cannot be read."""
        if (kept := self._rows.get(job.id)) is not None:
            return _decode(kept)
        text = texts[job.id, EVENTLOG]
        if text is None:
            return None
        try:
            row = self._row(folded(job.id, text), texts)
        except FluxError as error:
            self._exchange.send(Log(Level.ERR, f"{error.text}; the job is left out"))
            return None
        self._keep_row(job.id, row)
        return row

    def _keep_row(self, jobid: int, row: Row) -> None:
        self._rows[jobid] = encoded = msgspec.json.encode(row)
        self._nbytes += len(encoded)
        while self._nbytes > ROWS_BYTES_MAX:
            self.purged(next(iter(self._rows)))

    def _row(self, record: Record, texts: Texts) -> Row:
        self._records.restore_step(record)
        return row_of(record, self._facts(record, texts))

    def _facts(self, record: Record, texts: Texts) -> Facts:
        facts = self._facts_in(JOBSPEC, record, texts).updated(self._facts_in(R, record, texts))
        return facts if facts.per_resource is None else _with_tasks(facts, facts.per_resource)

    def _facts_in(self, name: str, record: Record, texts: Texts) -> Facts:
        place = (record.id, name)
        text = texts.get(place)
        if text is None:
            kept = self._kept.get(place)
            return NO_FACTS if kept is None else kept.facts
        facts = _jobspec_facts(text, record) if name == JOBSPEC else _r_facts(text)
        if record.is_active:
            self._keep(place, _Kept(facts, record.jobspec_updates))
        return facts

    def _keep(self, place: tuple[int, str], kept: _Kept) -> None:
        self._drop(place)
        self._kept[place] = kept
        self._nchars += kept.facts.nchars
        while len(self._kept) > FACTS_MAX or self._nchars > FACTS_CHARS_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, place: tuple[int, str]) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._nchars -= kept.facts.nchars


def _jobspec_facts(text: str, record: Record) -> Facts:
    if not record.jobspec_updates and len(text) <= CACHED_CHARS_MAX:
        return _submitted_facts(text)
    try:
        return _facts_of(Jobspec.parse_general(current_jobspec(text, record)))
    except FormatError:
        return NO_FACTS


@lru_cache(maxsize=256)  # jobs next to one another are often alike
def _submitted_facts(text: str) -> Facts:
    """Return the facts of a jobspec without updates."""
    try:
        return _facts_of(Jobspec.parse_general(_decode(text)))
    except FormatError:
        return NO_FACTS


def _facts_of(jobspec: Jobspec) -> Facts:
    cwd = jobspec.cwd
    if cwd is not None and len(cwd.encode(errors="surrogatepass")) > CWD_BYTES_MAX:
        cwd = None
    per_resource = per_resource_of(jobspec)
    return Facts(
        name=name_of(jobspec.attribute("system.job.name"), jobspec.tasks[0].command[0]),
        cwd=cwd,
        queue=jobspec.queue,
        ntasks=None if per_resource else jobspec.ntasks,
        nnodes=jobspec.nnodes,
        # how many cores a whole node has is known from R only
        ncores=None if jobspec.resources.exclusive else jobspec.ncores,
        duration=jobspec.duration,
        per_resource=per_resource,
    )


def _with_tasks(facts: Facts, each: PerResource) -> Facts:
    """Return `facts` with the number of tasks in place of `per_resource`, as far as it is known."""
    number = facts.nnodes if each.type == "node" else facts.ncores
    ntasks = None if number is None else number * each.count
    return msgspec.structs.replace(facts, ntasks=ntasks, per_resource=None)


def _r_facts(text: str) -> Facts:
    try:
        resources = ResourceSet.parse(text.encode())
    except FormatError:
        return NO_FACTS
    is_short = len(text) <= CACHED_CHARS_MAX
    where = (_places if is_short else _places.__wrapped__)(resources.groups, resources.hostnames)
    return msgspec.structs.replace(where, expiration=resources.expiration)


@lru_cache(maxsize=256)  # jobs have the same resources one after another
def _places(groups: Groups, hostnames: tuple[str, ...]) -> Facts:
    resources = ResourceSet(groups, hostnames)
    return Facts(
        ranks=resources.ranks.brackets(),
        nodelist=str(Hostlist.of(hostnames)),
        nnodes=resources.nnodes,
        ncores=resources.ncores,
    )


def _decode(text: str | bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
