"""Commands against a real instance: what they print, where, and how they exit."""

from __future__ import annotations

import json
import os
import re
import select
import signal
from pathlib import Path

import pytest

from flux_trio.cli.connection.jobid_param import active_jobids
from flux_trio.cli.terminal.shown_values import user_name
from tests.support.instance import DEADLINE_S, RunningInstance, until

pytestmark = pytest.mark.real


# submit and run


def test_submit_prints_the_id(instance: RunningInstance) -> None:
    done = instance.call("submit", "--job-name=printed", "true")
    assert re.fullmatch(r"ƒ[1-9A-HJ-NP-Za-km-z]+\n", done.stdout)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_that_can_never_run_ends_by_an_exception(instance: RunningInstance) -> None:
    done = instance.invoke("run", "-N", "3", "true")
    assert done.exit_code == 1
    assert re.match(r"\d+\.\d{3}s: job\.exception ƒ\w+ type=alloc severity=0 ", done.stderr)


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        ("true", 0, "", ""),
        ("echo out; echo err >&2", 0, "out\n", "err\n"),
        ("exit 3", 3, "", "flux-trio run: task(s) exited with exit code 3\n"),
        ("kill -TERM $$", 143, "", "flux-trio run: task(s) Terminated\n"),
        ("printf 'no newline'", 0, "no newline", ""),
        ("printf 'ƒ\\377' | od -An -tx1", 0, " c6 92 ff\n", ""),
    ],
)
def test_run_is_like_running_the_command_here(
    instance: RunningInstance, command: str, code: int, stdout: str, stderr: str
) -> None:
    done = instance.invoke("run", "sh", "-c", command)
    assert (done.exit_code, done.stdout, done.stderr) == (code, stdout, stderr)


def test_run_keeps_bytes_and_streams_apart(instance: RunningInstance) -> None:
    done = instance.invoke("run", "sh", "-c", r"printf 'a\377b'; printf 'c\376' >&2")
    assert (done.stdout_bytes, done.stderr_bytes) == (b"a\xffb", b"c\xfe")


def test_run_shows_the_output_of_all_tasks(instance: RunningInstance) -> None:
    assert instance.ok("run", "-n", "4", "echo", "x") == "x\n" * 4


def test_run_takes_the_environment_and_directory_along(
    instance: RunningInstance, tmp_path: Path
) -> None:
    told = instance.ok("run", "--cwd", tmp_path, "--env=A=b c", "sh", "-c", 'echo "$A"; pwd')
    assert told == f"b c\n{tmp_path}\n"


def test_a_command_that_is_not_there_ends_with_127(instance: RunningInstance) -> None:
    done = instance.invoke("run", "no-such-command")
    assert done.exit_code == 127
    assert "no-such-command" in done.stderr


def test_two_interrupts_cancel_the_job(instance: RunningInstance) -> None:
    run = instance.popen("run", "sh", "-c", "echo ready; exec sleep 100")
    assert run.stdout is not None
    assert run.stderr is not None
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGINT)
    told = run.stderr.readline()
    assert told == "flux-trio run: one more ctrl-C within 2s to cancel or ctrl-Z to detach\n"
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=DEADLINE_S)
    assert "type=cancel severity=0 interrupted by ctrl-C\n" in stderr
    assert stderr.endswith("flux-trio run: task(s) Terminated\n")
    assert run.returncode == 143


def test_an_interrupt_and_a_stop_leave_the_job(instance: RunningInstance) -> None:
    jobid = instance.submitted("sh", "-c", "echo ready; exec sleep 100")
    attached = instance.popen("job", "attach", jobid)
    assert attached.stdout is not None
    assert attached.stderr is not None
    assert attached.stdout.readline() == "ready\n"
    attached.send_signal(signal.SIGINT)
    attached.stderr.readline()
    attached.send_signal(signal.SIGTSTP)
    _, stderr = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, stderr) == (1, "flux-trio job attach: detaching...\n")
    assert instance.ok("jobs", "-n", "-o", "{state}", jobid) == "RUN\n"
    instance.ok("cancel", jobid)


def test_other_signals_go_to_the_job(instance: RunningInstance) -> None:
    script = "trap 'echo got; exit 4' USR1; echo ready; while :; do sleep 0.01; done"
    run = instance.popen("run", "sh", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGUSR1)
    stdout, _ = run.communicate(timeout=DEADLINE_S)
    assert (run.returncode, stdout) == (4, "got\n")


