"""Many jobs at once on a real instance: copies, waiting, watching, logs, progress."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from flux_trio.cli.follow.progress import JobProgress
from tests.support.instance import DEADLINE_S, RunningInstance

pytestmark = pytest.mark.real

SIMULATED = "--setattr=exec.test.run_duration=0.01"


def ids(text: str) -> list[str]:
    return re.findall(r"(?m)^ƒ\S+$", text)


def test_each_copy_is_a_job(instance: RunningInstance) -> None:
    told = instance.ok("submit", "--cc=1-3,7", "--job-name=copy{cc}", SIMULATED, "--wait", "x")
    names = instance.ok("jobs", "-n", "-o", "{name}", *ids(told)).split()
    assert sorted(names) == ["copy1", "copy2", "copy3", "copy7"]


def test_watching_shows_output_and_ends_as_the_worst(instance: RunningInstance) -> None:
    done = instance.invoke(
        "submit", "--watch", "--quiet", "--cc=1-3", "sh", "-c", "echo $FLUX_JOB_CC; exit {cc}"
    )
    assert (done.exit_code, sorted(done.stdout.split())) == (3, ["1", "2", "3"])


def test_waiting_for_an_event_is_not_waiting_for_the_end(instance: RunningInstance) -> None:
    told = instance.ok("submit", "--wait-event=start", "sleep", "100")
    (jobid,) = ids(told)
    assert instance.ok("jobs", "-n", "-o", "{state}", jobid) == "RUN\n"
    instance.ok("cancel", jobid)


def test_lines_have_job_and_task_in_front_when_asked(instance: RunningInstance) -> None:
    told = instance.ok("submit", "--watch", "-l", "-n2", "sh", "-c", "echo $FLUX_TASK_RANK")
    jobid, *lines = told.splitlines()
    assert sorted(lines) == [f"{jobid}: 0: 0", f"{jobid}: 1: 1"]


def test_how_jobs_end_is_told_when_asked(instance: RunningInstance) -> None:
    done = instance.invoke("submit", "-v", "--wait", SIMULATED, "x")
    (jobid,) = ids(done.stdout)
    assert re.fullmatch(rf"{jobid}: \d+\.\d{{3}}s: complete: status=0\n", done.stderr)
    done = instance.invoke("submit", "-vv", "--wait", SIMULATED, "x")
    names = [line.split()[2] for line in done.stderr.splitlines()]
    assert (names[0], names[-1]) == ("submit", "clean")


def test_a_job_that_never_starts_is_exit_code_1(instance: RunningInstance) -> None:
    done = instance.invoke("submit", "--wait", "-N", "3", "true")
    (jobid,) = ids(done.stdout)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{jobid}: job.exception: type=alloc severity=0 ")


def test_it_is_told_why_a_job_that_ran_has_ended(instance: RunningInstance) -> None:
    """The note, too; an exception that is not fatal is not told."""
    done = instance.invoke("submit", "--wait", "-t", "0.2s", "sleep", "30")
    (jobid,) = ids(done.stdout)
    expired = "job.exception: type=timeout severity=0 resource allocation expired"
    assert (done.exit_code, done.stderr) == (142, f"{jobid}: {expired}\n")
    done = instance.invoke("submit", "--watch", "-t", "0.2s", "sleep", "30")
    assert done.stderr == f"{ids(done.stdout)[0]}: {expired}\n"
    (jobid,) = ids(instance.ok("submit", "sleep", "30"))
    instance.ok("job", "wait-event", jobid, "start")
    instance.ok("job", "raise", "-s", "1", "-t", "note", jobid, "nothing bad")
    instance.ok("cancel", "-m", "go away", jobid)
    done = instance.invoke("watch", jobid)
    told = f"{jobid}: job.exception: type=cancel severity=0 go away\n"
    assert (done.exit_code, done.stderr) == (143, told)


def test_what_is_refused_does_not_keep_the_others(instance: RunningInstance) -> None:
    refused = "--dependency=nosuch{cc}:1"
    done = instance.invoke("submit", "--cc=1-2", refused, SIMULATED, "x")
    assert (done.exit_code, done.stdout) == (1, "")
    lines = sorted(done.stderr.splitlines())
    assert lines == [
        f'flux-trio submit: ERROR: cc={cc}: dependency scheme "nosuch{cc}" not supported'
        for cc in (1, 2)
    ]


def test_lines_can_go_to_files(instance: RunningInstance, tmp_path: Path) -> None:
    logs = ["--log", f"{tmp_path}/{{cc}}.out", "--log-stderr", f"{tmp_path}/err"]
    script = "echo o{cc}; echo e{cc} >&2"
    assert instance.ok("submit", "--watch", "--cc=1-2", *logs, "sh", "-c", script) == ""
    jobid, line = (tmp_path / "1.out").read_text().split()
    assert (jobid[0], line) == ("ƒ", "o1")
    assert sorted((tmp_path / "err").read_text().split()) == ["e1", "e2"]
    nowhere = instance.invoke("submit", "--log", tmp_path / "no" / "dir", "true")
    assert (nowhere.exit_code, "no/dir" in nowhere.stderr) == (1, True), nowhere.stderr


def test_progress_is_for_terminals(instance: RunningInstance) -> None:
    done = instance.invoke("submit", "--progress", "--wait", SIMULATED, "x")
    assert done.exit_code == 0
    assert "submit: stdout is not a tty. Ignoring --progress option\n" in done.stderr


def test_progress_counts_jobs_and_shows_lines_above_it() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with JobProgress(2, jps=True, console=console) as progress:
        progress.outputs().stdout(b"one\ntw")
        progress.move("pending", "running")
        progress.move("running", "complete")
        progress.advance()
        progress.move("pending", "failed")
        progress.advance()
    shown = screen.getvalue()
    assert "one\n" in shown
    assert "PD:0 R:0 CD:1 F:1" in shown
    assert "100%" in shown
    assert "job/s" in shown


def test_each_input_is_a_job(instance: RunningInstance) -> None:
    done = instance.invoke(
        "bulksubmit",
        "--watch",
        "--quiet",
        "-v",
        "echo",
        "{0}-{1}",
        ":::",
        "a",
        "b",
        ":::",
        "1",
        "2",
    )
    submits, rest = done.stdout.splitlines()[:4], done.stdout.splitlines()[4:]
    assert submits == [f"bulksubmit: submit echo {each}" for each in ("a-1", "a-2", "b-1", "b-2")]
    assert sorted(rest) == ["a-1", "a-2", "b-1", "b-2"]


def test_many_are_submitted_over_one_connection(instance: RunningInstance) -> None:
    told = instance.ok("submit", "--cc=1-100", "--wait", SIMULATED, "x")
    assert len(set(ids(told))) == 100


# watch


def test_watch_shows_the_output_of_jobs_that_are_over(instance: RunningInstance) -> None:
    (jobid,) = ids(instance.ok("submit", "--wait", "sh", "-c", "echo hello"))
    assert instance.ok("watch", jobid) == "hello\n"
    done = instance.invoke("watch", "-l", jobid)
    assert done.stdout == f"{jobid}: 0: hello\n"


def test_watch_takes_the_jobs_of_a_state(instance: RunningInstance, tmp_path: Path) -> None:
    instance.cancel_all()
    none = instance.invoke("watch", "--active")
    assert (none.exit_code, none.stderr) == (0, "flux-trio watch: No matching jobs\n")
    go_on = tmp_path / "go"
    script = f"echo now; until [ -e {go_on} ]; do sleep 0.01; done; echo later; exit 4"
    instance.ok("submit", "sh", "-c", script)
    with instance.popen("watch", "-a") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "now\n"
        go_on.touch()
        assert watching.communicate(timeout=DEADLINE_S)[0] == "later\n"
    assert watching.returncode == 4
    assert instance.invoke("watch", "-f", "failed", "-c", "1").stdout == "now\nlater\n"
    assert instance.refused("watch") == "At least one job selection option is required"
    jobid = instance.submitted("echo", "seen")
    done = instance.invoke("watch", "f1", jobid)
    assert (done.exit_code, done.stdout) == (1, "seen\n")
    assert done.stderr == "flux-trio watch: ERROR: ƒ1: unknown job id\n"


# dmesg


def test_the_log_is_printed_and_cleared(instance: RunningInstance) -> None:
    instance.ok("dmesg", "-C")
    (cleared,) = instance.ok("dmesg").splitlines()
    assert " log.info: log.clear by owner " in cleared
    instance.invoke("module", "kill", "sched")  # whatever becomes of it, somebody logs it
    told = instance.ok("dmesg").splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d \S+\.\w+: ", told[0])
    human = instance.ok("dmesg", "-H", "-c").splitlines()
    assert re.match(r"\[[A-Z][a-z]{2}\d\d \d\d:\d\d\] \S+\.\w+: ", human[0])
    (cleared,) = instance.ok("dmesg").splitlines()
    assert " log.info: log.clear by owner " in cleared
    instance.invoke("module", "load", "sched")


# sizes


def test_tasks_can_be_counted_by_node_and_core(instance: RunningInstance) -> None:
    count = ["sh", "-c", "echo $FLUX_TRIO_HOST"]
    assert sorted(instance.ok("run", "-N2", "--tasks-per-node=2", *count).split()) == (
        ["node0"] * 2 + ["node1"] * 2
    )
    assert len(instance.ok("run", "--cores=2", "--tasks-per-core=3", *count).split()) == 6
    assert len(instance.ok("run", "-N1", "--tasks-per-core=1", *count).split()) == 2


# files


def test_streams_can_be_files(instance: RunningInstance, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("given\n")
    files = ["--input=in", "--output={{name}}.{{task.id}}.out", "--error=err"]
    script = "cat; echo $FLUX_TASK_RANK; echo bad >&2"
    where = ["--cwd", tmp_path, "--job-name=j"]
    assert instance.ok("run", "-n2", *files, *where, "sh", "-c", script) == ""
    assert [(tmp_path / f"j.{task}.out").read_text() for task in (0, 1)] == [
        "given\n0\n",
        "given\n1\n",
    ]
    assert (tmp_path / "err").read_text() == "bad\nbad\n"


def test_output_and_errors_go_to_one_file_which_is_emptied_once(
    instance: RunningInstance, tmp_path: Path
) -> None:
    out = tmp_path / "x.out"
    out.write_text("of before\n")
    instance.ok("run", "-n2", f"--output={out}", "sh", "-c", "echo o; echo e >&2")
    assert sorted(out.read_text().split()) == ["e", "e", "o", "o"]
    instance.ok("run", f"--output={out}", "-o", "output.mode=append", "echo", "p")
    assert sorted(out.read_text().split()) == ["e", "e", "o", "o", "p"]
    done = instance.invoke("run", "--output=/no/such/dir", "true")
    assert done.exit_code == 126
    assert "/no/such/dir: No such file or directory" in done.stderr
    told = instance.ok("submit", f"--output={tmp_path}/{{{{id}}}}-{{cc}}", "--cc=7", "--wait", "ls")
    assert (tmp_path / f"{told.strip()}-7").exists()
