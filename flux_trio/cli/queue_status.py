"""What `flux-trio queue` asks of the job manager, and says of queues, in flux-queue's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flux_trio.formats import printable
from flux_trio.messages import FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client


async def queue_names(client: Client) -> list[str | None]:
    """The names of all queues; that of the anonymous one is None."""
    named: list[str | None] = (await client.call(topics.JOB_QUEUE_LIST))["queues"]
    return named or [None]


async def queue_status(client: Client, name: str | None) -> dict[str, Any]:
    """What the job manager says of one queue."""
    return await client.call(topics.JOB_QUEUE_STATUS, {} if name is None else {"name": name})


async def statuses_and_counts(
    client: Client,
    name: str | None,
    verbose: bool,
    lines_of: Callable[[dict[str, Any]], list[str]],
) -> list[str]:
    """What `statuses` says, and the counts if wanted."""
    lines = await statuses(client, name, verbose, lines_of)
    if verbose:
        lines += count_lines(await client.call(topics.JOB_STATS))
    return lines


async def statuses(
    client: Client,
    name: str | None,
    verbose: bool,
    lines_of: Callable[[dict[str, Any]], list[str]],
) -> list[str]:
    """The lines of one queue, or of all; then who is silent."""
    lines: list[str] = []
    silent: dict[str, None] = {}
    for each in await queue_names(client) if name is None or verbose else [name]:
        told = await queue_status(client, each)
        lines += [line if each is None else f"{each}: {line}" for line in lines_of(told)]
        silent |= dict.fromkeys(told.get("silent", ()))
    return [printable(line) for line in [*lines, *silent]]


async def nodes_down(client: Client) -> list[str]:
    """A line that says how many nodes are down, if any is; none while nobody can tell."""
    try:
        nodes = (await client.call(topics.stats_of(topics.RESOURCE)))["nodes"]
    except FluxError:
        return []
    down, among = nodes["down"], nodes["all"]
    verb = "is" if down == 1 else "are"
    return [f"{down} of {among} nodes {verb} down: see flux-trio resource status"] if down else []


def status_lines(told: dict[str, Any]) -> list[str]:
    """What a queue-status answer says, in flux-queue's words; then what plugins hold, and why."""
    held = [
        f"{'1 job is' if count == 1 else f'{count} jobs are'} held: {reason}"
        for reason, count in told.get("held", {}).items()
    ]
    return enable_lines(told) + start_lines(told) + held


def enable_lines(told: dict[str, Any]) -> list[str]:
    """Whether jobs may be submitted."""
    if told["enable"]:
        return ["Job submission is enabled"]
    return [f"Job submission is disabled: {told['disable_reason']}"]


def start_lines(told: dict[str, Any]) -> list[str]:
    """Whether jobs are scheduled."""
    if told["start"]:
        return ["Scheduling is started"]
    reason = f": {told['stop_reason']}" if "stop_reason" in told else ""
    return [f"Scheduling is stopped{reason}"]


def count_lines(stats: dict[str, Any]) -> list[str]:
    """The counts of flux-queue's verbose status."""
    states, sched = stats["states"], stats["sched"]
    return [
        f"{sched['waiting']} alloc requests queued",
        f"{sched['outstanding']} alloc requests pending to scheduler",
        f"{states['run'] + states['cleanup']} running jobs",
    ]