def test_a_reader_that_leaves_is_no_traceback(instance: RunningInstance) -> None:
    run = instance.popen("run", "sh", "-c", "echo first; while :; do echo more; done")
    assert run.stdout is not None
    assert run.stdout.readline() == "first\n"
    run.stdout.close()
    assert run.stderr is not None
    assert run.stderr.read() == ""
    run.stderr.close()
    assert run.wait(DEADLINE_S) == 1
    instance.ok("cancel", "--all")


# cancel


def test_cancel_ends_a_job_and_says_why(instance: RunningInstance) -> None:
    jobid = instance.simulated(1000)
    assert instance.ok("cancel", "-m", "no longer", jobid) == ""
    instance.over(jobid)
    shown = instance.ok("jobs", "-n", "-o", "{status_abbrev} {inactive_reason}", jobid)
    assert shown == "CA Canceled: no longer\n"


def test_cancel_goes_on_after_a_job_that_cannot_be(instance: RunningInstance) -> None:
    gone, waiting = instance.over(instance.simulated(0.01)), instance.simulated(1000)
    done = instance.invoke("cancel", gone, "f1", waiting)
    assert done.stderr == (
        f"flux-trio cancel: ERROR: {gone}: job is inactive\n"
        "flux-trio cancel: ERROR: ƒ1: unknown job id\n"
    )
    assert (done.exit_code, done.stdout) == (1, "")
    instance.over(waiting)


def test_cancel_all_counts(instance: RunningInstance) -> None:
    instance.cancel_all()
    jobids = [instance.simulated(1000) for _ in range(2)]
    done = instance.invoke("cancel", "--all")
    assert done.stderr == "flux-trio cancel: Canceled 2 jobs (0 errors)\n"
    for jobid in jobids:
        instance.over(jobid)
    again = instance.invoke("cancel", "--user", "all")
    assert (again.exit_code, again.stderr) == (0, "flux-trio cancel: Matched 0 jobs\n")


# jobs


def test_jobs_lists_what_is_active(instance: RunningInstance) -> None:
    instance.cancel_all()
    running = instance.simulated(1000, "-n", "4", "--job-name=all-of-it")
    instance.ok("job", "wait-event", "-q", running, "start")
    pending = instance.simulated(1, "--urgency=hold", "-t", "10")
    header, *rows = instance.ok("jobs").splitlines()
    assert header.split() == ["JOBID", "USER", "NAME", "ST", "NTASKS", "NNODES", "TIME", "INFO"]
    user = user_name(os.getuid())
    assert rows[0].split() == [pending, user, "simulated", "S", "1", "-", "10m", "held"]
    first = rows[1].split()
    assert [*first[:6], first[7]] == [running, user, "all-of-it", "R", "4", "2", "node[0-1]"]
    instance.cancel_all()
    assert instance.ok("jobs", "-n") == ""
    assert {pending, running} <= set(instance.ok("jobs", "-a", "-n", "-o", "{id}").split())


def test_jobs_are_chosen_by_state_result_name_and_number(instance: RunningInstance) -> None:
    done = instance.over(instance.simulated(0.01, "--job-name=chosen"))
    canceled = instance.simulated(1000, "--job-name=chosen", "--urgency=hold")
    instance.ok("cancel", canceled)
    instance.over(canceled)

    def chosen(*args: str) -> list[str]:
        return instance.ok("jobs", "-n", "-o", "{id}", "--name=chosen", *args).split()

    assert chosen() == []
    assert chosen("-a") == [canceled, done]
    assert chosen("-f", "completed") == [done]
    assert chosen("-f", "canceled,failed") == [canceled]
    assert chosen("-f", "inactive", "-c", "1") == [canceled]
    assert chosen("-a", "-u", "nobody") == []
    assert chosen("-a", "-A") == [canceled, done]
    truncated = instance.invoke("jobs", "-a", "-c", "1", "--name=chosen")
    assert truncated.stderr == "warning: output truncated at 1 jobs.\n"


