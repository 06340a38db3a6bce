"""The verbs of `flux-trio job` that act on jobs or tell how they ended, on a real instance."""

from __future__ import annotations

import json
import re
import signal

import pytest

from tests.support.instance import DEADLINE_S, RunningInstance

pytestmark = pytest.mark.real


# raise, raiseall


def test_raise_takes_a_note_after_the_ids(instance: RunningInstance) -> None:
    jobids = [instance.started(), instance.started()]
    instance.ok("job", "raise", "-s", "3", "-t", "odd", *jobids, "of", "no", "weight")
    for jobid in jobids:
        event = json.loads(instance.ok("job", "wait-event", "-f", "json", jobid, "exception"))
        assert event["context"] | {"userid": 0} == {
            "type": "odd", "severity": 3, "note": "of no weight", "userid": 0,
        }  # fmt: skip
    instance.ok("job", "raise", jobids[0], "--", jobids[1], "is no target")
    instance.over(jobids[0])
    shown = instance.ok("jobs", "-n", "-o", "{status_abbrev} {exception.note}", *jobids)
    assert shown == f"CA {jobids[1]} is no target\nR of no weight\n"
    instance.ok("job", "raise", "-m", "enough", jobids[1])


def test_raise_goes_on_after_a_job_that_cannot_be(instance: RunningInstance) -> None:
    jobid = instance.started()
    assert instance.refused("job", "raise", "f1", jobid) == "ƒ1: unknown job id"
    instance.over(jobid)


def test_raiseall_counts_until_it_is_forced(instance: RunningInstance) -> None:
    instance.cancel_all()
    jobid = instance.started()
    tried = instance.invoke("job", "raiseall", "-S", "run", "odd", "a", "note")
    assert tried.stderr == "flux-trio job raiseall: Command matched 1 jobs (-f to confirm)\n"
    done = instance.invoke("job", "raiseall", "-f", "odd", "a", "note")
    assert done.stderr == "flux-trio job raiseall: Raised exception on 1 jobs (0 errors)\n"
    event = instance.ok("job", "wait-event", jobid, "exception")
    assert 'type="odd" severity=7 note="a note"' in event
    none = instance.invoke("job", "raiseall", "-S", "sched", "odd")
    assert none.stderr == "flux-trio job raiseall: Command matched 0 jobs\n"
    instance.cancel_all()


# kill, killall


def test_kill_sends_a_signal_to_the_processes(instance: RunningInstance) -> None:
    script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.01; done"
    run = instance.popen("run", "sh", "-c", script)
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    instance.ok("job", "kill", "-s", "USR1", instance.ok("job", "last").strip())
    run.communicate()
    assert run.returncode == 5


def test_kill_says_which_jobs_do_not_run(instance: RunningInstance) -> None:
    held = instance.simulated(1, "--urgency=hold")
    done = instance.invoke("job", "kill", held, "f1")
    assert (done.exit_code, done.stderr) == (
        1,
        f"flux-trio job kill: ERROR: {held}: job is not running\n"
        "flux-trio job kill: ERROR: ƒ1: unknown job id\n",
    )
    instance.ok("cancel", held)


def test_killall_counts_until_it_is_forced(instance: RunningInstance) -> None:
    instance.cancel_all()
    jobid = instance.started()
    tried = instance.invoke("job", "killall")
    assert tried.stderr == "flux-trio job killall: Command matched 1 jobs (-f to confirm)\n"
    done = instance.invoke("job", "killall", "-f", "-s", "KILL")
    assert done.stderr == "flux-trio job killall: Signaled 1 jobs (0 errors)\n"
    assert instance.invoke("job", "status", jobid).exit_code == 137


# urgency, memo


def test_urgency_tells_the_one_of_before(instance: RunningInstance) -> None:
    jobid = instance.simulated(1, "--urgency=hold")
    told = [
        instance.invoke("job", "urgency", "-v", jobid, urgency).stderr for urgency in ("hold", "0")
    ]
    assert told == ["old urgency: job held\n"] * 2
    instance.ok("job", "urgency", jobid, "expedite")
    instance.over(jobid)
    assert instance.refused("job", "urgency", jobid, "16") == f"{jobid}: job is inactive"


