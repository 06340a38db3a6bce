"""A plugin that raises fails the test of each fixture, with its own traceback."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.support.user_tests import Run

pytest_plugins = ["pytester"]

PLUGIN = """
    from flux_trio import jobtap

    class Mine(jobtap.Plugin):
        @jobtap.on("job.state.{state}")
        def handle(self, job):
            return {{}}["nokey"]
    """
WORLD = """
    {mark}
    def test_mine(world):
        world.configure(plugins=["mine.py"])
        world.submit(2)
        world.play()
        assert {{repr(error) for error in world.plugin_errors}} == {{"KeyError('nokey')"}}
    """
INSTANCE = """
    @pytest.mark.flux_instance(plugins=["mine.py"])
    {mark}
    def test_mine(instance):
        instance.submit()
        assert [repr(error) for error in instance.plugin_errors] == ["KeyError('nokey')"]
    """
ON_PURPOSE = '@pytest.mark.flux_breaks("plugin", "inactive")'
OWN_TRACEBACK = ['>*return {}[[]"nokey"[]]', "E*KeyError: 'nokey'"]


@pytest.fixture
def run_beside(pytester: pytest.Pytester, run: Run) -> Run:
    """Runs a test beside the plugin of mine.py, which raises in a state."""

    def run_test(test: str, state: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(mine=dedent(PLUGIN).format(state=state))
        return run("import pytest\n" + dedent(test), *args)

    return run_test


@pytest.mark.parametrize(("state", "depth"), [("priority", "cores"), ("inactive", "stack")])
def test_plugin_that_raises_in_a_world(run_beside: Run, state: str, depth: str) -> None:
    args = ("--flux-depth", depth)
    result = run_beside(WORLD.format(mark=""), state, *args)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            *OWN_TRACEBACK,
            "*PropertyBroken: seed 0: plugin is broken",
            f"*found: *mine failed in job.state.{state}: KeyError: 'nokey' (mine.py:*)",
        ]
    )
    run_beside(WORLD.format(mark=ON_PURPOSE), state, *args).assert_outcomes(passed=1)


def test_plugin_that_raises_in_an_instance(run_beside: Run) -> None:
    result = run_beside(INSTANCE.format(mark=""), "run")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(OWN_TRACEBACK)
    run_beside(INSTANCE.format(mark=ON_PURPOSE), "run").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "call",
    [
        "instance.wait(instance.submit())",
        'instance.request("job-manager.nosuch")',
        "instance.do(trio.sleep, 1.0)",
    ],
)
def test_call_that_fails_raises_the_error_of_the_plugin_first(run_beside: Run, call: str) -> None:
    test = """
    import trio

    @pytest.mark.flux_instance(plugins=["mine.py"])
    {mark}
    def test_mine(instance):
        instance.submit()
        {call}
    """
    result = run_beside(test.format(mark="", call=call), "priority")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f">*{call}".replace("[", "[[]"), *OWN_TRACEBACK])
    on_purpose = test.format(mark='@pytest.mark.flux_breaks("plugin")', call=call)
    result = run_beside(on_purpose, "priority")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("E*KeyError: 'nokey'")


def test_plugin_that_raises_when_the_instance_ends_is_an_error_beside_the_test(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        mine="""
        from flux_trio import jobtap

        class Mine(jobtap.Plugin):
            def removed(self):
                return {}["nokey"]
        """
    )
    result = run(
        """
        import pytest

        @pytest.mark.flux_instance(plugins=["mine.py"])
        def test_mine(instance):
            pass
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(OWN_TRACEBACK)


def test_plugin_that_ends_the_program_fails_the_test(run: Run) -> None:
    result = run(
        """
        import pytest
        from flux_trio import jobtap

        class Mine(jobtap.Plugin):
            @jobtap.on("job.state.run")
            def handle(self, job):
                raise SystemExit(3)

        @pytest.mark.flux_instance(plugins=[Mine])
        def test_mine(instance):
            instance.submit()

        def test_next():
            pass
        """
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*HandlerFailed: plugin mine failed in job.state.run for job *"])


def test_fault_of_a_plugin_is_no_failure(pytester: pytest.Pytester, run: Run) -> None:
    test = """
    from flux_trio.lab import PluginRaises

    def test_mine(world, faults):
        world.configure(plugins=["mine.py"])
        world.submit()
        faults.append(PluginRaises())
        outcome = world.play()
        assert outcome.struck == (faults[0],)
        assert world.plugin_errors == []
    """
    quiet = dedent(PLUGIN).format(state="inactive").replace('return {}["nokey"]', "pass")
    pytester.makepyfile(mine=quiet)
    for depth in ("cores", "stack"):
        run(test, "--flux-depth", depth).assert_outcomes(passed=1)
