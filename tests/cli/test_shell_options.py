"""Options of submit that the execution service does: what comes of them in a real instance."""

from __future__ import annotations

import json

import pytest

from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def test_signal_comes_before_the_time_limit(instance: RunningInstance) -> None:
    trap = "trap 'echo warned; exit 3' USR1; while :; do sleep 0.05; done"
    done = instance.call("run", "--signal=@98.5s", "-t100s", "sh", "-c", trap)
    assert (done.returncode, done.stdout) == (3, "warned\n")


@pytest.mark.parametrize(
    ("option", "script", "code", "note"),
    [
        ("exit-timeout=0.1s", "exit 3", 3, "exited (Exit 3) and exit-timeout=0.1s has expired"),
        ("exit-timeout=0.1s", "exit 0", 1, "exited (Exit 0) and exit-timeout=0.1s has expired"),
        ("exit-on-error", "kill -9 $$", 137, "failed (Killed) and exit-on-error is set"),
    ],
)
def test_first_exit_ends_the_job(
    instance: RunningInstance, option: str, script: str, code: int, note: str
) -> None:
    one = f"if [ $FLUX_TASK_RANK = 0 ]; then {script}; else sleep 1000; fi"
    done = instance.call("run", "-n2", "-o", option, "sh", "-c", one)
    assert (done.returncode, done.stdout) == (code, "")
    assert f"severity=0 sh: task rank 0 on host node0 {note}\n" in done.stderr


def test_options_without_an_effect_are_told_and_kept(instance: RunningInstance) -> None:
    words = ["-o", "mpi=none", "-o", "exit-on-error", "-o", "verbose", "true"]
    told = "ignored, since they have no effect here: shell options mpi\n"
    for verb in ("submit", "run"):
        done = instance.call(verb, *words)
        assert (done.returncode, done.stderr) == (0, f"flux-trio {verb}: {told}")
        stored = json.loads(
            instance.ok("job", "info", instance.ok("job", "last").strip(), "jobspec")
        )
        options = stored["attributes"]["system"]["shell"]["options"]
        options.pop("rlimit", None)
        assert options == {"mpi": "none", "exit-on-error": 1, "verbose": 1}
    bulk = instance.call("bulksubmit", *words[:-1], "{}", ":::", "true", "true")
    assert bulk.stderr == f"flux-trio bulksubmit: {told}"
    assert instance.call("run", "-o", "signal=0", "true").stderr == ""


def test_limits_of_the_command_go_along(instance: RunningInstance) -> None:
    script = ["sh", "-c", "ulimit -n"]
    assert instance.call("run", "--rlimit=nofile=77", *script).stdout == "77\n"
    assert instance.call("run", "--rlimit=-*", *script).stdout != "77\n"


def test_tags_are_filled_in_in_command_and_environment(instance: RunningInstance) -> None:
    script = ["sh", "-c", "echo {{task.id}} $B"]
    done = instance.call("run", "-n2", "-l", "--env=B={{size}}-{{node.name}}", *script)
    assert sorted(done.stdout.splitlines()) == ["0: 0 2-node0", "1: 1 2-node0"]


def test_task_map_is_told_and_kept(instance: RunningInstance) -> None:
    command = ["-N2", "-n4", "--taskmap=cyclic", "-l", "printenv", "FLUX_TRIO_HOST"]
    done = instance.call("run", *command)
    assert sorted(done.stdout.splitlines()) == [f"{n}: node{n % 2}" for n in range(4)]
    jobid = instance.ok("job", "last").strip()
    shown = {
        (): "[[0,2,1,2]]\n",
        ("--to=raw",): "0,2;1,3\n",
        ("--to=pmi",): "(vector,(0,2,1),(0,2,1))\n",
        ("--to=multiline",): "0: 0\n1: 1\n2: 0\n3: 1\n",
        ("--to=hosts",): "node0: 0,2\nnode1: 1,3\n",
        ("--taskids=1",): "1,3\n",
        ("--ntasks=1",): "2\n",
        ("--nodeid=2",): "0\n",
        ("--hostname=3",): "node1\n",
    }
    for options, text in shown.items():
        assert instance.ok("job", "taskmap", *options, jobid) == text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["f1"], "ƒ1: unknown job id"),
        (["x"], "expected a job id, or a task map such as [[0,4,2,1]]"),
        (["--to=hosts", "[[0,1,1,1]]"], "can't use --to=hosts without a jobid"),
        (["--nodeid=1", "[[0,1,1,1]]"], "failed to get nodeid for task 1"),
        (["--taskids=1", "[[0,1,1,1]]"], "No taskids for node 1"),
    ],
)
def test_task_map_that_there_is_not(instance: RunningInstance, args: list[str], text: str) -> None:
    done = instance.invoke("job", "taskmap", *args)
    assert (done.exit_code, done.stdout) == (1, "")
    assert text in done.stderr


def test_job_that_never_ran_has_no_task_map(instance: RunningInstance) -> None:
    jobid = instance.submitted("--urgency=hold", "true")
    instance.ok("cancel", jobid)
    done = instance.invoke("job", "taskmap", jobid)
    assert (done.exit_code, "No taskmap found for job" in done.stderr) == (1, True)
