"""A plugin that fails in the harness fails the test, and the failure names its own place."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio

from flux_trio import jobtap
from flux_trio.jobtap import HandlerFailed, State
from flux_trio.testing import PluginHarness, Rejected
from tests.support.user_tests import Run

pytest_plugins = ["pytester"]


def plugin_with(decorator: Callable[[Any], Any], function: Callable[..., Any]) -> jobtap.Plugin:
    made: jobtap.Plugin = type(
        "Made", (jobtap.Plugin,), {"name": "a", "handle": staticmethod(decorator(function))}
    )()
    return made


def helper() -> None:
    raise KeyError("bank")


def line_of(function: Callable[..., Any], text: str) -> int:
    """Return the number of the line of `function` that has `text`."""
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("decorator", "hook"),
    [
        (jobtap.on("job.validate"), "job.validate"),
        (jobtap.on("job.state.priority"), "job.state.priority"),
        (jobtap.enter(State.SCHED), "job.state.sched"),
        (jobtap.leave(State.DEPEND), "job.state.priority"),
    ],
)
def test_the_call_that_makes_a_hook_raise_raises_its_error(
    decorator: Callable[[Any], Any], hook: str
) -> None:
    def raises(_job: jobtap.Job) -> None:
        helper()

    with (
        PluginHarness(plugin_with(decorator, raises)) as harness,
        pytest.raises(KeyError, match="bank") as caught,
    ):
        harness.submit()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["raises", "helper"]
    (note,) = caught.value.__notes__
    assert note.startswith(f"plugin a failed in {hook} for job ƒ")
    assert note.endswith(f": KeyError: 'bank' ({__file__}:{line_of(helper, 'raise')})")


def test_error_names_the_line_of_the_plugin_that_called_into_a_library() -> None:
    def calls_out(job: jobtap.Job) -> None:
        job.epilog_start("e")  # raises in flux_trio

    def decodes(_job: jobtap.Job) -> None:
        trio.run(trio.sleep, "x")

    for function, text in ((calls_out, "epilog_start"), (decodes, "trio.run")):
        plugin = plugin_with(jobtap.on("job.state.sched"), function)
        with PluginHarness(plugin, may_fail=True) as harness:
            harness.submit()
            place = f"({__file__}:{line_of(function, text)})"
            assert str(harness.plugin_errors[0].__notes__[0]).endswith(place)
            assert any(place in entry for entry in harness.log)


def test_wrong_answer_is_an_error_with_the_line_of_the_handler() -> None:
    def answers(_job: jobtap.Job) -> str:
        return "high"

    with PluginHarness(plugin_with(jobtap.on("job.state.priority"), answers)) as harness:
        with pytest.raises(HandlerFailed) as caught:
            harness.submit()
        line = answers.__code__.co_firstlineno
        assert str(caught.value).endswith(
            "expected a priority from 0 to 4294967295 or UNAVAILABLE, got 'high' "
            f"({__file__}:{line})"
        )


def test_missed_deadline_is_an_error_of_the_call_that_lets_the_time_pass() -> None:
    async def sleeps(_job: jobtap.Job) -> None:
        await trio.sleep_forever()

    with PluginHarness(plugin_with(jobtap.on("job.state.priority"), sleeps)) as harness:
        harness.submit()
        harness.advance(59)
        with pytest.raises(HandlerFailed, match=r"no answer in 60 s \(.*test_harness_failures"):
            harness.advance(1)


def test_counter_that_cannot_count_is_named_with_its_function() -> None:
    class Counts(jobtap.Plugin):
        name = "counts"
        banks = jobtap.counter(State.DEPEND, key=lambda job: [])

    with PluginHarness(Counts()) as harness, pytest.raises(TypeError) as caught:
        harness.submit()
    line = line_of(Counts, "jobtap.counter")
    wanted = f"counter banks: expected a key that can be hashed, got [] ({__file__}:{line})"
    assert str(caught.value) == wanted


def test_error_that_would_end_pytest_is_wrapped() -> None:
    def leaves(_job: jobtap.Job) -> None:
        raise SystemExit(3)

    with (
        PluginHarness(plugin_with(jobtap.on("job.new"), leaves)) as harness,
        pytest.raises(HandlerFailed, match=r"plugin a failed in job\.new for job .*SystemExit"),
    ):
        harness.submit()


def test_failure_while_a_plugin_goes_is_raised_at_the_end_of_the_block() -> None:
    class Goes(jobtap.Plugin):
        def removed(self) -> None:
            raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"), PluginHarness(Goes()):
        pass


def test_failure_is_raised_once_and_not_over_an_error_of_the_test() -> None:
    def raises(_job: jobtap.Job) -> None:
        helper()

    plugin = plugin_with(jobtap.on("job.state.depend"), raises)
    with PluginHarness(plugin) as harness:
        with pytest.raises(KeyError):
            harness.submit()
        harness.remove("a")

    class Goes(jobtap.Plugin):
        def removed(self) -> None:
            raise ValueError("gone")

    def fail() -> None:
        with PluginHarness(Goes()):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_plugin_that_may_fail_is_seen_as_its_user_sees_it() -> None:
    def raises(_job: jobtap.Job) -> None:
        helper()

    plugin = plugin_with(jobtap.on("job.validate"), raises)
    with PluginHarness(plugin, may_fail=True) as harness:
        with pytest.raises(Rejected, match=r"plugin a failed in job\.validate"):
            harness.submit()
        assert [type(each) for each in harness.plugin_errors] == [KeyError]


USERS = """
    import pytest
    from flux_trio import jobtap

    class Mine(jobtap.Plugin):
        @jobtap.on("job.state.sched")
        def sched(self, job):
            odd = job.id % 2
            raise ValueError("odd")

    def test_fails(plugin_harness):
        plugin_harness(Mine()).submit()

    @pytest.mark.flux_breaks("plugin")
    def test_on_purpose(plugin_harness):
        assert plugin_harness(Mine()).submit().state.name == "SCHED"
    """


def test_users_test_fails_in_its_body_and_shows_the_plugins_source(run: Run) -> None:
    result = run(USERS)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*plugin_harness(Mine()).submit()*", '>*raise ValueError("odd")*', "E*ValueError: odd*"]
    )
    result.stdout.fnmatch_lines(["*plugin mine failed in job.state.sched for job ƒ*py:8)*"])
