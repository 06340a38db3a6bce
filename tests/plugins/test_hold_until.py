"""The plugin hold-until: an outside program decides when a job may go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hold_until import HoldUntil

from flux_trio.jobtap import PluginError
from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness, Rejected
from flux_trio.testing.pytest_plugin import StartHarness

INTERVAL_S = 5.0  # below the timeout of one question: a deadline that near is that of a sleep


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A program that answers with the code in its file `code` (75 at first), and keeps count."""
    (tmp_path / "code").write_text("75")
    program = tmp_path / "is-staged"
    program.write_text(
        f'#!/bin/sh\necho "$1" >>{tmp_path}/asked\necho "no $1" >&2\nexit $(cat {tmp_path}/code)\n'
    )
    program.chmod(0o755)
    return program


def start(plugin_harness: StartHarness, *command: Any, **conf: Any) -> PluginHarness:
    plugin = HoldUntil()
    plugin.conf = {"command": [str(each) for each in command]} | conf
    return plugin_harness(plugin)


def submit(harness: PluginHarness) -> HarnessJob:
    entry = {"scheme": "hold-until", "value": "/data/7"}
    return harness.submit(attributes={"system.dependencies": [entry]})


def times_asked(program: Path) -> int:
    log = program.with_name("asked")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_job_goes_on_when_the_program_says_so(plugin_harness: StartHarness, asked: Path) -> None:
    harness = start(plugin_harness, asked, interval=INTERVAL_S)
    job = submit(harness)
    assert job.dependencies == {"hold-until:/data/7"}
    wait_for_answer(harness)
    asked.with_name("code").write_text("0")
    harness.advance(INTERVAL_S)
    harness.wait_until(lambda: job.state == JobState.SCHED)
    assert asked.with_name("asked").read_text() == "/data/7\n/data/7\n"


def wait_for_answer(harness: PluginHarness) -> None:
    """Until the plugin sleeps: then time can pass."""
    harness.wait_until(lambda: harness.has_deadline(INTERVAL_S))


def test_any_other_code_ends_the_job_with_what_was_said(
    plugin_harness: StartHarness, asked: Path
) -> None:
    asked.with_name("code").write_text("3")
    harness = start(plugin_harness, asked)
    job = submit(harness)
    harness.wait_until(lambda: job.state == JobState.INACTIVE)
    assert job.context("exception")["note"] == "hold-until:/data/7: no /data/7"


def test_a_program_that_is_not_there_ends_the_job(plugin_harness: StartHarness) -> None:
    harness = start(plugin_harness, "/nowhere/is-staged")
    job = submit(harness)
    harness.wait_until(lambda: job.state == JobState.INACTIVE)
    note = job.context("exception")["note"]
    assert note == "hold-until:/data/7: /nowhere/is-staged: No such file or directory"


def test_a_canceled_job_is_not_asked_about_again(plugin_harness: StartHarness, asked: Path) -> None:
    harness = start(plugin_harness, asked, interval=INTERVAL_S)
    job = submit(harness)
    wait_for_answer(harness)
    job.cancel()
    harness.advance(3 * INTERVAL_S)
    assert times_asked(asked) == 1


def program(tmp_path: Path, text: str) -> Path:
    made = tmp_path / "program"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made


def test_a_program_that_writes_without_end_is_asked_again(
    plugin_harness: StartHarness, tmp_path: Path
) -> None:
    talks = program(tmp_path, f"echo $$ >>{tmp_path}/pids\nyes | tee /dev/stderr")
    harness = start(plugin_harness, talks, timeout=2.0, interval=INTERVAL_S)
    job = submit(harness)
    harness.wait_until((tmp_path / "pids").exists)
    harness.wait_until(lambda: harness.has_deadline(2.0))
    harness.advance(2.0)
    wait_for_answer(harness)
    assert job.state == JobState.DEPEND
    (pid,) = (tmp_path / "pids").read_text().split()
    harness.wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_what_a_program_leaves_behind_neither_holds_the_job_nor_stays(
    plugin_harness: StartHarness, tmp_path: Path
) -> None:
    leaves = program(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/pid\nexit 0")
    harness = start(plugin_harness, leaves)
    job = submit(harness)
    harness.wait_until(lambda: harness.has_deadline(1.0))
    harness.advance(1.0)
    harness.wait_until(lambda: job.state == JobState.SCHED)
    pid = (tmp_path / "pid").read_text().strip()
    harness.wait_until(lambda: not _runs(pid))


def _runs(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_program_that_is_killed_is_asked_again(
    plugin_harness: StartHarness, tmp_path: Path
) -> None:
    dies = program(tmp_path, "kill -9 $$")
    harness = start(plugin_harness, dies, interval=INTERVAL_S)
    job = submit(harness)
    wait_for_answer(harness)
    assert job.state == JobState.DEPEND


def test_no_more_programs_run_at_a_time_than_said(
    plugin_harness: StartHarness, asked: Path
) -> None:
    waits = asked.with_name("waits")
    waits.write_text(f"#!/bin/sh\necho $1 >>{asked.parent}/asked\nsleep 1000\n")
    waits.chmod(0o755)
    harness = start(plugin_harness, waits, **{"at-once": 2, "timeout": 1000.0})
    jobs = [submit(harness) for _ in range(4)]
    harness.wait_until(lambda: times_asked(asked) == 2)
    for job in reversed(jobs):  # those that wait first: nobody is asked about them then
        job.cancel()
    assert times_asked(asked) == 2


def test_a_value_that_no_program_can_be_given_is_refused(
    plugin_harness: StartHarness, asked: Path
) -> None:
    entry = {"scheme": "hold-until", "value": "a\0b"}
    with pytest.raises(Rejected, match="expected a value without NUL"):
        start(plugin_harness, asked).submit(attributes={"system.dependencies": [entry]})


@pytest.mark.parametrize("conf", [{"timeout": 0}, {"interval": -1}, {"at-once": 0}])
def test_conf_that_makes_no_sense_is_refused(
    plugin_harness: StartHarness, conf: dict[str, Any]
) -> None:
    with pytest.raises(PluginError, match="plugin hold-until: Expected"):
        start(plugin_harness, "true", **conf)


def test_a_command_is_needed(plugin_harness: StartHarness) -> None:
    """Or the value that a user gives would be run as the owner of the instance."""
    with pytest.raises(PluginError, match="plugin hold-until: Expected `array` of length >= 1"):
        start(plugin_harness)
