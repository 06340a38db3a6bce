"""What is listed of a job beyond its eventlog: facts of its jobspec and of its R.

Both are read from the kvs when a list needs them and kept for a while. What R says replaces what
the jobspec asked for. A jobspec or R that cannot be understood has no facts. Left out: flux-core's
per-resource shell option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from flux_trio.formats import (
    FormatError,
    Hostlist,
    Jobspec,
    ResourceSet,
    apply_update,
    job_key,
)
from flux_trio.messages import Response, expect_payload, topics
from flux_trio.services.job_list.exchange import Exchange
from flux_trio.services.job_list.records import Record
from flux_trio.services.job_list.scan import Value

JOBSPEC: Final = "jobspec"
R: Final = "R"
FACTS_MAX: Final = 20_000  # kept, of about 0.7 kB each; the oldest go first

Facts = dict[str, Any]
Found = dict[tuple[int, str], Facts]  # by job id and JOBSPEC or R


def current_jobspec(text: str, record: Record) -> dict[str, object]:
    """The stored jobspec with every jobspec-update event applied; FormatError."""
    jobspec = _decode(text)
    for path, value in (record.jobspec_updates or {}).items():
        jobspec = apply_update(jobspec, path, value)
    return jobspec


def current_r(text: str, record: Record) -> dict[str, object]:
    """The stored R with the expiration of the last resource-update event; FormatError."""
    r = _decode(text)
    if record.expiration is None:
        return r
    return apply_update(r, "execution.expiration", record.expiration)


@dataclass(slots=True)
class _Kept:
    """Facts, and the updates they were made with: another object of them makes facts outdated."""

    facts: Facts
    updates: Mapping[str, Any] | None


class Details:
    """The facts of jobs, as far as they are kept."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._kept: dict[tuple[int, str], _Kept] = {}

    def gather(self, records: list[Record], then: Callable[[list[Facts]], None]) -> None:
        """The facts of each of `records`, in their order, when all have been read."""
        gathering = _Gathering(records, then)
        wanted = [(record, name) for record in records for name in _names(record)]
        for record, name in wanted:
            kept = self._kept.get((record.id, name))
            if kept is not None and kept.updates is record.jobspec_updates:
                gathering.found[record.id, name] = kept.facts
            else:
                gathering.open += 1
                payload = {"key": job_key(record.id, name)}
                take = partial(self._read, gathering, record, name)
                self._exchange.ask(topics.KVS_LOOKUP, payload, take)
        gathering.finish()

    def _read(self, gathering: _Gathering, record: Record, name: str, response: Response) -> None:
        gathering.open -= 1
        if not response.errnum:
            text = expect_payload(response, Value).value
            facts = _jobspec_facts(text, record) if name == JOBSPEC else _r_facts(text)
            gathering.found[record.id, name] = facts
            self._keep((record.id, name), _Kept(facts, record.jobspec_updates))
        gathering.finish()

    def _keep(self, place: tuple[int, str], kept: _Kept) -> None:
        self._kept[place] = kept
        if len(self._kept) > FACTS_MAX:
            del self._kept[next(iter(self._kept))]


class _Gathering:
    """Facts that come in for one list."""

    def __init__(self, records: list[Record], then: Callable[[list[Facts]], None]) -> None:
        self.records = records
        self.then = then
        self.found: Found = {}
        self.open = 0

    def finish(self) -> None:
        if self.open == 0:
            found = self.found
            self.then(
                [
                    found.get((record.id, JOBSPEC), {}) | found.get((record.id, R), {})
                    for record in self.records
                ]
            )


def _names(record: Record) -> Iterator[str]:
    yield JOBSPEC
    if record.t_run is not None:
        yield R


def _jobspec_facts(text: str, record: Record) -> Facts:
    try:
        jobspec = Jobspec.parse_general(current_jobspec(text, record))
    except FormatError:
        return {}
    facts = {
        "name": _name_of(jobspec),
        "cwd": jobspec.cwd,
        "queue": jobspec.queue,
        "ntasks": jobspec.ntasks,
        "nnodes": jobspec.nnodes,
        # of whole nodes, nobody knows before R how many cores they have
        "ncores": None if jobspec.resources.exclusive else jobspec.ncores,
        "duration": jobspec.duration,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _name_of(jobspec: Jobspec) -> str:
    """The name given to the job, or that of its command."""
    named = jobspec.attribute("system.job.name")
    if isinstance(named, str):
        return named
    command = jobspec.tasks[0].command[0]
    return command.rpartition("/")[2] or command


def _r_facts(text: str) -> Facts:
    try:
        resources = ResourceSet.parse(text.encode())
    except FormatError:
        return {}
    return {
        "ranks": resources.ranks.brackets(),
        "nodelist": str(Hostlist.of(resources.hostnames)),
        "nnodes": resources.nnodes,
        "ncores": resources.ncores,
        "expiration": resources.expiration,
    }


def _decode(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
