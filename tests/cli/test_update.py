"""`flux-trio update` against a real instance."""

from __future__ import annotations

import json

import pytest

from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def pretender(instance: RunningInstance, seconds: float, *options: str) -> str:
    setattr_ = f"--setattr=exec.test.run_duration={seconds}"
    return instance.ok("submit", *options, setattr_, "true").strip()


def event(instance: RunningInstance, jobid: str, name: str) -> dict[str, object]:
    lines = instance.ok("job", "eventlog", "-f", "json", jobid).splitlines()
    (found,) = [each for each in map(json.loads, lines) if each["name"] == name]
    context: dict[str, object] = found["context"]
    return context


def test_running_job_is_shortened(instance: RunningInstance) -> None:
    jobid = pretender(instance, 600, "-t", "5m")
    instance.ok("job", "wait-event", "-q", jobid, "start")
    instance.ok("update", jobid, "duration=0.1s")
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert event(instance, jobid, "jobspec-update") == {"attributes.system.duration": 0.1}
    assert event(instance, jobid, "exception")["type"] == "timeout"


def test_duration_may_be_changed_by_an_amount(instance: RunningInstance) -> None:
    jobid = pretender(instance, 600, "-t", "5m")
    instance.ok("job", "wait-event", "-q", jobid, "start")
    instance.ok("update", jobid, "duration=+60")
    assert event(instance, jobid, "jobspec-update") == {"attributes.system.duration": 360.0}
    instance.ok("cancel", jobid)
    instance.ok("job", "wait-event", "-q", jobid, "clean")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["duration"], "duration: expected KEY=VALUE, such as duration=1h"),
        (["duration=soon"], "expected a duration"),
        (["duration=-10h"], "expected more than 0"),
        (["queue=debug"], "update of queue is not supported"),
    ],
)
def test_what_cannot_be_is_refused(instance: RunningInstance, words: list[str], text: str) -> None:
    jobid = pretender(instance, 600, "-t", "5m")
    done = instance.invoke("update", jobid, *words)
    assert done.exit_code == 1
    assert text in done.stderr
    instance.ok("cancel", jobid)
    instance.ok("job", "wait-event", "-q", jobid, "clean")
