"""A simulated run of the services of an instance, under Trio's virtual clock."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from flux_trio.broker import Handle
from flux_trio.editions.explain_requests import EXPLAIN, EXPLAINED, Explain
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.messages import Response, topics
from flux_trio.sim.replay import SETTLE_S, Replay, SimulationStalled
from flux_trio.sim.simulated_run import SIMULATED, USERID, Ran, SimulatedRun, note_depth
from flux_trio.sim.stalled_jobs import reasons
from flux_trio.sim.users import UserBook
from flux_trio.sim.world import run_world


def run_on_stack(asked: SimulatedRun) -> Ran:
    """Run to the end. Raises SimulationStalled, and the errors of `open_instance`."""
    return run_world(functools.partial(_replay, asked), asked.seed, asked.epoch)


async def _replay(asked: SimulatedRun) -> Ran:
    given = Surroundings(
        inventory=asked.machine,
        userid=USERID,
        epoch=asked.epoch,
        plugins=asked.plugins,
        sinks=asked.sinks,
        log_sinks=asked.log_sinks,
        modules=SIMULATED,
        users=UserBook(asked.userids).found,
    )
    shares: dict[str, float] = {}
    stalled: SimulationStalled | None = None  # raised outside: inside, a nursery would wrap it
    replay = Replay(asked.jobs, asked.progress)
    async with (
        open_instance(asked.config, given) as instance,
        instance.connect("workload") as handle,
    ):
        note_depth(instance.trace, "stack")
        async with _submitters(instance, handle, asked.userids) as submitters:
            if not await _run(replay, handle, submitters):
                async with instance.connect("explain") as asking:
                    waits = await _waits(asking, replay.first_left())
                stalled = replay.stalled(instance.log, waits)
        async with instance.connect("shares") as asking:
            shares = await _shares(asking, asked)
    if stalled is not None:
        raise stalled
    return replay.facts(), shares


async def _run(replay: Replay, handle: Handle, submitters: Mapping[str | None, Handle]) -> bool:
    """Run until all jobs have ended; return False if nothing happens any more."""
    handle.send(replay.follow())
    while not replay.is_over:
        for user, request in replay.due(handle.now()):
            submitters[user].send(request)
        at = replay.next_submit()
        silent_at = handle.now() + replay.silence_s_max
        messages = await handle.receive_until(silent_at if at is None else at)
        if not messages and at is None:
            return False
        replay.handle(messages)
    return True


@asynccontextmanager
async def _submitters(
    instance: Instance, inbox: Handle, userids: Mapping[str, int]
) -> AsyncIterator[dict[str | None, Handle]]:
    """Yield a peer for each user (None: `inbox`); `inbox` receives all their responses."""
    async with AsyncExitStack() as peers, trio.open_nursery() as nursery:
        handles: dict[str | None, Handle] = {None: inbox}
        for user, userid in userids.items():
            handles[user] = await peers.enter_async_context(instance.connect(user, userid=userid))
            nursery.start_soon(_pass_on, handles[user], inbox)
        yield handles
        nursery.cancel_scope.cancel()


async def _pass_on(handle: Handle, inbox: Handle) -> None:
    while True:
        for message in await handle.receive():
            inbox.post(message)


async def _waits(handle: Handle, jobid: int | None) -> str:
    """Return why a job waits; "" if nobody knows, or the job manager does not answer."""
    if jobid is None:
        return ""
    with trio.move_on_after(SETTLE_S):
        said = await handle.call(topics.JOB_EXPLAIN, EXPLAIN.write(Explain(jobid)))
        return "; ".join(reasons(EXPLAINED.read(Response(topics.JOB_EXPLAIN, said))))
    return ""


async def _shares(handle: Handle, asked: SimulatedRun) -> dict[str, float]:
    listed = await handle.call(topics.JOB_JOBTAP_LIST, {})

    async def query(name: str) -> dict[str, Any]:
        return await handle.call(topics.JOB_JOBTAP_QUERY, {"name": name})

    return await asked.first_shares(listed["plugins"], query)