def test_a_memo_is_listed(instance: RunningInstance) -> None:
    jobid = instance.started()
    assert instance.ok("job", "memo", jobid, "a.b=1", "text=some words", "a.c=[2]") == ""
    shown = instance.ok("jobs", "-n", "-o", "{user.a.b} {annotations.user.text} {user.a.c}", jobid)
    assert shown == "1 some words [2]\n"
    instance.ok("cancel", jobid)


def test_a_number_that_no_message_can_hold_is_kept_as_text_in_a_memo(
    instance: RunningInstance,
) -> None:
    """As flux does."""
    jobid = instance.started()
    instance.ok(
        "job", "memo", jobid, f"big={1 << 64}", f"list=[{1 << 80}]", f"fits={(1 << 64) - 1}"
    )
    job = json.loads(instance.ok("jobs", "--json", jobid))
    assert job["annotations"]["user"] == {
        "big": f"{1 << 64}",
        "list": f"[{1 << 80}]",
        "fits": (1 << 64) - 1,
    }
    instance.ok("cancel", jobid)


@pytest.mark.parametrize("path", ["", "a..b", "."])
def test_what_is_no_path_of_an_eventlog_is_refused(instance: RunningInstance, path: str) -> None:
    jobid = instance.started()
    said = f"--path: expected names such as guest.exec.eventlog, got {path!r}"
    assert instance.refused("job", "wait-event", "-p", path, jobid, "start") == said
    assert instance.refused("job", "eventlog", "-p", path, jobid) == said
    instance.ok("cancel", jobid)


# wait, status


def test_wait_tells_each_result_once(instance: RunningInstance) -> None:
    good = instance.simulated(0.01, "--flags=waitable")
    bad = instance.simulated(0.01, "--flags=waitable", "-S", "exec.test.wait_status=768")
    assert instance.invoke("job", "wait", good).output == ""
    done = instance.invoke("job", "wait")
    assert (done.exit_code, done.stdout) == (1, f"{bad}\n")
    assert done.stderr == "flux-trio job wait: task(s) exited with exit code 3\n"
    done = instance.invoke("job", "wait", good)
    text = "invalid job id, or job may be inactive and not waitable"
    assert (done.exit_code, done.stderr) == (2, f"flux-trio job wait: {text}\n")
    done = instance.invoke("job", "wait")
    assert (done.exit_code, done.stderr) == (
        2,
        "flux-trio job wait: there are no more waitable jobs\n",
    )


def test_wait_for_all_tells_what_failed(instance: RunningInstance) -> None:
    jobs = [instance.simulated(0.01, "--flags=waitable") for _ in range(2)]
    bad = instance.simulated(1000, "--flags=waitable")
    instance.ok("cancel", "-m", "enough", bad)
    done = instance.invoke("job", "wait", "--all", "-v")
    assert done.exit_code == 1
    assert sorted(done.stderr.splitlines()) == sorted(
        [
            f"{bad}: Fatal exception type=cancel enough",
            *[f"{jobid}: job completed successfully" for jobid in jobs],
        ]
    )
    assert instance.invoke("job", "wait", "-a").exit_code == 0


def test_status_is_the_worst_of_several(instance: RunningInstance) -> None:
    good, three = (
        instance.simulated(0.01),
        instance.simulated(0.01, "-S", "exec.test.wait_status=768"),
    )
    assert instance.invoke("job", "status", good).exit_code == 0
    done = instance.invoke("job", "status", "-vv", good, three)
    assert (done.exit_code, done.stderr) == (
        3,
        f"flux-trio job status: {good}: exited with exit code 0\n"
        f"flux-trio job status: {three}: exited with exit code 3\n",
    )
    held = instance.simulated(1, "--urgency=hold")
    instance.ok("cancel", held)
    done = instance.invoke("job", "status", "-v", "-e", "42", "--json", held)
    assert (done.exit_code, done.stderr) == (
        42,
        f"flux-trio job status: {held}: exception type=cancel\n",
    )
    assert json.loads(done.stdout)["result"] == "CANCELED"
    assert instance.refused("job", "status", "f1") == "ƒ1: unknown job id"


