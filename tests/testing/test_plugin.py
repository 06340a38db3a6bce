"""The pytest plugin: fixtures, seeds, judging; each test of a user runs in a pytest of its own."""

from __future__ import annotations

import pytest

from tests.support.user_tests import Run

pytest_plugins = ["pytester"]


def test_world_is_played_without_any_setting(run: Run) -> None:
    run("""
        from flux_trio.lab import Crash, When

        def test_scheduler_dies_before_it_answers(world, faults):
            world.submit(count=2, run=5.0)
            faults.append(Crash("sched", When("sched.alloc", nth=2), back=3.0))
            outcome = world.play()
            assert outcome.struck == (faults[0],)
            assert [r.data["what"] for r in world.trace if r.kind == "module"].count("crashed") == 1
        """).assert_outcomes(passed=1)


def test_fault_that_never_strikes_is_a_warning(run: Run) -> None:
    """Not for a plan that is drawn: there it is usual."""
    result = run(
        """
        from flux_trio.lab import Crash, Plan, When

        def test_in_vain(world, faults):
            world.submit()
            faults.append(Crash("sched", When("sched.alloc", nth=20)))
            world.play()

        def test_slip(world, faults):
            world.submit()
            faults.append(Crash("sched", When("sched.aloc")))
            world.play()

        def test_drawn(world):
            world.plan = Plan(1, faults=(Crash("sched", 9999),))
            assert world.play().never_struck == world.plan.faults
        """,
        "-W",
        "default::flux_trio.testing.FaultNeverStruck",
    )
    result.assert_outcomes(passed=3, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*FaultNeverStruck: crash (module sched, back 0.0) never *sched.alloc number 20 *",
            "*FaultNeverStruck: *sched.aloc number 1 that was received (did you mean sched.alloc?)",
        ]
    )


def test_world_that_is_not_played_fails(run: Run) -> None:
    result = run("def test_forgets(world): world.submit()")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["AssertionError: the test has not played its *call world.play()"])
    result.stdout.no_fnmatch_line("During handling*")


def test_world_of_a_test_that_fails_or_plays_in_vain_says_no_more(run: Run) -> None:
    result = run("""
        import pytest

        def test_fails_before(world):
            assert False

        def test_fails_in_play(world):
            world.configure(policy="deep")
            world.play()

        def test_expects_it(world):
            world.configure(policy="deep")
            with pytest.raises(ValueError, match="policy: expected"):
                world.play()

        def test_skips(world):
            pytest.skip("not today")
        """)
    result.assert_outcomes(failed=2, passed=1, skipped=1)


BROKEN = """
    import pytest
    from flux_trio.lab import Crash, When
    from flux_trio.protocols.alloc import ALLOC, AllocEvent, AllocState

    @pytest.fixture(autouse=True)
    def forgetful(monkeypatch):
        monkeypatch.setitem(ALLOC.rows[AllocState.PENDING], AllocEvent.LOST, AllocState.PENDING)

    {mark}
    def test_broken(world, faults):
        world.submit(count=3)
        faults.append(Crash("sched", When("sched.alloc")))
        world.play()
    """


