"""`flux-trio update` against a real instance."""

from __future__ import annotations

import json

import pytest

from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def event(instance: RunningInstance, jobid: str, name: str) -> dict[str, object]:
    lines = instance.ok("job", "eventlog", "-f", "json", jobid).splitlines()
    (found,) = [each for each in map(json.loads, lines) if each["name"] == name]
    context: dict[str, object] = found["context"]
    return context


def test_running_job_is_shortened(instance: RunningInstance) -> None:
    jobid = instance.simulated(600, "-t", "5m")
    instance.ok("job", "wait-event", "-q", jobid, "start")
    # The first duration that is not over yet, however long the machine took to come here.
    shorter = (0.1 * 2**n for n in range(12))
    duration = next(
        s for s in shorter if not instance.call("update", jobid, f"duration={s}s").returncode
    )
    instance.over(jobid)
    assert event(instance, jobid, "jobspec-update") == {"attributes.system.duration": duration}
    assert event(instance, jobid, "exception")["type"] == "timeout"


def test_duration_may_be_changed_by_an_amount(instance: RunningInstance) -> None:
    jobid = instance.simulated(600, "-t", "5m")
    instance.ok("job", "wait-event", "-q", jobid, "start")
    instance.ok("update", jobid, "duration=+60")
    assert event(instance, jobid, "jobspec-update") == {"attributes.system.duration": 360.0}
    instance.ok("cancel", jobid)
    instance.over(jobid)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["duration"], "duration: expected KEY=VALUE, such as duration=1h"),
        (["duration=soon"], "expected a duration"),
        (["duration=-10h"], "(5m) cannot be reduced by 10h"),
        (["foo=1"], "update of attributes.system.foo not supported"),
    ],
)
def test_what_cannot_be_is_refused(instance: RunningInstance, words: list[str], text: str) -> None:
    jobid = instance.simulated(600, "-t", "5m")
    done = instance.invoke("update", jobid, *words)
    assert done.exit_code == 1
    assert text in done.stderr
    instance.ok("cancel", jobid)
    instance.over(jobid)


def test_attributes_of_a_pending_job_are_changed(instance: RunningInstance) -> None:
    jobid = instance.simulated(1, "--urgency=hold")
    told = instance.invoke("update", "-v", "--wait", jobid, "duration=1h")
    assert (told.exit_code, told.stderr) == (
        0,
        "flux-trio update: updated attributes.system.duration to 3600.0\n",
    )
    jobspec = json.loads(instance.ok("job", "info", jobid, "jobspec"))
    assert jobspec["attributes"]["system"]["duration"] == 3600
    base = json.loads(instance.ok("job", "info", "--original", jobid, "jobspec"))
    assert base["attributes"]["system"]["duration"] == 0
    instance.ok("update", jobid, "duration=inf")
    unlimited = instance.invoke("update", jobid, "duration=+1h")
    assert unlimited.stderr == (
        f"flux-trio update: ERROR: duration for {jobid} is unlimited, can't update by +1h\n"
    )
    instance.ok("cancel", jobid)


def test_a_dry_run_prints_what_would_be_sent(instance: RunningInstance) -> None:
    words = ["name=n", "a.b=[1]", "attributes.user.x=text", "resources.y=2", "duration=1m"]
    assert json.loads(instance.ok("update", "-n", "f1", *words)) == {
        "attributes.system.job.name": "n",
        "attributes.system.a.b": [1],
        "attributes.user.x": "text",
        "resources.y": 2,
        "attributes.system.duration": 60.0,
    }
