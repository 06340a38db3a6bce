"""Markers and options with wrong or unusual values; each test of a user in a pytest of its own."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from flux_trio.formats import Jobspec
from flux_trio.jobtap import PluginError
from flux_trio.lab import Crash, JobPlan, over_trace
from flux_trio.lab.plans.plan import Depth
from flux_trio.testing import InstanceHarness, PlayedScheduler, PluginHarness, WorldHarness
from tests.support.user_tests import Run

pytest_plugins = ["pytester"]


def test_clause_or_property_that_is_unknown_is_refused(run: Run) -> None:
    result = run("""
        import pytest

        @pytest.mark.flux_breaks("27.alloc.44")
        def test_instance(instance):
            instance.submit()

        @pytest.mark.flux_breaks("plugn")
        def test_harness(plugin_harness):
            pass

        @pytest.mark.flux_breaks("nonsense")
        def test_world(world):
            world.submit()
            world.play()

        @pytest.mark.flux_breaks("27.alloc.1", "plugin", "error", "listed")
        def test_known(world, instance, plugin_harness):
            world.play()
        """)
    result.assert_outcomes(errors=2, failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "what the test breaks: expected clauses, such as 27.alloc.1, or properties (*got "
            "27.alloc.44 (did you mean 27.alloc.4?)",
            "*got plugn (did you mean plugin?)",
            "*got nonsense",
        ]
    )


def test_edition_is_that_of_the_option_or_of_the_marker(run: Run) -> None:
    test = """
        import pytest

        @pytest.mark.flux_edition("current")
        def test_marked(world, instance, fake_scheduler):
            assert (world.plan.edition, instance.edition.name) == ("current", "current")
            world.submit()
            world.play()
            job = instance.submit()
            fake_scheduler.grant(job)
            instance.wait(job)
            granted = [each.message.payload for each in instance.trace if each.message is not None
                       and each.kind == "send" and each.message.topic == "sched.alloc"]
            assert granted[-1]["R"]["version"] == 1

        def test_unmarked(world, instance):
            assert world.plan.edition == instance.edition.name == "EDITION"
            world.play()

        @pytest.mark.flux_instance(config='edition = "current"')
        def test_configured(instance):
            assert instance.edition.name == "current"
        """
    run(test.replace("EDITION", "classic")).assert_outcomes(passed=3)
    test = test.replace("EDITION", "current").replace("@pytest.mark.flux_edition", "# ")
    run(test, "--flux-edition", "current").assert_outcomes(passed=3)


def test_property_of_the_user_is_known_where_it_is_played(run: Run) -> None:
    result = run("""
        import pytest
        from flux_trio.lab import over_trace

        @over_trace("calm")
        def calm(trace):
            return "never"

        @pytest.mark.flux_breaks("calm")
        def test_named(world, instance):
            world.play(calm)

        @pytest.mark.flux_breaks("clam")
        def test_misspelled(world):
            world.play(calm)

        @pytest.mark.flux_breaks("calm")
        def test_not_played(world):
            world.play()
        """)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*PropertyBroken: seed 0: calm*", "*got clam (did you mean calm?)"]
    )
    result.stdout.fnmatch_lines(["*ValueError: *got calm*"])


def test_harness_refuses_an_unknown_clause() -> None:
    with pytest.raises(ValueError, match=r"got 27\.nonsense\.4"):
        InstanceHarness(breaking=["27.nonsense.4"])


COUNTING = """
    import pytest
    from pathlib import Path
    from flux_trio import jobtap

    class Count(jobtap.Plugin):
        n = 0

        @jobtap.on("job.new")
        def new(self, job):
            self.n += 1

    @pytest.mark.flux_instance(plugins=[{source}])
    @pytest.mark.flux_seeds(3)
    def test_new(instance):
        instance.submit()
        assert instance.plugins[0].n == 1
    """


@pytest.mark.parametrize("source", ["Count", "lambda: Count()", '"count.py"', 'Path("count.py")'])
def test_each_instance_has_a_plugin_of_its_own(
    pytester: pytest.Pytester, run: Run, source: str
) -> None:
    pytester.makepyfile(count=dedent(COUNTING).partition("@pytest.mark")[0])
    result = run(COUNTING.format(source=source))
    result.assert_outcomes(passed=3)


def test_object_that_instances_would_share_is_refused(run: Run) -> None:
    result = run(COUNTING.format(source="Count()"))
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        ["flux_instance: expected plugins as classes, *, got the object <*Count object at *"]
    )


@pytest.mark.parametrize(("given", "shown"), [('confg=""', "confg"), ('"x"', "'x'")])
def test_unknown_option_of_an_instance_is_refused(run: Run, given: str, shown: str) -> None:
    result = run(f"""
        import pytest

        @pytest.mark.flux_instance({given})
        def test_wrong(instance):
            pass
        """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"flux_instance: expected the options config, inventory, plugins, users, got {shown}"]
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "flux_breaks(['27.alloc.4'])",
            "flux_breaks: *clauses or properties, got [[]'27.alloc.4'[]]",
        ),
        ("flux_breaks(3)", "flux_breaks: expected names of clauses or properties, got 3"),
        (
            "flux_instance(config={})",
            "flux_instance: config: expected a *Config or its text*, got {}",
        ),
        ("flux_instance(inventory='x')", "flux_instance: inventory: *ResourceSet, got 'x'"),
        ("flux_instance(plugins='a.py')", "flux_instance: plugins: expected a list, got 'a.py'"),
        ("flux_instance(plugins=3)", "flux_instance: plugins: expected a list, got 3"),
        ("flux_instance(users={1: 'alice'})", "flux_instance: users: *by userid*got {1: 'alice'}"),
        ("flux_instance(users={1: ('a', 'b')})", "flux_instance: users: *got {1: ('a', 'b')}"),
    ],
)
def test_wrong_type_in_a_marker_is_said_without_a_traceback(
    run: Run, given: str, said: str
) -> None:
    result = run(f"""
        import pytest

        @pytest.mark.{given}
        def test_wrong(instance):
            pass
        """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


def test_harnesses_refuse_options_of_a_wrong_type() -> None:
    for harness in (InstanceHarness, PluginHarness):
        with pytest.raises(TypeError, match=r"users: expected names and groups by userid, such as"):
            harness(users={1001: "alice"})
        with pytest.raises(TypeError, match=r"config: expected a .*, got None"):
            harness(config=None)


def test_lists_of_a_world_are_set_from_any_collection() -> None:
    world = WorldHarness()
    world.jobs = (JobPlan(), JobPlan())
    assert world.submit() == 2
    assert len(world.plan.jobs) == 3
    world.faults = ()
    world.faults.append(Crash("sched", 1))
    assert world.plan.faults == (Crash("sched", 1),)
    with pytest.raises(TypeError, match=r"world\.actions: expected a collection, got 3"):
        world.actions = 3


def test_function_that_is_no_property_is_refused() -> None:
    def calm(_trace: object) -> str:
        return ""

    with pytest.raises(TypeError, match=r"which flux_trio\.lab\.over_trace makes .* got <func"):
        WorldHarness().play(calm)


@pytest.mark.parametrize("name", ["stored", "plugin", "27.alloc.4"])
def test_property_with_a_name_of_ours_is_refused(name: str) -> None:
    @over_trace(name)
    def mine(_trace: object) -> str:
        return ""

    with pytest.raises(ValueError, match=f"the name {name} is that of a property of flux-trio"):
        WorldHarness().play(mine)


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (3, TypeError, r"expected plugins, their classes, .*, got 3$"),
        (int, PluginError, r"expected a plugin from <class 'int'>, got 0$"),
        ("none.py", PluginError, r"no plugin none\.py: there is no such file"),
    ],
)
def test_what_makes_no_plugin_is_refused(source: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        InstanceHarness(plugins=[source])  # type: ignore[list-item]
    with pytest.raises(error, match=text):
        PluginHarness(source)  # type: ignore[arg-type]


NSEEDS = "expected flux_seeds(n) with a number of seeds n from 1, got"
DEPTH = "flux_depth: expected one of cores, stack, got"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("flux_seeds('x')", NSEEDS),
        ("flux_seeds(0)", NSEEDS),
        ("flux_seeds()", NSEEDS),
        ("flux_seeds(True)", NSEEDS),
        ("flux_depth()", DEPTH),
        ("flux_depth('core')", DEPTH),
        ("flux_edition('newest')", "flux_edition: expected one of classic, current, got"),
    ],
)
def test_marker_is_wrong_in_one_test_only(run: Run, given: str, said: str) -> None:
    result = run(f"""
        import pytest

        @pytest.mark.{given}
        def test_wrong(world):
            world.play()

        def test_right(world):
            world.play()
        """)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"{said} {given}"])


def test_seeds_of_a_test_without_a_seed_are_refused(run: Run) -> None:
    result = run("""
        import pytest

        @pytest.mark.flux_seeds(3)
        def test_wrong():
            pass

        @pytest.mark.flux_seeds(3)
        class TestSome:
            def test_without(self):
                pass

            def test_with(self, flux_seed):
                pass
        """)
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["flux_seeds: expected a test whose arguments use a seed (*"])


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [("--flux-seeds", "0", 1), ("--flux-seeds", "x", 1), ("--flux-seed", "-1", 0)],
)
def test_option_says_which_numbers_it_takes(run: Run, option: str, value: str, least: int) -> None:
    result = run("def test_seed(flux_seed): pass", f"{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option}: expected a number from {least}, got '{value}'"])


def test_grant_takes_numbers_of_cores() -> None:
    with InstanceHarness() as instance:
        scheduler = PlayedScheduler(instance)
        job = instance.submit(ntasks=2)
        with pytest.raises(ValueError, match=r"number of cores by rank, such as {0: 2}, got {0:"):
            scheduler.grant(job, {0: [99]})  # type: ignore[dict-item]
        for cores in ([0], {}, {0: -1}, {-1: 1}, {"0": 1}, {0: True}, {0: 10**9}):
            with pytest.raises(ValueError, match="number of cores by rank"):
                scheduler.grant(job, cores)  # type: ignore[arg-type]
        scheduler.grant(job, {0: 2})
        instance.wait(job)


def test_plugins_of_a_world_are_a_list_of_paths() -> None:
    with pytest.raises(TypeError, match=r"expected a list of paths, got 'mine\.py'"):
        WorldHarness().configure(plugins="mine.py")
    with pytest.raises(TypeError, match="nodes"):
        WorldHarness().configure(nodes=3)


def test_drawn_plan_keeps_the_plugins() -> None:
    world = WorldHarness(3, depth="stack")
    world.configure(plugins=[Path("mine.py")], store="sqlite")
    plan = world.draw()
    assert (plan.depth, plan.store, plan.plugins) == ("stack", "sqlite", ("mine.py",))
    assert plan.jobs


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugin_of_a_world_that_is_not_there_is_named(depth: Depth) -> None:
    world = WorldHarness(depth=depth)
    world.configure(plugins=["none.py"])
    with pytest.raises(PluginError, match=r"no plugin none\.py: there is no such file"):
        world.play()


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plugin_of_a_world_that_fails_when_it_is_loaded_is_named(
    tmp_path: Path, depth: Depth
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "from flux_trio import jobtap\n"
        "class Bad(jobtap.Plugin):\n"
        "    def loaded(self):\n"
        "        raise KeyError('nokey')\n"
    )
    world = WorldHarness(depth=depth)
    world.configure(plugins=[file])
    with pytest.raises(PluginError, match="plugin bad failed when it was loaded: KeyError"):
        world.play()


def test_depth_that_takes_an_async_plugin_is_named(tmp_path: Path) -> None:
    file = tmp_path / "waiting.py"
    file.write_text(
        "from flux_trio import jobtap\n"
        "class Waiting(jobtap.Plugin):\n"
        "    @jobtap.on('job.validate')\n"
        "    async def check(self, job):\n"
        "        pass\n"
    )
    world = WorldHarness()
    world.configure(plugins=[file])
    world.submit()
    with pytest.raises(PluginError, match=r'depth stack plugins .*flux_depth\("stack"\) or World'):
        world.play()
    world.configure(depth="stack")
    world.play()


def test_harnesses_take_a_jobspec_as_it_is() -> None:
    jobspec = Jobspec.from_command(["true"], attributes={"system.exec.test.run_duration": 2.0})
    with InstanceHarness() as instance:
        job = instance.submit(jobspec)
        instance.wait(job)
        assert job.events[-1].timestamp == job.events[0].timestamp + 2.0
        instance.wait(instance.submit(jobspec.to_json()))
    with PluginHarness() as harness:
        harness.submit(jobspec).run()
