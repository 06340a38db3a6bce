"""SIGHUP under a service manager: the instance reads its configuration file again."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import trio

from flux_trio.cli.instance.service_manager import ServiceManager
from flux_trio.instance import Instance
from flux_trio.messages import FluxError, Level, topics

Hangups: TypeAlias = AsyncIterator[int] | None
"""The SIGHUPs that reload the configuration; None if there is no service manager."""

PARTY = topics.CONFIG


@contextmanager
def open_hangups(manager: ServiceManager) -> Iterator[Hangups]:
    """Take SIGHUP in this block; one that comes before the instance is ready is kept."""
    if not manager:
        yield None
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        yield signals


async def reload_at(hangups: Hangups, instance: Instance, manager: ServiceManager) -> None:
    """Reload the configuration at each of `hangups`, and tell the log and the service manager."""
    if hangups is None:
        return
    async for _ in hangups:
        manager.reloading()
        level, text = await _reload(instance)
        instance.write_log(level, PARTY, text)
        manager.ready(text)


async def _reload(instance: Instance) -> tuple[Level, str]:
    """Return what has become of the configuration."""
    try:
        async with instance.connect("reload") as handle:
            answer = await handle.call(topics.CONFIG_RELOAD)
    except FluxError as error:
        return Level.ERR, f"the configuration is unchanged: {error}"
    if "refusal" in answer:
        return Level.ERR, f"the configuration is unchanged: {answer['refusal']}"
    if later := ", ".join(answer["later"]):
        text = f"reloaded; in force when their modules are loaded again: {later}"
        return Level.NOTICE, f"the configuration is {text}"
    return Level.INFO, "the configuration is reloaded"