def test_jobs_are_listed_by_id(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    done = instance.invoke("jobs", "-n", "-o", "{id.f58} {status}", "f1", jobid)
    assert (done.exit_code, done.stdout) == (0, f"{jobid} COMPLETED\n")
    assert done.stderr == "flux-trio jobs: ERROR: ƒ1: unknown job id\n"
    assert instance.invoke("jobs", "f1").exit_code == 1
    one = json.loads(instance.ok("jobs", "--json", jobid))
    assert (one["jobid"], one["result"], one["returncode"]) == (jobid, "COMPLETED", 0)
    several = json.loads(instance.ok("jobs", "--json", "-a", "-c", "2"))
    assert several["jobs"][0]["jobid"] == jobid


# job


def test_the_eventlog_is_shown_as_text_or_as_it_is(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01, "--urgency=20"))
    text = instance.ok("job", "eventlog", jobid)
    assert re.match(
        rf"\d+\.\d{{6}} submit userid={os.getuid()} urgency=20 flags=0 version=1\n", text
    )
    assert re.search(r"\n\d+\.\d{6} finish status=0\n", text)
    lines = instance.ok("job", "eventlog", "-f", "json", jobid).splitlines()
    assert [json.loads(line)["name"] for line in lines] == [
        line.split()[1] for line in text.splitlines()
    ]


def test_data_of_a_job_are_shown_by_key(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    assert json.loads(instance.ok("job", "info", jobid, "jobspec"))["version"] == 1
    assert json.loads(instance.ok("job", "info", "--base", jobid, "R"))["version"] == 1
    assert "finish" in instance.ok("job", "info", jobid, "eventlog")
    assert instance.refused("job", "info", jobid, "nosuch") == f"{jobid}: nosuch: key not found"


def test_wait_event_prints_the_event_or_why_not(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    assert re.fullmatch(
        r"\d+\.\d{6} finish status=0\n", instance.ok("job", "wait-event", jobid, "finish")
    )
    assert instance.ok("job", "wait-event", "-m", "status=0", "-q", jobid, "finish") == ""
    never = instance.invoke("job", "wait-event", "-m", "status=1", jobid, "finish")
    assert never.stderr == "flux-trio job wait-event: ERROR: event 'finish' never received\n"
    held = instance.simulated(1, "--urgency=hold")
    timeout = instance.invoke("job", "wait-event", "-t", "10ms", held, "start")
    assert timeout.stderr == (
        "flux-trio job wait-event: ERROR: wait-event timeout on event 'start'\n"
    )
    assert (never.exit_code, timeout.exit_code) == (1, 1)
    instance.ok("cancel", held)


def test_attach_shows_the_output_again(instance: RunningInstance) -> None:
    jobid = instance.over(instance.submitted("sh", "-c", "echo out; echo err >&2; exit 2"))
    done = instance.invoke("job", "attach", jobid)
    assert (done.exit_code, done.stdout) == (2, "out\n")
    assert done.stderr == "err\nflux-trio job attach: task(s) exited with exit code 2\n"


def test_attach_to_a_job_that_never_ran_is_exit_code_1(instance: RunningInstance) -> None:
    jobid = instance.simulated(1, "--urgency=hold")
    instance.ok("cancel", "-m", "why", jobid)
    done = instance.invoke("job", "attach", instance.over(jobid))
    assert re.fullmatch(
        rf"\d+\.\d{{3}}s: job\.exception {jobid} type=cancel severity=0 why\n", done.stderr
    )
    assert (done.exit_code, done.stdout) == (1, "")


@pytest.mark.parametrize(
    "args",
    [("info", "f1", "R"), ("eventlog", "f1"), ("wait-event", "f1", "start"), ("attach", "f1")],
)
def test_a_job_that_is_not_there_is_named(instance: RunningInstance, args: tuple[str, ...]) -> None:
    assert instance.refused("job", *args) == "ƒ1: unknown job id"


# resource


def test_resources_are_free_allocated_and_down(instance: RunningInstance) -> None:
    instance.cancel_all()
    jobid = instance.simulated(1000, "--requires=big")
    instance.ok("job", "wait-event", "-q", jobid, "alloc")
    instance.ok("resource", "drain", "node0", "bad", "disk")
    listed = [line.split() for line in instance.ok("resource", "list").splitlines()]
    assert listed == [
        ["STATE", "PROPERTIES", "NNODES", "NCORES", "NODELIST"],
        ["free", "big", "1", "1", "node1"],
        ["allocated", "big", "1", "1", "node1"],
        ["down", "1", "2", "node0"],
    ]
    header, line = instance.ok("resource", "drain").splitlines()
    assert header.split() == ["TIME", "STATE", "REASON", "NODELIST"]
    assert line.split()[2:] == ["drained", "bad", "disk", "node0"]
    instance.ok("resource", "undrain", "0")
    assert len(instance.ok("resource", "drain").splitlines()) == 1
    instance.ok("cancel", jobid)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("drain", "7"), "idset is out of range: 7 not among 0-1"),
        (("drain", "nosuch"), "invalid targets: invalid hosts: nosuch"),
        (("undrain", "0"), "rank 0 not drained"),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    instance: RunningInstance, args: tuple[str, ...], message: str
) -> None:
    assert instance.refused("resource", *args) == message