# last, timeleft, stats


def test_last_is_what_was_submitted_last(instance: RunningInstance) -> None:
    jobs = [instance.simulated(0.01) for _ in range(3)]
    assert instance.ok("job", "last") == f"{jobs[2]}\n"
    assert instance.ok("job", "last", "2").split() == [jobs[2], jobs[1]]
    assert instance.ok("job", "last", "[2::-1]").split() == jobs


def test_timeleft_is_that_of_a_job_that_runs(instance: RunningInstance) -> None:
    limited, endless = instance.started("-t", "1h"), instance.started()
    assert 3500 < int(instance.ok("job", "timeleft", limited)) <= 3600
    assert re.fullmatch(r"(59\.\d+m|60m|1h)\n", instance.ok("job", "timeleft", "-H", limited))
    assert instance.ok("job", "timeleft", endless) == "4294967295\n"
    assert instance.ok("job", "timeleft", "-H", endless) == "infinity\n"
    held = instance.simulated(1, "--urgency=hold")
    assert instance.refused("job", "timeleft", held) == "job has not started"
    instance.ok("cancel", held, limited, endless)
    assert instance.ok("job", "timeleft", instance.over(limited)) == "0\n"
    inside = instance.ok(
        "run", "-t", "1h", "sh", "-c", f"{__import__('sys').executable} -m flux_trio job timeleft"
    )
    assert 3500 < int(inside) <= 3600


def test_stats_count_jobs(instance: RunningInstance) -> None:
    instance.cancel_all()
    before = json.loads(instance.ok("job", "stats"))
    instance.started()
    after = json.loads(instance.ok("job", "stats"))
    assert after["job_states"]["run"] == before["job_states"]["run"] + 1
    assert after["job_states"]["total"] == before["job_states"]["total"] + 1
    instance.cancel_all()


# eventlog, wait-event


def test_events_have_times_in_several_forms(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    iso = instance.ok("job", "eventlog", "-T", "iso", jobid).splitlines()[0]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} submit ", iso)
    offsets = instance.ok("job", "eventlog", "-T", "offset", jobid).splitlines()
    assert offsets[0].startswith("0.000000 submit ")
    human = instance.ok("job", "eventlog", "-H", jobid).splitlines()
    assert re.match(r"\[[A-Z][a-z]{2}\d\d \d\d:\d\d\] submit ", human[0])
    assert re.match(r"\[ +\+\d\.\d{6}\] |\[[A-Z][a-z]{2}\d\d \d\d:\d\d\] ", human[1])
    colored = instance.ok("job", "eventlog", "--color=always", jobid)
    assert "\x1b[33msubmit\x1b[0m" in colored


def test_an_eventlog_can_be_followed_to_the_end(instance: RunningInstance) -> None:
    jobid = instance.simulated(0.05)
    followed = instance.ok("job", "eventlog", "-F", jobid)
    assert followed.splitlines()[-1].split()[1] == "clean"
    real = instance.over(instance.submitted("true"))
    exec_log = instance.ok("job", "eventlog", "-p", "exec", real)
    assert exec_log == instance.ok("job", "eventlog", "-p", "guest.exec.eventlog", real)
    assert exec_log.splitlines()[-1].split()[1] == "done"


def test_an_event_may_be_waited_for_several_times(instance: RunningInstance) -> None:
    jobid = instance.started()
    for key in ("a", "b"):
        instance.ok("job", "memo", jobid, f"{key}=1")
    told = instance.ok("job", "wait-event", "-c", "2", "-f", "json", jobid, "memo")
    assert json.loads(told)["context"] == {"b": 1}
    verbose = instance.ok("job", "wait-event", "-v", jobid, "alloc").splitlines()
    assert [line.split()[1] for line in verbose][-1] == "alloc"
    assert len(verbose) > 1
    instance.ok("cancel", jobid)


# attach and run


