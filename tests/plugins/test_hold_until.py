"""The plugin hold-until: an outside program decides when a job may go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hold_until import HoldUntil

from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness
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
