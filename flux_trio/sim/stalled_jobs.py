"""Why a job of a stalled run waits: what `flux-trio job explain` knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from flux_trio.cores.job_manager.core import JobManagerCore
from flux_trio.editions.explain_requests import EXPLAIN, EXPLAINED, Explain, Explained
from flux_trio.jobtap import PluginHost
from flux_trio.messages import (
    ROLE_OWNER,
    FluxError,
    Payload,
    Request,
    Response,
    expect_payload,
    topics,
)
from flux_trio.services.at_once import Party, World
from flux_trio.services.explain_job import Explainer

_BUILTIN: Final = "."  # begins the name of a plugin; what one holds a job for is a reason already
_TAG: Final = 1  # of the only request of a client


def reasons(explained: Explained) -> Iterator[str]:
    """Yield what the job manager, the scheduler and the plugins say."""
    yield from explained.waits
    if explained.sched is not None:
        yield explained.sched.reason
    for said in explained.said:
        if not said.plugin.startswith(_BUILTIN):
            yield said.sentence


class _Asking:
    """The peer that asks the scheduler; see `Core`."""

    def __init__(self) -> None:
        self.responses: list[Response] = []

    def start(self, _now: float) -> list[Any]:
        return []

    def turn(self, _now: float, inputs: Sequence[Any]) -> list[Any]:
        self.responses += inputs
        return []


async def explained_at_once(
    world: World[Party], core: JobManagerCore, host: PluginHost, jobid: int
) -> Explained:
    """Return why a job waits, of a job manager that takes its turns in order. Raises FluxError."""

    async def rpc(topic: str, payload: Payload) -> dict[str, Any]:
        asking = _Asking()
        party = world.add(world.router.unique_name("explain"), asking)
        world.send(party, Request(topic, payload, _TAG))
        world.settle()
        (response,) = asking.responses
        if response.errnum:
            raise FluxError(response.errnum, response.error_text)
        return expect_payload(response, dict[str, Any])

    asked = EXPLAIN.write(Explain(jobid))
    request = Request(topics.JOB_EXPLAIN, asked, rolemask=ROLE_OWNER)
    said = await Explainer(core, host, rpc).answer(request)
    return EXPLAINED.read(Response(topics.JOB_EXPLAIN, said))
