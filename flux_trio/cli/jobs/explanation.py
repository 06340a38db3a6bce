"""What `flux-trio job explain` and the field {explain} say of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio

from flux_trio.cli.terminal.shown_values import local_time, shown_id
from flux_trio.editions.explain_requests import Explained, Holder, Place
from flux_trio.messages import Errno, FluxError, Response, expect_payload, topics
from flux_trio.protocols import URGENCY_EXPEDITE, URGENCY_HOLD, JobState

if TYPE_CHECKING:
    from flux_trio.client import Client

_ASKED_AT_ONCE: Final = 8
_URGENCIES: Final = {
    URGENCY_HOLD: "urgency 0 holds it, whatever plugins say",
    URGENCY_EXPEDITE: "urgency 31 expedites it, whatever plugins say",
}


async def fetch_explained(client: Client, jobid: int) -> Explained:
    """Ask why a job waits. Raises FluxError."""
    said = await client.call(topics.JOB_EXPLAIN, {"id": jobid})
    return expect_payload(Response(topics.JOB_EXPLAIN, said), Explained)


async def add_explanations(client: Client, records: Iterable[dict[str, Any]], now: float) -> None:
    """Set `explain` of the records of active jobs; not of jobs that may not be asked about."""
    turns = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def add(record: dict[str, Any]) -> None:
        async with turns:
            try:
                explained = await fetch_explained(client, record["id"])
            except FluxError as error:
                ended = error.errnum in (Errno.ENOENT, Errno.EPERM)
                record["explain"] = "" if ended else error.text
            else:
                record["explain"] = "; ".join(reasons(explained, now))

    async with anyio.create_task_group() as tasks:
        for record in records:
            if record["state"] != JobState.INACTIVE:
                tasks.start_soon(add, record)


def lines(explained: Explained, now: float) -> Iterator[str]:
    """Yield the text about a job; `now` is in seconds since the Unix epoch."""
    name, state = shown_id(explained.id), explained.state
    is_ranked = JobState[state] & ~(JobState.NEW | JobState.DEPEND | JobState.PRIORITY)
    ranked = f" with priority {explained.priority}" if is_ranked else ""
    yield f"{name} is in {state}{ranked}."
    yield "Priority:"
    if explained.urgency in _URGENCIES:
        yield f"  {_URGENCIES[explained.urgency]}"
    for said in explained.said:
        yield f"  {said.sentence}"
    why = list(reasons(explained, now))
    if why:
        yield "It waits:"
        yield from (f"  {reason}" for reason in why)
    else:
        yield "It waits for nothing."


def reasons(explained: Explained, now: float) -> Iterator[str]:
    """Yield each reason for which the job waits, and when it might start."""
    yield from explained.waits
    place = explained.sched
    if place is None:
        return
    if place.place:
        yield _place_text(place)
    yield place.reason + _holders_text(place.holders, now)
    if place.start is not None:
        yield f"it might start {_moment(place.start, now)}, if all jobs last to their ends"


def _place_text(place: Place) -> str:
    where = f"place {place.place} of {place.pending} in the queue, policy {place.policy}"
    if not place.ahead:
        return where
    names = ", ".join(shown_id(jobid) for jobid in place.ahead)
    further = place.place - 1 - len(place.ahead)
    return f"{where}, behind {names}" + (f" and {further} more" if further else "")


def _holders_text(holders: list[Holder], now: float) -> str:
    if not holders:
        return ""
    names = [f"{shown_id(each.id)} {_until(each.end, now)}" for each in holders]
    return f"; they are held by {', '.join(names)}"


def _until(end: float | None, now: float) -> str:
    return "without a time limit" if end is None else f"until {_moment(end, now)}"


def _moment(time: float, now: float) -> str:
    """Return a time; with the date if it is not within a day."""
    far = timedelta(seconds=abs(time - now)) >= timedelta(days=1)
    return format(local_time(time), "%Y-%m-%d %H:%M" if far else "%H:%M:%S")
