"""Select jobs, and fetch their job-list records from the instance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flux_trio.cli.terminal.errors import complain
from flux_trio.cli.terminal.shown_values import shown_id
from flux_trio.cli.terminal.values import STATES
from flux_trio.client.jobs import list_jobs
from flux_trio.formats import FormatError, Hostlist, Idset
from flux_trio.messages import USERID_UNKNOWN, FluxError, topics
from flux_trio.protocols import JobState

if TYPE_CHECKING:
    from flux_trio.client import Client

Record = dict[str, Any]

# job-list's numbers (protocols.JobResult) with their names and abbreviations
RESULTS = {1: ("COMPLETED", "CD"), 2: ("FAILED", "F"), 4: ("CANCELED", "CA"), 8: ("TIMEOUT", "TO")}
_RESULT_FILTERS = {name: number for number, (name, _) in RESULTS.items()}


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """The jobs to list: in any of `states` or with one of `results` (masks), at most `count`.

    `userid` None means the user's own jobs.
    """

    states: int
    results: int = 0
    count: int = 0  # 0 means all
    userid: int | None = USERID_UNKNOWN
    name: str = ""
    queues: tuple[str, ...] | None = ()  # () means all queues, None the default queue
    since: float = 0.0  # inactive jobs only if they ended after this Unix time
    include: str = ""  # only jobs that have one of these ranks or hosts

    def of(self, own: int) -> JobQuery:
        """Return the query for a user with the userid `own`: nobody asks the instance for it."""
        return replace(self, userid=own) if self.userid is None else self

    async def fetch(self, client: Client) -> list[Record]:
        """Return the jobs in order, one more than `count` if there are more. Raises FluxError."""
        wanted = self.count + 1 if self.count else 0
        only_results = self.results and not self.states & JobState.INACTIVE
        payload = {
            "max_entries": 0 if self.include else wanted,
            "states": int(self.states | (JobState.INACTIVE if self.results else 0)),
            "results": self.results if only_results else 0,
            "userid": await userid_or_own(client, self.userid),
            "name": self.name,
            "queues": None if self.queues is None else list(self.queues),
            "since": self.since,
        }
        return await list_jobs(client, payload, wanted, self._is_listed)

    async def count_elsewhere(
        self, client: Client, jobids: Iterable[int], found: list[Record]
    ) -> int:
        """Return how many jobs of the same user are in other queues, if this lists the default one.

        Counts no jobs of all users, no more than `count`, and none if the list is of `jobids`.
        """
        if jobids or self.queues is not None or self.userid == USERID_UNKNOWN:
            return 0
        if not (await client.call(topics.JOB_QUEUE_LIST))["queues"]:
            return 0  # there is only the anonymous queue
        everywhere = await replace(self, queues=()).fetch(client)
        return max(0, len(everywhere) - len(found))

    def _is_listed(self, job: Record) -> bool:
        return not self.include or _is_on(job, self.include)


async def fetch_named(client: Client, jobids: Iterable[int]) -> list[Record]:
    """Return the jobs with these ids; print an error for each id that is unknown."""
    found = []
    for jobid in jobids:
        try:
            found.append((await client.call(topics.LIST_ID, {"id": jobid}))["job"])
        except FluxError as error:
            complain(f"{shown_id(jobid)}: {error}")
    return found


def read_filter(names: Iterable[str]) -> tuple[int, int]:
    """Return the masks of states and results that `--filter` names. Raises ValueError."""
    states = results = 0
    for name in ",".join(names).upper().split(","):
        if name in STATES:
            states |= STATES[name]
        elif name in _RESULT_FILTERS:
            results |= _RESULT_FILTERS[name]
        else:
            raise ValueError(f"Invalid filter specified: {name.lower()}")
    return states, results


async def userid_or_own(client: Client, userid: int | None) -> int:
    """Return `userid`; for None the user that `client` is to its instance. Raises FluxError.

    A token says who that is: it can be another user than the one of this process.
    """
    if userid is not None:
        return userid
    own: int = (await client.call(topics.BROKER_INFO))["requester"]
    return own


def _is_on(job: Record, include: str) -> bool:
    if not job.get("nodelist"):
        return False
    try:
        return bool(Idset.parse(include) & Idset.parse(job["ranks"]))
    except FormatError:
        hosts = set(Hostlist.parse(include))
        return not hosts.isdisjoint(Hostlist.parse(job["nodelist"]))
