"""The requests of `flux-trio queue`, and its lines of text, in the words of flux-queue(1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flux_trio.formats import printable
from flux_trio.messages import FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client


async def queue_names(client: Client) -> list[str | None]:
    """Return the names of all queues; the anonymous queue is None."""
    named: list[str | None] = (await client.call(topics.JOB_QUEUE_LIST))["queues"]
    return named or [None]


async def queue_status(client: Client, name: str | None) -> dict[str, Any]:
    return await client.call(topics.JOB_QUEUE_STATUS, {} if name is None else {"name": name})


async def statuses_and_counts(
    client: Client, name: str | None, verbose: bool, lines_of: Callable[[dict[str, Any]], list[str]]
) -> list[str]:
    """Return the lines of `statuses`, and with `verbose` the counts."""
    lines = await statuses(client, name, verbose, lines_of)
    if verbose:
        lines += count_lines(await client.call(topics.JOB_STATS))
    return lines


async def statuses(
    client: Client, name: str | None, verbose: bool, lines_of: Callable[[dict[str, Any]], list[str]]
) -> list[str]:
    """Return the lines of one queue, or of all queues; then why services do not answer."""
    lines: list[str] = []
    silent: dict[str, None] = {}
    for each in await queue_names(client) if name is None or verbose else [name]:
        status = await queue_status(client, each)
        lines += [line if each is None else f"{each}: {line}" for line in lines_of(status)]
        silent |= dict.fromkeys(status.get("silent", ()))
    return [printable(line) for line in [*lines, *silent]]


async def nodes_down(client: Client) -> list[str]:
    """Return a line with the number of nodes that are down; [] for 0 or without an answer."""
    try:
        nodes = (await client.call(topics.stats_of(topics.RESOURCE)))["nodes"]
    except FluxError:
        return []
    down, among = nodes["down"], nodes["all"]
    verb = "is" if down == 1 else "are"
    return [f"{down} of {among} nodes {verb} down: see flux-trio resource status"] if down else []


def status_lines(status: dict[str, Any]) -> list[str]:
    """Return the lines of a queue-status response; then how many jobs plugins hold, and why."""
    held = [
        f"{'1 job is' if count == 1 else f'{count} jobs are'} held: {reason}"
        for reason, count in status.get("held", {}).items()
    ]
    return enable_lines(status) + start_lines(status) + held


def enable_lines(status: dict[str, Any]) -> list[str]:
    if status["enable"]:
        return ["Job submission is enabled"]
    return [f"Job submission is disabled: {status['disable_reason']}"]


def start_lines(status: dict[str, Any]) -> list[str]:
    if status["start"]:
        return ["Scheduling is started"]
    reason = f": {status['stop_reason']}" if "stop_reason" in status else ""
    return [f"Scheduling is stopped{reason}"]


def count_lines(stats: dict[str, Any]) -> list[str]:
    """Return the lines that `flux queue status -v` adds."""
    states, sched = stats["states"], stats["sched"]
    return [
        f"{sched['waiting']} alloc requests queued",
        f"{sched['outstanding']} alloc requests pending to scheduler",
        f"{states['run'] + states['cleanup']} running jobs",
    ]
