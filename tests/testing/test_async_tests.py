"""Fixtures in async tests: under Trio, asyncio and anyio, each in a pytest of its own."""

from __future__ import annotations

from textwrap import dedent

import pytest
import trio

from flux_trio.testing import InstanceHarness

pytest_plugins = ["pytester"]

TESTS = """
    import pytest
    import trio
    from flux_trio import jobtap
    from flux_trio.testing import InstanceHarness

    class Mine(jobtap.Plugin):
        @jobtap.on("job.state.priority")
        def priority(self, job):
            return 7

    {mark}
    async def test_instance(instance, fake_scheduler, fake_exec{more}):
        job = instance.submit()
        fake_scheduler.grant(job)
        fake_exec.start(job)
        fake_exec.finish(job)
        instance.wait(job)
        instance.advance(60.0)
        instance.crash("job-list")
        assert job.names[-1] == "clean"

    {mark}
    async def test_world(world{more}):
        world.submit()
        world.play()

    {mark}
    async def test_plugin(plugin_harness{more}):
        job = plugin_harness(Mine()).submit()
        job.run()
        assert job.priority == 7

    {mark}
    async def test_block(flux_seed{more}):
        with InstanceHarness(seed=flux_seed) as instance:
            instance.wait(instance.submit())
    """
ANYIO = '@pytest.mark.anyio\n    @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])'


@pytest.mark.parametrize(
    ("mark", "more", "args", "passed"),
    [
        pytest.param("", "", ("-p", "no:trio"), 4, id="no plugin for async tests"),
        pytest.param("", "", ("-o", "trio_mode=true"), 4, id="pytest-trio"),
        pytest.param(ANYIO, ", anyio_backend", ("-p", "no:trio"), 8, id="anyio"),
    ],
)
def test_async_test_uses_the_fixtures(
    pytester: pytest.Pytester, mark: str, more: str, args: tuple[str, ...], passed: int
) -> None:
    pytester.makepyfile(dedent(TESTS.format(mark=mark, more=more)))
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *args)
    result.assert_outcomes(passed=passed)


def test_tasks_of_the_test_wait_while_the_instance_acts() -> None:
    done: list[str] = []

    async def other() -> None:
        await trio.lowlevel.checkpoint()
        done.append("task of the test")

    async def main() -> None:
        with InstanceHarness() as instance:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                instance.wait(instance.submit())
                done.append("instance")

    trio.run(main)
    assert done == ["instance", "task of the test"]


def test_call_from_the_instances_own_thread_is_refused() -> None:
    with InstanceHarness() as instance:

        async def inside() -> None:
            instance.advance(1.0)

        with pytest.raises(
            RuntimeError, match=r"instance harness's thread, .* such a function awa"
        ):
            instance.do(inside)
        instance.wait(instance.submit())
