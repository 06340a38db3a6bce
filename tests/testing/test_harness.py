"""The plugin harness: what an author of a plugin sees of jobs, hooks and time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from flux_trio import jobtap
from flux_trio.messages import FluxError
from flux_trio.protocols import JobState
from flux_trio.testing import HookCall, PluginHarness, Rejected, replay_trace
from flux_trio.testing.pytest_plugin import StartHarness
from flux_trio.trace import read_trace

RECORDINGS = Path(__file__).parents[1] / "data" / "messages"


class Teller(jobtap.Plugin):
    """Says what it is told to, and keeps what it saw."""

    name = "teller"

    def __init__(self) -> None:
        self.states: list[str] = []

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if job.jobspec.duration > 60:
            raise jobtap.Reject("too long for me")

    @jobtap.on("job.state.*")
    def state(self, job: jobtap.Job) -> None:
        self.states.append(job.state.name)

    @jobtap.on("job.dependency.nap")
    def nap(self, job: jobtap.Job, dependency: jobtap.Dependency) -> None:
        job.add_dependency("nap")
        self.start_soon(self._wake, job, float(dependency.value))

    async def _wake(self, job: jobtap.Job, seconds: float) -> None:
        await trio.sleep(seconds)
        job.remove_dependency("nap")


def test_a_job_is_taken_through_every_state(plugin_harness: StartHarness) -> None:
    teller = Teller()
    job = plugin_harness(teller).submit()
    assert job.state == JobState.SCHED
    job.run()
    assert job.state == JobState.INACTIVE
    assert job.names[-6:] == ["alloc", "start", "finish", "release", "free", "clean"]
    assert teller.states == ["DEPEND", "PRIORITY", "SCHED", "RUN", "CLEANUP", "INACTIVE"]


def test_each_step_is_the_tests(plugin_harness: StartHarness) -> None:
    job = plugin_harness().submit()
    job.grant()
    assert job.names[-1] == "alloc"
    assert job.is_start_requested
    job.start()
    job.finish(256)
    assert job.context("finish") == {"status": 256}


def test_a_rejection_is_what_the_user_sees(plugin_harness: StartHarness) -> None:
    with pytest.raises(Rejected, match=r"^too long for me$"):
        plugin_harness(Teller()).submit(duration=61)


def test_calls_tell_what_was_asked_and_said(plugin_harness: StartHarness) -> None:
    harness = plugin_harness(Teller())
    job = harness.submit()
    assert harness.calls_of("teller", "job.validate") == [
        HookCall("teller", "job.validate", job.id, None, None)
    ]
    assert [call.result for call in harness.calls_of(".priority-default")] == [16]


def test_time_passes_when_the_test_says(plugin_harness: StartHarness) -> None:
    harness = plugin_harness(Teller())
    began = harness.now
    dependency = {"scheme": "nap", "value": "3600"}
    job = harness.submit(attributes={"system.dependencies": [dependency]})
    assert job.dependencies == {"nap"}
    harness.advance(3599)
    assert job.state == JobState.DEPEND
    harness.advance(1)
    assert job.state == JobState.SCHED
    assert harness.now == began + 3600
    assert job.events[-3].timestamp == began + 3600


def test_users_cancel_hold_and_update(plugin_harness: StartHarness) -> None:
    harness = plugin_harness()
    job = harness.submit()
    job.set_urgency(0)
    assert not job.is_offered
    job.set_urgency(20)
    assert job.is_offered
    assert job.priority == 20
    with pytest.raises(FluxError, match="guests may only update their own jobs"):
        job.update({"attributes.system.duration": 10.0}, userid=1)
    job.cancel("enough")
    assert job.context("exception")["note"] == "enough"
    assert job.state == JobState.INACTIVE


def test_a_running_job_is_canceled(plugin_harness: StartHarness) -> None:
    job = plugin_harness().submit()
    job.grant()
    job.start()
    job.cancel()
    assert job.names[-4:] == ["exception", "release", "free", "clean"]


def test_the_scheduler_may_say_no(plugin_harness: StartHarness) -> None:
    job = plugin_harness().submit()
    job.deny("never")
    assert job.context("exception") == {
        "type": "alloc",
        "severity": 0,
        "note": "never",
        "userid": 1000,
    }


def test_configuration_has_queues(plugin_harness: StartHarness) -> None:
    harness = plugin_harness(config="[queues.debug]")
    with pytest.raises(Rejected):
        harness.submit()
    job = harness.submit(attributes={"system.queue": "debug"})
    assert job.state == JobState.SCHED


def test_a_plugin_that_cannot_be_loaded_is_an_error_of_the_test() -> None:
    class Wrong(jobtap.Plugin):
        @jobtap.on("job.stat.run")
        def run(self, job: jobtap.Job) -> None:
            pass

    with (
        pytest.raises(Exception, match=r"no hook is called job\.stat\.run"),
        PluginHarness(Wrong()),
    ):
        pass
    assert not [each for each in threading.enumerate() if each.name == "plugin harness"]


class TestReplay:
    def records(self, name: str) -> list[object]:
        lines = (RECORDINGS / name).read_text().splitlines(keepends=True)
        return list(read_trace(lines).records)

    def test_jobs_of_a_recording_are_taken_through_again(
        self, plugin_harness: StartHarness
    ) -> None:
        teller = Teller()
        records = self.records("01-single-job-lifecycle.json")
        replayed = replay_trace(plugin_harness(teller), records)  # type: ignore[arg-type]
        assert replayed.differences == []
        assert [job.state for job in replayed.jobs.values()] == [JobState.INACTIVE]
        assert teller.states[-1] == "INACTIVE"

    def test_what_a_plugin_made_impossible_is_told(self, plugin_harness: StartHarness) -> None:
        class Never(jobtap.Plugin):
            @jobtap.on("job.validate")
            def validate(self, job: jobtap.Job) -> None:
                raise jobtap.Reject("never")

        records = self.records("01-single-job-lifecycle.json")
        replayed = replay_trace(plugin_harness(Never()), records)  # type: ignore[arg-type]
        assert replayed.jobs == {}
        (difference,) = replayed.differences
        assert difference.endswith("rejected: never")
