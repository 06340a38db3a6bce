"""Locales that are not UTF-8, names and words that are not, and a current directory that is gone.

The locale C without Python's UTF-8 mode has the encoding ASCII, as any machine can have it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.instance import DEADLINE_S, FLUX_TRIO, RunningInstance, environment

NOT_UTF8 = "caf\udce9"  # Python's spelling of the bytes `caf\xe9`, which are Latin-1
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run `flux-trio args...` to its end; its output as it came."""
    return subprocess.run(
        [*FLUX_TRIO, *args],
        env=environment(**env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.real
def test_jobs_run_in_a_locale_that_is_not_utf_8_and_get_the_bytes_of_the_user(
    tmp_path: Path,
) -> None:
    script = "echo $FLUX_JOB_ID {{id}} $0 $WHO; pwd"
    flux = " ".join(FLUX_TRIO)
    command = f"""mkdir $0 && cd $0 && {flux} run --env=WHO=$0 sh -c '{script}' $0"""
    done = run("start", "sh", "-c", command, "café", cwd=tmp_path, **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    jobid, tag, *rest = done.stdout.split()
    assert (jobid[:1], tag) == (b"f", jobid)
    assert rest == [name := "café".encode(), name, bytes(tmp_path / "café")]


@pytest.mark.parametrize(
    ("env", "first"),
    [({}, "ƒ"), ({"FLUX_F58_FORCE_ASCII": "1"}, "f"), ({"FLUX_F58_FORCE_ASCII": ""}, "f")],
)
def test_variable_makes_ids_ascii_for_commands_and_for_jobs(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], first: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    jobid = instance.submitted("sh", "-c", "echo $FLUX_JOB_ID {{id}} {{id.f58}}")
    assert jobid[0] == first
    assert instance.ok("job", "attach", jobid).split() == [jobid] * 3
    assert instance.ok("jobs", "-ano", "{id} {id.f58}", jobid).split() == [jobid] * 2
    assert instance.ok("job", "id", "--to=f58", jobid).strip() == jobid


@pytest.mark.real
@pytest.mark.parametrize(
    ("locale", "shown"),
    [
        ({"LC_ALL": "C"}, "fH"),
        ({"LC_ALL": "POSIX"}, "fH"),
        (ASCII, "fH"),
        ({"LC_ALL": "C.UTF-8"}, "ƒH"),
    ],
)
def test_ids_are_ascii_in_a_locale_without_the_florin(locale: dict[str, str], shown: str) -> None:
    assert run("job", "id", "--to=f58", "0x10", **locale).stdout == f"{shown}\n".encode()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["run", "echo", NOT_UTF8], "argument 1 of the command: "),
        (["submit", NOT_UTF8], "argument 0 of the command: "),
        (["bulksubmit", "{}", ":::", NOT_UTF8], "argument 0 of the command: "),
        (["submit", "--output", NOT_UTF8, "true"], "--output: "),
        (["submit", "--error", NOT_UTF8, "true"], "--error: "),
        (["submit", "--cwd", NOT_UTF8, "true"], "--cwd: "),
        (["submit", "--job-name", NOT_UTF8, "true"], "--job-name: "),
        (["submit", "--env", f"A={NOT_UTF8}", "true"], "--env: "),
        (["submit", "--requires", NOT_UTF8, "true"], "--requires: "),
        (["submit", "--setattr", f"a={NOT_UTF8}", "true"], "--setattr: "),
        (["submit", "--queue", NOT_UTF8, "true"], "--queue: "),
        (["queue", "status", NOT_UTF8], "payload.name: "),
        (["resource", "drain", "0", NOT_UTF8], "payload.reason: "),
        (["cancel", "-m", NOT_UTF8, "f1"], "payload.note: "),
        (["jobtap", "load", f"/{NOT_UTF8}.py"], "payload.load: "),
        (["module", "reload", NOT_UTF8], "payload.name: "),
        (["backup", f"/{NOT_UTF8}"], "payload.directory: "),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else given,
)
def test_what_is_not_utf_8_is_refused_by_its_name_and_nothing_is_sent(
    instance: RunningInstance, words: list[str], what: str
) -> None:
    before = instance.ok("jobs", "-Ano", "{id}")
    result = instance.invoke(*words)
    assert result.exit_code == 1
    assert f"{what}expected text in UTF-8, got '" in result.stderr
    assert r"caf\xe9" in result.stderr
    assert instance.ok("jobs", "-Ano", "{id}") == before


def test_current_directory_that_is_not_utf_8_is_refused_unless_another_is_named(
    instance: RunningInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / NOT_UTF8
    place.mkdir()
    monkeypatch.chdir(place)
    result = instance.invoke("run", "pwd")
    assert result.exit_code == 1
    assert "ERROR: the current directory: expected text in UTF-8, got '/" in result.stderr
    assert instance.ok("run", "--cwd", "/", "pwd") == "/\n"


@pytest.mark.parametrize("named", ["option", "variable", "TMPDIR"])
def test_state_directory_that_is_not_utf_8_is_refused_and_left_alone(
    tmp_path: Path, named: str
) -> None:
    place = tmp_path / NOT_UTF8
    directory, words = str(place / "state"), ["true"]
    env = {"FLUX_TRIO_STATEDIR": directory}
    if named == "option":
        words, env = [f"--statedir={directory}", "true"], {}
    elif named == "TMPDIR":
        place.mkdir()
        env = {"TMPDIR": str(place)}
    done = run("start", *words, **env)
    assert done.returncode == 1
    assert done.stderr.startswith(b"flux-trio start: ERROR: /")
    assert rb"caf\xe9/" in done.stderr
    assert b"expected a state directory whose path is UTF-8" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not place.exists() or not list(place.iterdir())


@pytest.mark.real
def test_directory_that_is_gone_is_named_where_it_is_needed(tmp_path: Path) -> None:
    flux = " ".join(FLUX_TRIO)
    gone = "mkdir gone && cd gone && rmdir ../gone"
    done = run("start", "sh", "-c", f"{gone}; {flux} run --cwd=/ pwd; {flux} submit true")
    assert done.stdout == b"/\n"
    assert done.stderr == b"flux-trio: ERROR: the current directory is gone: change to another\n"
    assert done.returncode == 1
