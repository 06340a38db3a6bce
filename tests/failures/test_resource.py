"""What happens when the resource service ends, hangs or answers wrongly (RFC 28)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.messages import Errno, Flag, FluxError, Request, Response, topics
from flux_trio.sim import make_machine
from tests.support.breaking import named
from tests.support.failing import ENDS, HOUR, OWNER, Scene, scene, settle
from tests.support.leaks import nothing_left

NAME = "resource"
RUN = ["submit", "validate", "depend", "priority", "alloc", "start"]


async def reload_scheduler(s: Scene) -> None:
    """As the operator does after the scheduler has left."""
    await s.supervisor.load("sched")
    await settle()


@pytest.mark.parametrize("end", ENDS)
async def test_scheduler_leaves_and_no_running_job_is_affected(
    autojump_clock: MockClock, end: str
) -> None:
    "28.acquire: the stream ends with an error: the scheduler logs it and leaves."
    async with scene() as s:
        resource = await s.make_mortal(NAME)
        await reload_scheduler(s)  # it left with the first one
        running = await s.submit(run_s=HOUR)
        await s.end(NAME, end, resource)
        assert "sched" not in s.supervisor
        assert any("sched.err: resource.acquire: " in line for line in s.log())
        pending = await s.submit(run_s=1)
        assert (await s.status())["blocked"] == "scheduler"
        await trio.sleep(2 * HOUR)
        assert (await s.events(running))[-2:] == ["finish", "release"]

        text = "No service matching" if end == "removed" else "resource ended: "
        with pytest.raises(FluxError, match=text):
            await s.call(topics.RESOURCE_STATUS)
        await s.load(NAME, resource.again())
        await reload_scheduler(s)
        await s.wait(pending)
        assert (await s.events(running))[-1] == "clean"
        assert "exception" not in await s.events(running)


async def test_scheduler_that_is_loaded_without_a_resource_service_says_why_it_leaves(
    autojump_clock: MockClock,
) -> None:
    async with scene((NAME, "sched")) as s:
        await s.supervisor.load("sched")
        await settle()
        assert "sched" not in s.supervisor
        assert any("No service matching resource.acquire" in line for line in s.log())
        assert (await s.status())["stop_reason"] == "Scheduler is offline"


async def test_drained_targets_are_drained_after_a_crash(autojump_clock: MockClock) -> None:
    "Acknowledged administration is not lost."
    async with scene() as s:
        resource = await s.make_mortal(NAME)
        await s.call(topics.RESOURCE_DRAIN, {"targets": "1", "reason": "why"})
        await s.end(NAME, "raises", resource)
        await s.load(NAME, resource.again())
        drained = (await s.call(topics.RESOURCE_STATUS))["drained"]
        assert {targets: each["reason"] for targets, each in drained.items()} == {"1": "why"}


async def test_ends_of_the_resource_service_leave_nothing(autojump_clock: MockClock) -> None:
    async with scene() as s:
        resource = await s.make_mortal(NAME)
        await reload_scheduler(s)
        async with nothing_left(s.instance):
            for end in ENDS:
                await s.end(NAME, end, resource)
                resource = resource.again()
                await s.load(NAME, resource)
                await reload_scheduler(s)


async def down(s: Scene, targets: str, reason: str = "psu") -> None:
    """The operator says that targets have failed."""
    await s.call(topics.RESOURCE_DOWN, {"targets": targets, "reason": reason})
    await settle()


async def exceptions(s: Scene, jobid: int) -> list[Any]:
    """The contexts of a job's exceptions."""
    return [each.context for each in await s.eventlog(jobid) if each.name == "exception"]


LOST = {"type": "exec", "severity": 0, "note": "node1 (rank 1) is down: psu", "userid": OWNER}


async def test_target_that_goes_down_ends_its_jobs_alone_and_the_scheduler_raises_nothing(
    autojump_clock: MockClock,
) -> None:
    "28.offline.3, 28.offline.4, 28.offline.5: the execution service ends them, by name."
    async with scene() as s:
        whole = await s.submit(run_s=HOUR, ncores=4)  # on both nodes
        await down(s, "1")
        assert await exceptions(s, whole) == [LOST]
        assert (await s.events(whole))[-5:] == ["exception", "finish", "release", "free", "clean"]
        first, second, third = [await s.submit(run_s=60.0) for _ in range(3)]
        assert (await s.events(second))[-1] == "start"
        assert (await s.events(third))[-1] == "priority", "there is no room on node 0"
        await s.call(topics.RESOURCE_UP, {"targets": "1"})
        for jobid in (first, second, third):
            await s.wait(jobid)
            assert await exceptions(s, jobid) == []