def test_output_can_have_the_task_in_front(instance: RunningInstance) -> None:
    script = "echo o$FLUX_TASK_RANK; printf e$FLUX_TASK_RANK >&2"
    done = instance.invoke("run", "-l", "-n2", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == ["0: o0", "1: o1"]
    assert sorted(done.stderr.splitlines()) == ["0: e0", "1: e1"]


def test_events_are_told_while_attached(instance: RunningInstance) -> None:
    done = instance.invoke("run", "-vv", "true")
    jobid = instance.ok("job", "last").strip()
    first, second, *_, last = done.stderr.splitlines()
    assert (first, second.split(" ")[:2]) == (f"jobid: {jobid}", ["0.000s:", "job.submit"])
    assert last.split(" ")[1] == "job.clean"
    again = instance.invoke("job", "attach", "-E", "--read-only", jobid)
    assert again.stderr.splitlines()[0].split(" ")[:2] == ["0.000s:", "job.submit"]


def test_attach_may_end_at_an_event(instance: RunningInstance) -> None:
    jobid = instance.started()
    instance.invoke("job", "attach", "-w", "start", jobid)
    assert instance.ok("jobs", "-n", "-o", "{state}", jobid) == "RUN\n"
    instance.ok("cancel", jobid)


@pytest.mark.parametrize("command", ["attach", "run"])
def test_signal_that_a_job_cannot_take_ends_who_follows_it(
    instance: RunningInstance, command: str
) -> None:
    "As timeout(1) sends it: nobody else would end the command."
    if command == "run":
        following = instance.popen("run", "-vv", "--urgency=hold", "true")
    else:
        following = instance.popen("job", "attach", "-E", instance.simulated(1, "--urgency=hold"))
    assert following.stderr is not None
    while "job.priority" not in following.stderr.readline():
        pass
    held = instance.ok("job", "last").strip()
    following.send_signal(signal.SIGTERM)
    _, stderr = following.communicate(timeout=DEADLINE_S)
    said = f"flux-trio {'run' if command == 'run' else 'job attach'}"
    assert (following.returncode, stderr) == (
        128 + signal.SIGTERM,
        f"{said}: ERROR: kill: job {held} is not running\n{said}: detaching...\n",
    )
    assert instance.ok("jobs", "-n", "-o", "{state}", held) == "SCHED\n"
    instance.ok("cancel", held)


# cancel


def test_cancel_by_state_and_without_doing_it(instance: RunningInstance) -> None:
    instance.cancel_all()
    running, held = instance.started(), instance.simulated(1, "--urgency=hold")
    tried = instance.invoke("cancel", "-n", "--states=pending,run")
    assert tried.stderr == "flux-trio cancel: Would cancel 2 jobs\n"
    assert (
        instance.invoke("cancel", "-n", running).stderr == "flux-trio cancel: Would cancel 1 job\n"
    )
    done = instance.invoke("cancel", "-S", "pending")
    assert done.stderr == "flux-trio cancel: Canceled 1 job (0 errors)\n"
    instance.over(held)
    assert instance.ok("jobs", "-n", "-o", "{id}").split() == [running]
    assert instance.invoke("cancel", "-q", "-S", "pending").stderr == ""
    instance.cancel_all()


def test_purge_counts_until_it_is_forced_and_takes_named_jobs(instance: RunningInstance) -> None:
    done = [instance.call("submit", "--wait", "true").stdout.strip() for _ in range(3)]
    active = instance.call("submit", "sleep", "300").stdout.strip()
    assert instance.call("job", "purge", "--num-limit=1").stdout.startswith("use --force to purge ")
    assert "purged 1 inactive jobs" in instance.call("job", "purge", "-f", done[0]).stdout
    refused = instance.call("job", "purge", "-f", active)
    assert (refused.returncode, "cannot purge active job" in refused.stderr) == (1, True)
    assert "id not found" in instance.call("job", "purge", "-f", done[0]).stderr
    assert instance.ok("job", "purge", "-f", "--age-limit=inf").startswith("purged 0 ")
    told = instance.call("job", "purge", "--num-limit=1", "--force").stdout
    assert told.endswith("inactive jobs, 1 remaining\n")
    listed = instance.call("jobs", "-n", "-a", "-o", "{id.f58}").stdout.split()
    assert done[1] not in listed
    assert done[2] in listed
    instance.call("cancel", active)
