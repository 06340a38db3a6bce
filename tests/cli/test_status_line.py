"""The line that says what an attached job waits for, on a real terminal."""

from __future__ import annotations

import pytest

from tests.support.instance import RunningInstance
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.real


def test_a_terminal_shows_what_a_job_waits_for(instance: RunningInstance) -> None:
    jobid = instance.submitted("--urgency=hold", "echo", "out")
    with on_terminal("job", "attach", jobid, **instance.env) as terminal:
        shown = terminal.until("waiting for resources")
        assert f"flux-trio job attach: {jobid} " in shown
        instance.ok("job", "urgency", jobid, "default")
        rest, code = terminal.until_end()
    assert "\x1b[Kout\n" in rest  # the line is cleared
    assert code == 0


def test_whoever_does_not_want_it_has_no_line(instance: RunningInstance) -> None:
    jobid = instance.submitted("echo", "out")
    env = instance.env | {"FLUX_ATTACH_NONINTERACTIVE": "1"}
    with on_terminal("job", "attach", jobid, **env) as terminal:
        assert terminal.until_end() == ("out\n", 0)
