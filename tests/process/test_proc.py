"""Processes that end while others are looked for."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from flux_trio.lab.exercise.program import _session
from flux_trio.process.local import marked

MARK = "FLUX_TRIO_TEST_OF_PROC=1"


def test_process_that_ends_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says ESRCH to a stat(2) of its files at that moment."""
    stat = os.stat
    name, _, value = MARK.partition("=")
    process = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, env={**os.environ, name: value}, start_new_session=True
    )

    mine = f"/proc/{os.getpid()}/"

    def ending(path: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(mine):
            raise ProcessLookupError(3, "No such process")
        return stat(path, **how)

    with process:
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", ending)
            assert [pid for pid, _ in marked(MARK)] == [process.pid]
            assert len(list(_session(process.pid))) == 1
        assert process.stdin is not None
        process.stdin.close()
