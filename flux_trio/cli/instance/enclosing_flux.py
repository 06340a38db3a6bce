"""A job of flux-core in which `flux-trio start` runs: what is asked and told there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from flux_trio.attach.handle import open_flux
from flux_trio.client import FLUX_URI_VARIABLE
from flux_trio.messages import topics

NAME: Final = "flux-trio"
KEYS: Final = ("R", "eventlog")
KILL_TIMEOUT: Final = "5s"  # flux-core's own, where none is configured


class _Exec(msgspec.Struct, rename="kebab", frozen=True):
    kill_timeout: str | float = KILL_TIMEOUT


class _Config(msgspec.Struct):
    exec: _Exec = _Exec()


async def read_flux_job(
    environ: Mapping[str, str], jobid: int
) -> tuple[str, int, dict[str, str], str]:
    """Return the URI of the broker, the level of an instance in the job, R and eventlog as texts.

    The last value is the time between SIGTERM and SIGKILL when a job ends, as it is configured.
    Raises TransportError or FluxError.
    """
    uri = environ[FLUX_URI_VARIABLE]
    async with open_flux(uri, NAME) as flux:
        wanted = {"id": jobid, "keys": list(KEYS), "flags": 0}
        found = await flux.ask(topics.INFO_LOOKUP, dict[str, Any], wanted)
        level = int(await flux.attribute("instance-level") or 0) + 1
        grace = (await flux.ask(topics.CONFIG_GET, _Config)).exec.kill_timeout
    return uri, level, {key: found[key] for key in KEYS}, str(grace)


async def tell_flux(environ: Mapping[str, str], topic: str, payload: dict[str, Any]) -> None:
    """Send a request and wait for its answer. Raises TransportError or FluxError."""
    async with open_flux(environ[FLUX_URI_VARIABLE], NAME) as flux:
        await flux.call(topic, payload)


@asynccontextmanager
async def watch_flux_job(
    environ: Mapping[str, str], jobid: int
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the lines of the eventlog of a job. Raises TransportError or FluxError."""
    wanted = {"id": jobid, "path": "eventlog", "flags": 0}
    async with (
        open_flux(environ[FLUX_URI_VARIABLE], NAME) as flux,
        flux.stream(topics.INFO_WATCH, wanted) as responses,
    ):
        yield responses
