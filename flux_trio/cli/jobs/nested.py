"""Jobs of the instances that run in jobs (flux-jobs(1), --recursive).

An instance in a job writes its address into the job's memo, `user.uri`. If an instance cannot be
reached, because it is starting, is ending or belongs to another user, no jobs of it are shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flux_trio.cli.connection.job_query import userid_or_own
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.shown_values import shown_id
from flux_trio.client import URI_VARIABLE
from flux_trio.messages import USERID_UNKNOWN
from flux_trio.protocols import JobState

if TYPE_CHECKING:
    from flux_trio.cli.connection.job_query import JobQuery, Record
    from flux_trio.client import Client


@dataclass(frozen=True)
class Nested:
    """The jobs of the instance that runs in the last job of `path`, a list of F58 ids."""

    path: tuple[str, ...]
    records: list[Record]
    stats: dict[str, Any] | None  # of job-list.job-stats
    own: int  # the userid of the user in this instance


@dataclass(frozen=True)
class Recursion:
    """What to fetch from nested instances: the query, the depth, and whose jobs to enter."""

    query: JobQuery
    level: int  # levels of nested instances
    own: int | None  # enter only jobs of this user; None: of every user
    stats: Callable[[Client], Any] | None = None
    path: tuple[str, ...] = ()

    def descend(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Nested]:
        """Yield the instance in each job that has one, then the instances in its own jobs."""
        if len(self.path) >= self.level:
            return
        for name, uri in self._instances(records):
            nested = self._fetch((*self.path, name), uri)
            yield nested
            own = None if self.own is None else nested.own
            yield from replace(self, path=nested.path, own=own).descend(nested.records)

    def _instances(self, records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        for record in records:
            uri = address_in(record)
            mine = self.own in (None, record["userid"])
            if uri and mine and record["state"] == JobState.RUN:
                yield shown_id(record["id"]), uri

    def _fetch(self, path: tuple[str, ...], uri: str) -> Nested:
        async def ask(client: Client) -> Nested:
            own = await userid_or_own(client, None)
            records = await self.query.of(own).fetch(client)
            stats = await self.stats(client) if self.stats else None
            return Nested(path, records, stats, own)

        try:
            return with_client(ask, {**os.environ, URI_VARIABLE: uri})
        except CommandError:
            return Nested(path, [], None, USERID_UNKNOWN)


def address_in(record: Mapping[str, Any]) -> str:
    """Return the address of the instance that runs in a job, "" if the job runs no instance."""
    noted = record.get("annotations", {}).get("user")
    uri = noted.get("uri") if isinstance(noted, dict) else None
    return uri if isinstance(uri, str) else ""