async def test_target_that_goes_down_while_no_execution_service_is_there_ends_its_jobs_later(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        whole = await s.submit(run_s=HOUR, ncores=4)
        await s.supervisor.remove("job-exec")
        await down(s, "1")
        assert (await s.events(whole))[-1] == "start"
        await s.supervisor.load("job-exec")
        await s.wait(whole)
        assert await exceptions(s, whole) == [LOST]


async def test_target_that_is_down_is_so_after_a_crash_until_the_operator_says_up(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        resource = await s.make_mortal(NAME)
        await reload_scheduler(s)
        await down(s, "1")
        await s.end(NAME, "raises", resource)
        await s.load(NAME, resource.again())
        await reload_scheduler(s)
        whole = await s.submit(ncores=4)
        await trio.sleep(HOUR)
        assert (await s.events(whole))[-1] == "priority"
        await s.call(topics.RESOURCE_UP, {"targets": "1"})
        await s.wait(whole)
        assert await exceptions(s, whole) == []


async def test_drained_target_ends_no_job_and_one_that_is_shrunk_does(
    autojump_clock: MockClock,
) -> None:
    "28.shrink.4: that is the one case in which the scheduler raises."
    async with scene() as s:
        whole = await s.submit(run_s=HOUR, ncores=4)
        await s.call(topics.RESOURCE_DRAIN, {"targets": "1"})
        await settle()
        assert (await s.events(whole))[-1] == "start"
        await s.call(topics.RESOURCE_EXCLUDE, {"targets": "1"})
        await s.wait(whole)
        assert [each["type"] for each in await exceptions(s, whole)] == ["shrink"]


class FakeResource:
    """Answers resource.acquire with what it is given; None is silence."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = answers

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve `resource.*` until cancelled."""
        handle.register(topics.RESOURCE)
        task_status.started()
        while True:
            for request in await handle.receive():
                if isinstance(request, Request) and request.topic == topics.RESOURCE_ACQUIRE:
                    self.answer(handle, request)

    def answer(self, handle: Handle, request: Request) -> None:
        """Say it all."""
        for errnum, payload in self.answers:
            flags = 0 if errnum else int(Flag.STREAMING)
            tag, routes = request.matchtag, request.routes
            handle.send(Response(request.topic, payload, errnum, tag, flags, routes=routes))


async def test_resource_service_that_hangs_keeps_the_scheduler_from_saying_hello(
    autojump_clock: MockClock,
) -> None:
    "It is the scheduler that is offline; nothing times out; the module list has who is idle."
    async with scene((NAME, "sched")) as s:
        await s.load(NAME, FakeResource())
        await s.supervisor.load("sched")
        await s.submit()
        await trio.sleep(HOUR)
        assert (await s.status())["stop_reason"] == "Scheduler is offline"
        assert "sched" in s.supervisor
        idle = {each["name"]: each["idle"] for each in (await s.call("module.list"))["modules"]}
        assert idle[NAME] >= HOUR


R = make_machine(nnodes=2, cores_per_node=2).to_json()
OTHER_R = {**R, "execution": {**R["execution"], "nodelist": ["elsewhere[0-1]"]}}  # type: ignore[dict-item]  # R is JSON
GROW = {"type": "grow", "resources": R, "online": "0-1", "offline": ""}


def grown(**more: Any) -> list[tuple[int, Any]]:
    return [(0, {**GROW, **more})]


WRONG: dict[str, tuple[str, list[tuple[int, Any]], str]] = {
    "errnum": (
        "28.acquire.3",
        [(Errno.EINVAL, "no such group")],
        "resource.acquire: no such group",
    ),
    "no payload": ("", [(0, None)], "payload"),
    "type that there is not": ("28.acquire.5", grown(type="burn"), "'burn'"),
    "R of another version": (
        "20.format.2 28.grow.2",
        grown(resources={**R, "version": 2}),
        "version",
    ),
    "R that is none": (
        "20.format.2 20.format.3 28.background.5 28.grow.2",
        grown(resources={"a": 1}),
        "version",
    ),
    "online that is no idset": ("28.grow.3 28.grow.5", grown(online="x"), "idset"),
    "shrink before grow": ("28.shrink.1", [(0, {"type": "shrink", "targets": "0"})], "shrink"),
    "targets that are no idset": (
        "22.idset.2 28.offline.1",
        [*grown(), (0, {"type": "offline", "targets": "-"})],
        "idset",
    ),
    "grow that contradicts what is there": (
        "20.nodelist.3",
        [*grown(), *grown(resources=OTHER_R)],
        "rank",
    ),
}


@pytest.mark.parametrize("what", named(WRONG))
async def test_scheduler_refuses_a_wrong_answer_and_leaves(
    autojump_clock: MockClock, what: str
) -> None:
    """Design: logged with what was expected and what came; never a crash in our own code."""
    _, answers, text = WRONG[what]
    async with scene((NAME, "sched")) as s:
        await s.load(NAME, FakeResource(*answers))
        await s.supervisor.load("sched")
        pending = await s.submit(ncores=5)
        await settle()
        assert "sched" not in s.supervisor
        errors = [line for line in s.log() if line.startswith("sched.err: ")]
        assert len(errors) == 1
        assert "resource.acquire: " in errors[0]
        assert text in errors[0]
        assert s.log()[-1].startswith("sched.crit: module sched: resource.acquire: ")
        assert (await s.events(pending))[:4] == RUN[:4]


@pytest.mark.parametrize(
    "more",
    [
        *(
            pytest.param({"type": what, "targets": "9"}, marks=pytest.mark.breaks(f"28.{what}.1"))
            for what in ("offline", "shrink", "online")
        ),
        GROW,
    ],
)
async def test_news_of_targets_that_are_unknown_or_there_already_change_nothing(
    autojump_clock: MockClock, more: dict[str, Any]
) -> None:
    async with scene((NAME, "sched")) as s:
        await s.load(NAME, FakeResource(*grown(), (0, more)))
        await s.supervisor.load("sched")
        whole, half = await s.submit(run_s=10, ncores=4), await s.submit(ncores=3)
        for jobid in (whole, half):
            await s.wait(jobid)
            assert "exception" not in await s.events(jobid)
        assert s.log() == []


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        pytest.param(
            topics.RESOURCE_ACQUIRE,
            {"group": "default"},
            "expected the streaming flag",
            marks=pytest.mark.breaks("6.request.4"),
        ),
        (topics.RESOURCE_RELEASE, {"group": "x", "targets": "0"}, "x"),
        (topics.RESOURCE_RELEASE, {"group": "default", "targets": "0"}, "default"),
        pytest.param(
            topics.RESOURCE_RELEASE,
            {"group": "default"},
            "targets",
            marks=pytest.mark.breaks("28.release.3"),
        ),
    ],
)
async def test_wrong_request_is_refused_with_text_and_the_scheduler_goes_on(
    autojump_clock: MockClock, topic: str, payload: Any, text: str
) -> None:
    async with scene() as s:
        with pytest.raises(FluxError, match=text):
            await s.call(topic, payload)
        await s.wait(await s.submit())
        assert s.log() == []


