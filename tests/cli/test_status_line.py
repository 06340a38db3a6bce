"""The line that says what an attached job waits for, on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

import pytest

from tests.support.instance import DEADLINE_S, FLUX_TRIO, RunningInstance

pytestmark = pytest.mark.real


def attached(
    instance: RunningInstance, jobid: str, **env: str
) -> tuple[int, subprocess.Popen[bytes]]:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*FLUX_TRIO, "job", "attach", jobid],
        env=instance.env | env,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    return leader, process


def read(terminal: int, until: str = "") -> str:
    """What the terminal shows, until a text or the end."""
    seen = b""
    deadline = time.monotonic() + DEADLINE_S
    while not until or until not in seen.decode(errors="replace"):
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        assert ready, seen
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        seen += piece
    return seen.decode(errors="replace")


def test_a_terminal_shows_what_a_job_waits_for(instance: RunningInstance) -> None:
    jobid = instance.ok("submit", "--urgency=hold", "echo", "out").strip()
    terminal, process = attached(instance, jobid)
    shown = read(terminal, "waiting for resources")
    assert f"flux-trio job attach: {jobid} waiting for resources" in shown
    instance.ok("job", "urgency", jobid, "default")
    rest = read(terminal)
    assert re.search(r"\r\x1b\[Kout\r?\n", rest)
    assert process.wait(DEADLINE_S) == 0
    os.close(terminal)


def test_whoever_does_not_want_it_has_no_line(instance: RunningInstance) -> None:
    jobid = instance.ok("submit", "echo", "out").strip()
    terminal, process = attached(instance, jobid, FLUX_ATTACH_NONINTERACTIVE="1")
    assert read(terminal).splitlines() == ["out"]
    assert process.wait(DEADLINE_S) == 0
    os.close(terminal)