# module and token


def test_modules_are_listed_removed_loaded_and_reloaded(instance: RunningInstance) -> None:
    def modules() -> dict[str, list[str]]:
        header, *lines = instance.ok("module", "list").splitlines()
        assert header.split() == ["Module", "Idle", "Status", "Recvq", "Service"]
        assert {line.split()[2] for line in lines} == {"running"}
        return {line.split()[0]: line.split()[4].split(",") for line in lines}

    before = modules()
    assert before["job-list"] == ["job-info", "job-list"]
    instance.ok("module", "reload", "sched")
    instance.ok("module", "remove", "sched")
    assert "sched" not in modules()
    instance.ok("module", "load", "sched")
    assert modules() == before
    assert instance.ok("run", "echo", "again") == "again\n"


def test_a_scheduler_runs_in_a_process_of_its_own(instance: RunningInstance) -> None:
    "Killed, it is loaded again, and what waited for it runs."
    instance.ok("module", "remove", "sched")
    instance.ok("module", "load", "--exec", "sched-fifo")
    assert instance.ok("run", "echo", "there") == "there\n"
    assert json.loads(instance.ok("module", "stats", "sched-fifo"))["policy"] == "fifo"
    instance.ok("module", "kill", "sched-fifo")
    assert "sched" not in instance.ok("module", "list")
    waiting = instance.submitted("true")
    instance.ok("module", "load", "sched")
    instance.over(waiting)
    assert json.loads(instance.ok("module", "stats", "sched"))["allocated"] == 0


def test_modules_take_arguments(instance: RunningInstance) -> None:
    text = instance.refused("module", "reload", "sched", "mode=some")
    assert text == 'mode: expected unlimited or limited=N, got "some"'
    instance.ok("module", "remove", "sched")
    assert "expected one of log-level, mode" in instance.refused("module", "load", "sched", "x=1")
    instance.ok("module", "load", "sched", "mode=limited=3")
    instance.ok("module", "reload", "sched")
    instance.started("-n4")
    for _ in range(5):
        instance.simulated(1, "-n4")
    outstanding = ("module", "stats", "-p", "sched.outstanding", "job-manager")
    until(lambda: instance.ok(*outstanding) == "3\n")
    instance.ok("module", "reload", "sched", "mode=unlimited")
    until(lambda: instance.ok(*outstanding) == "5\n")
    instance.cancel_all()


def test_module_need_not_be_loaded_if_that_is_what_force_says(instance: RunningInstance) -> None:
    instance.ok("module", "remove", "sched")
    assert instance.invoke("module", "remove", "sched").exit_code == 1
    instance.ok("module", "remove", "-f", "sched")
    instance.ok("module", "reload", "-f", "sched")
    instance.ok("module", "reload", "-f", "sched")
    instance.ok("run", "true")


def test_one_value_of_a_modules_statistics_may_be_asked_for(instance: RunningInstance) -> None:
    assert instance.ok("module", "stats", "-p", "states.sched", "job-manager") == "0\n"
    done = instance.invoke("module", "stats", "-p", "states.nosuch", "job-manager")
    text = "ERROR: states.nosuch: there is no 'nosuch' in the statistics of job-manager\n"
    assert (done.exit_code, done.stdout, done.stderr.endswith(text)) == (1, "", True)


def test_types_of_messages_to_trace_are_known(instance: RunningInstance) -> None:
    assert (
        instance.refused("module", "trace", "-t", "request,nosuch")
        == "--type: expected request, response, event, got 'nosuch'"
    )