@pytest.mark.parametrize("by", ["reload", "remove and load"])
async def test_a_resource_service_that_an_operator_loads_again_takes_no_scheduler_with_it(
    autojump_clock: MockClock, by: str
) -> None:
    """28.disconnect: the scheduler leaves before it, in order, and acquires anew after it."""
    async with scene() as s:
        running = await s.submit(run_s=HOUR)
        if by == "reload":
            await s.call("module.reload", {"name": NAME})
        else:
            await s.call("module.remove", {"name": NAME})
            assert "sched" not in s.supervisor
            await s.call("module.load", {"name": NAME})
        await settle()
        assert "sched" in s.supervisor
        second = await s.submit(run_s=1)
        await s.wait(second)
        assert not [line for line in s.log() if "err:" in line or "crit:" in line]
        await trio.sleep(2 * HOUR)
        assert (await s.events(running))[-1] == "clean"
        assert "exception" not in await s.events(running)
        told = [r.data for r in s.records if r.kind == "module" and r.data["module"] == "sched"]
        assert [each["what"] for each in told][-2:] == ["removed", "started"]


async def test_a_scheduler_that_has_lost_its_resource_service_comes_back_with_the_next_one(
    autojump_clock: MockClock,
) -> None:
    """28.acquire: it leaves, as it should; it acquires again with nobody's help."""
    async with scene() as s:
        running = await s.submit(run_s=HOUR)
        await s.call("module.kill", {"name": NAME})
        await settle()
        assert "sched" not in s.supervisor
        pending = await s.submit(run_s=1)
        await s.call("module.load", {"name": NAME})
        await s.wait(pending)
        await s.wait(running)
        assert "exception" not in await s.events(running)
        await s.call("module.kill", {"name": "sched"})  # by itself; nobody loads it again
        await s.call("module.reload", {"name": NAME})
        assert "sched" not in s.supervisor


async def alloc_limit(s: Scene) -> int:
    """How many alloc requests the scheduler takes at once; 0: any number."""
    hellos = [r.message for r in s.records if getattr(r.message, "topic", "") == topics.SCHED_READY]
    asked = [each.payload for each in hellos if isinstance(each, Request)]
    return int(asked[-1].get("limit") or 0)


@pytest.mark.parametrize("how", ["reload", "reload resource", "crash of resource"])
async def test_a_module_that_is_loaded_again_has_the_arguments_that_it_had(
    autojump_clock: MockClock, how: str
) -> None:
    async with scene() as s:
        await s.call("module.reload", {"name": "sched", "args": ["mode=limited=3"]})
        await settle()
        assert await alloc_limit(s) == 3
        if how == "crash of resource":
            await s.call("module.kill", {"name": NAME})
            await settle()
            await s.call("module.load", {"name": NAME})
        else:
            await s.call(
                "module.reload", {"name": how.removeprefix("reload ").replace("reload", "sched")}
            )
        await settle()
        assert await alloc_limit(s) == 3
        await s.call("module.remove", {"name": "sched"})
        await s.call("module.load", {"name": "sched"})
        await settle()
        assert await alloc_limit(s) == 0


async def test_a_scheduler_that_an_operator_has_removed_stays_away(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        await s.call("module.remove", {"name": "sched"})
        await s.call("module.reload", {"name": NAME})
        await settle()
        assert "sched" not in s.supervisor
