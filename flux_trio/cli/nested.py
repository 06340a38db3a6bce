"""Jobs of the instances that run in jobs (flux-jobs(1), --recursive).

An instance in a job notes on it where it is, `user.uri`. One that cannot be reached, for it comes
or goes just now or is another user's, has no jobs to show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flux_trio.cli.errors import CommandError
from flux_trio.cli.job_query import own_userid
from flux_trio.cli.session import with_client
from flux_trio.client import URI_VARIABLE
from flux_trio.formats import format_fluid
from flux_trio.protocols import JobState

if TYPE_CHECKING:
    from flux_trio.cli.job_query import JobQuery, Record
    from flux_trio.client import Client


@dataclass(frozen=True)
class Nested:
    """The jobs of one instance: of that in the last job of `path`, which are F58 ids."""

    path: tuple[str, ...]
    records: list[Record]
    stats: dict[str, Any] | None  # of job-list.job-stats


@dataclass(frozen=True)
class Recursion:
    """How deep, into whose jobs, and what is asked there."""

    query: JobQuery
    level: int  # instances inside of each other
    every_user: bool = False
    stats: Callable[[Client], Any] | None = None
    path: tuple[str, ...] = ()

    def descend(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Nested]:
        """What is in the instances of these jobs, each followed by what is in it."""
        if len(self.path) >= self.level:
            return
        for name, uri in self._instances(records):
            nested = self._fetch((*self.path, name), uri)
            yield nested
            yield from replace(self, path=nested.path).descend(nested.records)

    def _instances(self, records: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        for record in records:
            uri = address_in(record)
            mine = self.every_user or record["userid"] == own_userid()
            if uri and mine and record["state"] == JobState.RUN:
                yield format_fluid(record["id"], "f58"), uri

    def _fetch(self, path: tuple[str, ...], uri: str) -> Nested:
        async def ask(client: Client) -> Nested:
            records = await self.query.fetch(client)
            return Nested(path, records, await self.stats(client) if self.stats else None)

        try:
            return with_client(ask, {**os.environ, URI_VARIABLE: uri})
        except CommandError:
            return Nested(path, [], None)


def address_in(record: Mapping[str, Any]) -> str:
    """Where the instance is that runs in a job, "" if none does."""
    noted = record.get("annotations", {}).get("user")
    uri = noted.get("uri") if isinstance(noted, dict) else None
    return uri if isinstance(uri, str) else ""