def test_trace_prints_messages_as_they_pass(instance: RunningInstance) -> None:
    tracer = instance.popen(
        "module", "trace", "-t", "request", "-T", "sched.alloc", "sched", "job-manager"
    )
    try:
        line = ""
        while " rx > sched.alloc [" not in line:
            instance.ok("run", "true")  # until the tracer has come up
            assert tracer.stdout is not None
            if select.select([tracer.stdout], [], [], 0.2)[0]:
                line = tracer.stdout.readline()
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}       sched rx > sched.alloc \[\d+\]\n", line
        )
        tracer.send_signal(signal.SIGINT)
        _, error = tracer.communicate(timeout=DEADLINE_S)
        assert (tracer.returncode, error) == (-signal.SIGINT, "")  # and so ends a shell's loop
    finally:
        tracer.kill()
        tracer.communicate()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("remove", "nosuch"), "no module nosuch; there are broker, "),
        (("reload", "nosuch"), "no module nosuch; there are broker, "),
        (("load", "sched"), "module sched is already loaded"),
        (
            ("load", "nosuch"),  # in full, however long
            "no module nosuch; there are broker, config, job-exec, job-ingest, job-list, job-m",
        ),
        (("remove", "kvs"), "module kvs is needed as long as the instance runs"),
        (("kill", "kvs"), "module kvs is needed as long as the instance runs"),
        (("kill", "nosuch"), "no module nosuch; there are broker, "),
        (("stats", "nosuch"), "module nosuch is not loaded"),
        (("load", "--exec", "nosuch"), "no module nosuch; there are"),
        (("load", "sched-fifo"), "module sched-fifo: FluxError: service sched is"),
    ],
)
def test_a_module_that_cannot_be_changed_is_refused(
    instance: RunningInstance, args: tuple[str, ...], message: str
) -> None:
    done = instance.invoke("module", *args)
    assert done.stderr.startswith(f"flux-trio module {args[0]}: ERROR: {message}")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)


def test_a_token_makes_a_guest(instance: RunningInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = instance.submitted("--urgency=hold", "true")
    token = instance.ok("token", "--user", "nobody").strip()
    uri = (instance.statedir / "uri").read_text().strip()
    monkeypatch.setattr(
        instance, "env", {"FLUX_TRIO_URI": uri, "FLUX_TRIO_TOKEN": token}, raising=True
    )
    refused = instance.invoke("cancel", mine)
    assert refused.stderr == (
        f"flux-trio cancel: ERROR: {mine}: guests can only raise exceptions on their own jobs\n"
    )
    assert instance.invoke("job", "info", mine, "R").exit_code == 1
    owner_only = "flux-trio token: ERROR: Request requires owner credentials\n"
    assert instance.invoke("token", "--user", "nobody").stderr == owner_only
    assert instance.ok("jobs", "-n", "-u", "nobody") == ""
    revoke = ("token", "--revoke", "--user", "nobody")
    assert instance.invoke(*revoke).stderr == owner_only
    guest = dict(instance.env)
    monkeypatch.undo()
    instance.ok("cancel", mine)
    assert instance.ok(*revoke) == "1 revoked\n"
    assert instance.invoke(*revoke).stderr == "flux-trio token: ERROR: nobody has no token\n"
    monkeypatch.setattr(instance, "env", guest, raising=True)
    unknown = instance.invoke("jobs")
    assert unknown.stderr.startswith("flux-trio jobs: ERROR: ")
    assert "does not know that token" in unknown.stderr
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (1, 1)


def test_you_are_the_user_of_your_token(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, shell completion, watch, cancel, raiseall and killall are about this user's jobs."""
    token = instance.ok("token", "--user", "nobody").strip()
    uri = (instance.statedir / "uri").read_text().strip()
    guest = RunningInstance(instance.statedir, instance.process, "")
    guest.env = {"FLUX_TRIO_URI": uri, "FLUX_TRIO_TOKEN": token}
    owners = instance.submitted("--urgency=hold", "true")
    guests = guest.submitted("--urgency=hold", "true")

    def listed(asking: RunningInstance) -> set[str]:
        with monkeypatch.context() as patch:
            for name, value in asking.env.items():
                patch.setenv(name, value)
            offered = {each.value for each in active_jobids("")}
        lists = asking.ok("jobs", "-n", "-o", "{id.f58}").split()
        recursive = asking.ok("jobs", "-R", "-n", "-o", "{id.f58}").split()
        assert offered == set(lists) == set(recursive)
        return offered

    assert listed(guest) == {guests}
    assert owners in listed(instance)
    assert guests not in listed(instance)
    assert (
        guest.invoke("job", "killall").stderr == "flux-trio job killall: Command matched 0 jobs\n"
    )
    done = guest.invoke("job", "raiseall", "note")
    assert done.stderr.endswith("Command matched 1 jobs (-f to confirm)\n")
    assert guest.invoke("cancel", "--all").stderr.endswith("Canceled 1 job (0 errors)\n")
    watched = guest.invoke("watch", "--since=-1h")
    assert guests in watched.stderr
    assert owners not in watched.output
    assert listed(guest) == set()
    instance.ok("cancel", owners)