def test_broken_property_is_told_as_the_smallest_story(run: Run) -> None:
    result = run(BROKEN.format(mark=""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*PropertyBroken: seed 0: * is broken by job-manager", "*sched has crashed*"]
    )
    result.stdout.fnmatch_lines(["*The plan:", "*seed = 0", '*type = "crash", module = "sched"*'])


def test_unjudged_world_fails_nothing(run: Run) -> None:
    run(BROKEN.format(mark="@pytest.mark.flux_unjudged")).assert_outcomes(passed=1)


def test_what_is_broken_on_purpose_is_named(run: Run) -> None:
    named = '@pytest.mark.flux_breaks("invariant.nobody-stuck")'
    result = run(BROKEN.format(mark=named))
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*PropertyBroken: seed 0: invariant.nobody-stuck is*")


SEEDED = """
    import pytest

    @pytest.mark.flux_seeds(3)
    def test_marked(world):
        world.submit()
        world.play()

    def test_once(flux_seed):
        print("seed", flux_seed)
    """


@pytest.mark.parametrize(
    ("args", "passed", "header"),
    [
        ((), 4, ""),
        (("--flux-seeds", "2"), 4, ""),
        (("--flux-seed", "7"), 2, "flux-trio: seed 7"),
        (("--flux-seed", "7", "--flux-seeds", "2"), 2, "flux-trio: seed 7"),
    ],
)
def test_seeds_are_those_of_marker_and_options(
    run: Run, args: tuple[str, ...], passed: int, header: str
) -> None:
    result = run(SEEDED, "-vv", *args)
    result.assert_outcomes(passed=passed)
    result.stdout.fnmatch_lines([f"*test_marked[[]seed-{7 if header else 1}[]]*"])
    assert header in result.stdout.str()


@pytest.mark.parametrize("args", [(), ("--flux-seeds", "3"), ("--flux-seed", "7")])
def test_seeds_of_the_test_itself_stand(run: Run, args: tuple[str, ...]) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.parametrize("flux_seed", [1, 2])
        def test_one_name(flux_seed):
            assert flux_seed in (1, 2)

        @pytest.mark.flux_seeds(3)
        @pytest.mark.parametrize(argnames=("n", "flux_seed"), argvalues=[(1, 4), (2, 5)])
        def test_more_names(n, world, flux_seed):
            assert flux_seed == n + 3
            world.play()
        """,
        *args,
    )
    result.assert_outcomes(passed=4)


def test_run_that_repeats_a_failed_test_has_checks_of_its_own(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, log=False, nextitem=nextitem)
            item._initrequest()
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    result = run("""
        runs = []

        def test_fails_once(world):
            runs.append(world)
            assert len(runs) == 2
            world.play()
        """)
    result.assert_outcomes(passed=1)


def test_instance_is_driven_by_a_plain_test(run: Run) -> None:
    run("""
        import pytest

        def test_job_outlives_a_reload(instance):
            job = instance.submit(run_s=5.0)
            instance.crash("sched")
            instance.load("sched")
            instance.wait(job)
            assert job.names[-1] == "clean"
            assert instance.now == job.events[0].timestamp + 5.0

        def test_services_are_the_tests(instance, fake_scheduler, fake_exec):
            job = instance.submit()
            assert fake_scheduler.asked == [job.id]
            assert job.state.name == "SCHED"
            fake_scheduler.grant(job)
            assert fake_exec.asked == [job.id]
            fake_exec.start(job)
            assert job.names[-1] == "start"
            fake_exec.finish(job)
            assert job.state.name == "INACTIVE"

        def test_job_waits_for_ever(instance, fake_scheduler):
            with pytest.raises(AssertionError, match="has no event alloc"):
                instance.wait(instance.submit(), "alloc")
            instance.trace.clear()

        @pytest.mark.flux_instance(config="[sched]\\npolicy = 'easy'")
        def test_options(instance):
            assert instance.request("sched.stats-get")["policy"] == "easy"
        """).assert_outcomes(passed=4)


def test_instance_is_judged(run: Run) -> None:
    result = run("""
        import pytest
        from flux_trio.messages import FluxError

        def ask(instance):
            with pytest.raises(FluxError):
                instance.request("job-manager.exec-hello", {"service": 7})

        def test_judged(instance):
            ask(instance)

        @pytest.mark.flux_breaks("32.hello.4", "32.hello.6")
        def test_on_purpose(instance):
            ask(instance)

        @pytest.mark.flux_unjudged
        def test_unjudged(instance):
            ask(instance)
        """)
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["ClausesBroken: 32.hello.4 broken by client*"])
    result.stdout.no_fnmatch_line("*traceback*")


def test_what_the_end_of_the_test_breaks_is_an_error_beside_it(run: Run) -> None:
    result = run("""
        import pytest
        from flux_trio.messages import FluxError

        @pytest.fixture
        def late(instance):
            yield
            assert instance.now  # it is still there
            with pytest.raises(FluxError):
                instance.request("job-manager.exec-hello", {"service": 7})

        def test_passes(late):
            pass
        """)
    result.assert_outcomes(passed=1, errors=1)


def test_what_an_instance_at_rest_owes_fails_the_test(run: Run) -> None:
    result = run("""
        def test_owes(instance, fake_scheduler):
            fake_scheduler.fake.handle.note("resource", {"what": "down", "targets": "0"})
            instance.advance(1.0)
        """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ClausesBroken: 28.background.7 broken by resource*"])


def test_fixtures_serve_an_async_test(run: Run) -> None:
    run("""
        import asyncio
        from flux_trio.lab import JobPlan

        def test_in_asyncio(instance, world):
            async def main():
                instance.wait(instance.submit())
                world.submit()
                return world.play().problems

            assert asyncio.run(main()) == ()
        """).assert_outcomes(passed=1)


def test_async_test_runs_under_trio_in_virtual_time(run: Run) -> None:
    run("""
        import trio
        from flux_trio.testing import simulated_instance

        async def test_in_trio(world):
            world.submit()
            world.play()
            await trio.sleep(3600)
            async with simulated_instance() as instance, instance.connect() as handle:
                assert await handle.call("job-manager.getinfo") == {"max_jobid": 0}
            assert trio.current_time() >= 3600
        """).assert_outcomes(passed=1)


def test_strategies_make_what_flux_trio_reads(run: Run) -> None:
    run("""
        from hypothesis import given, settings
        from flux_trio.lab import Plan, run_plan
        from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
        from flux_trio.formats import Jobspec, format_r, parse_r
        from flux_trio.testing import strategies

        @given(strategies.jobspecs())
        def test_jobspecs(jobspec):
            assert Jobspec.parse(jobspec.to_json()) == jobspec

        @given(strategies.resource_sets())
        def test_resources(resources):
            assert parse_r(format_r(resources)) == resources

        @settings(max_examples=5, deadline=None)
        @given(strategies.workloads(3))
        def test_workloads(jobs):
            assert run_plan(Plan(1, jobs=jobs)).problems == ()

        @settings(max_examples=5, deadline=None)
        @given(strategies.fault_plans(2))
        def test_plans(plan):
            assert plan_from_toml(plan_to_toml(plan)) == plan
            assert run_plan(plan).problems == ()
        """).assert_outcomes(passed=4)


DEEP = """
    import pytest

    @pytest.mark.flux_depth("stack")
    def test_marked(world):
        world.submit(2)
        world.play()
        assert any(each.party == "ready" for each in world.trace)

    @pytest.mark.flux_depth("stack")
    async def test_async(world):
        world.submit()
        assert world.draw().depth == "stack"
        world.play()

    def test_plain(world):
        world.submit()
        world.play()
        assert any(each.party == "ready" for each in world.trace) is {is_deep}
    """


def test_depth_of_a_world(run: Run) -> None:
    run(DEEP.format(is_deep=False)).assert_outcomes(passed=3)
    run(DEEP.format(is_deep=True), "--flux-depth", "stack").assert_outcomes(passed=3)
