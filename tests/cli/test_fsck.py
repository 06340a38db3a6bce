"""`flux-trio fsck` on the directory of a real instance."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.support.instance import invoked, running_instance

SIMULATED = "[exec]\nsimulate = true\n"

pytestmark = pytest.mark.real


def fsck(*args: str | Path) -> tuple[int, str, str]:
    done: subprocess.CompletedProcess[str] = invoked("fsck", *args)
    return done.returncode, done.stdout, done.stderr


def test_directory_is_checked_damaged_refused_and_repaired(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    with running_instance(tmp_path, SIMULATED) as instance:
        jobid = instance.submitted("true")
        instance.ok("job", "wait-event", jobid, "clean")
        code, out, err = fsck("--statedir", tmp_path)
        assert (code, out) == (2, "")
        assert err == (
            f"flux-trio fsck: ERROR: {file}: cannot be opened: another process is using it\n"
        )
    code, out, err = fsck("--statedir", tmp_path)
    assert (code, err) == (0, "")
    assert out.endswith(
        " 0 changes in the journal, and 0 jobs of the shell host; nothing is damaged\n"
    )

    before = file.read_bytes()
    at = before.index(b'"name":"clean"')
    file.write_bytes(before[:at] + b'"name":"CLEAN"' + before[at + 14 :])
    code, out, err = fsck("--statedir", tmp_path)
    assert (code, err) == (1, "")
    (line,) = out.splitlines()
    assert line.startswith("job.")
    assert ".eventlog: part " in line
    assert line.endswith(" is not what was committed")

    code, out, err = fsck("--statedir", tmp_path, "--repair")
    assert (code, err) == (0, "")
    aside, old = out.splitlines()
    assert aside.startswith(line)
    assert aside.endswith(" is now in job-lost+found")
    assert old == f"{file}-damaged: the original file"
    assert fsck("--statedir", tmp_path)[0] == 0
    with running_instance(tmp_path, SIMULATED) as instance:
        instance.ok("run", "true")


def test_directory_without_a_state_is_told(tmp_path: Path) -> None:
    code, out, err = fsck("--statedir", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"flux-trio fsck: ERROR: {tmp_path / 'state.sqlite'}: no such file\n"


def test_start_shows_what_it_finds_damaged(tmp_path: Path) -> None:
    "On its standard error, as it shows what is logged later."
    with running_instance(tmp_path, SIMULATED) as instance:
        instance.ok("run", "true")
    db = sqlite3.connect(tmp_path / "state.sqlite")
    db.execute("UPDATE account SET parts = parts + 1")
    db.commit()
    db.close()
    with (tmp_path / "errors").open("w+") as errors:
        with running_instance(tmp_path, SIMULATED, stderr=errors):
            pass
        errors.seek(0)
        assert "state.sqlite: the heads of keys are damaged: expected " in errors.read()
