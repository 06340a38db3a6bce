"""The log on standard error and in the journal."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from flux_trio.broker import LogEntry
from flux_trio.cli.instance.log_output import (
    Journal,
    LogFormat,
    LogOptions,
    is_journal,
    open_log_sink,
)
from flux_trio.cli.instance.start import LEVELS
from flux_trio.cli.terminal.shown_values import local_time
from flux_trio.messages import Level
from tests.support.instance import DEADLINE_S

WORST = LogEntry(1.5, Level.CRIT, "kvs", "no room\nleft")
LEAST = LogEntry(2.25, Level.INFO, "sched", "hello")


def test_options_name_every_level() -> None:
    assert list(LEVELS) == [level.name.lower() for level in Level]


def test_line_of_text_has_time_module_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    with open_log_sink(LogOptions(), {}) as sink:
        sink(LEAST)  # errors only, since it may be a user's terminal
        sink(WORST)
    time = local_time(1.5).astimezone().isoformat(timespec="microseconds")
    assert capsys.readouterr().err == f"{time} flux-trio kvs.crit: no room\\nleft\n"


def test_lines_of_json_as_far_as_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    with open_log_sink(LogOptions(LogFormat.JSON, Level.INFO), {}) as sink:
        for entry in (WORST, LEAST, LogEntry(3.0, Level.DEBUG, "sched", "no")):
            sink(entry)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        {"timestamp": 1.5, "level": "crit", "module": "kvs", "text": "no room\\nleft"},
        {"timestamp": 2.25, "level": "info", "module": "sched", "text": "hello"},
    ]


def journal_of_stderr() -> dict[str, str]:
    status = os.fstat(2)
    return {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}


def test_standard_error_is_the_journal_only_if_its_inode_is() -> None:
    assert is_journal(journal_of_stderr())
    assert not is_journal({"JOURNAL_STREAM": "1:2"})
    assert not is_journal({})


def test_journal_gets_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(path))
        receiving.settimeout(DEADLINE_S)
        with open_log_sink(LogOptions(), journal_of_stderr(), path) as sink:
            sink(LogEntry(0.0, Level.DEBUG, "sched", "no"))
            sink(LEAST)
        assert receiving.recv(1 << 16).decode() == (
            "MESSAGE=sched: hello\nPRIORITY=6\nSYSLOG_IDENTIFIER=flux-trio\n"
            "FLUX_TRIO_MODULE=sched\nFLUX_TRIO_TIMESTAMP=2.250000\n"
        )
        with open_log_sink(LogOptions(LogFormat.JSON), journal_of_stderr(), path) as forced:
            forced(WORST)
    assert json.loads(capsys.readouterr().err)["module"] == "kvs"


def test_journal_that_is_slow_or_gone_delays_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with (
        closing(Journal(path)) as journal,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving,
    ):
        receiving.bind(str(path))
        receiving.settimeout(DEADLINE_S)
        sent = 0
        while not journal._nlost:
            journal.write(LEAST)
            sent += 1
        for _ in range(sent - 1):
            receiving.recv(1 << 16)
        journal.write(LEAST)
        assert "MESSAGE=sched: (1 entries were lost here) hello\n" in receiving.recv(99).decode()
        journal.write(LEAST)
        assert receiving.recv(99).decode().startswith("MESSAGE=sched: hello\n")
        path.unlink()
        journal.write(LEAST)
    assert capsys.readouterr().err.endswith(" flux-trio sched.info: hello\n")
