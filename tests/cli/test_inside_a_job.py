"""Commands, and instances, in a job."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flux_trio.shell.pmi import PmiJob
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    TWO_NODES,
    RunningInstance,
    environment,
    flux_trio,
    running_instance,
    until,
)

pytestmark = pytest.mark.real

SELF = f"{sys.executable} -m flux_trio"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """One that gives its jobs all the time that a busy machine needs to end them."""
    config = TWO_NODES.replace('kill-timeout = "0.2s"', 'kill-timeout = "30s"')
    with running_instance(tmp_path_factory.mktemp("outer"), config) as running:
        yield running


class Nested(RunningInstance):
    """An instance in the job `jobid` of another one, which has no command."""

    def __init__(self, outer: RunningInstance, directory: Path, *options: str) -> None:
        self.output, config = directory / "out", directory / "inner.toml"
        config.write_text('[exec]\nkill-timeout = "60s"\n')
        script = f"exec {SELF} start --config {config} >>{self.output}"
        command = [f"--env=TMPDIR={directory}", *options, "sh", "-c", script]
        self.jobid = outer.submitted(*command)
        until(lambda: self.output.exists() and self.output.read_text().endswith("\n"))
        said = self.output.read_text()
        super().__init__(Path(said.rpartition("=")[2].strip()), outer.process, said)


@contextmanager
def nested_in(outer: RunningInstance, directory: Path, *options: str) -> Iterator[Nested]:
    """It ends with its job, by itself, when the block is left."""
    nested = Nested(outer, directory, *options)
    yield nested
    outer.ok("cancel", nested.jobid)
    outer.over(nested.jobid)
    assert '"signal":9' not in outer.ok("job", "eventlog", nested.jobid)
    assert not nested.statedir.exists()


@pytest.fixture(scope="module")
def nested(instance: RunningInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nested]:
    """One in a job of two tasks on the second node."""
    options = ("-n2", "-c1", "--requires=big", "-t", "50m", "--job-name=outer")
    with nested_in(instance, tmp_path_factory.mktemp("inner"), *options) as found:
        yield found


def test_commands_in_a_job_reach_its_instance(instance: RunningInstance) -> None:
    inner = '"$0" -m flux_trio jobs -n -o {id.f58}; echo $FLUX_JOB_ID'
    *listed, own = instance.ok("run", "sh", "-c", inner, sys.executable).splitlines()
    assert own in listed  # beside jobs of other tests


def test_the_command_of_an_instance_in_a_job_has_its_own_names(instance: RunningInstance) -> None:
    """Further tasks of the job are no more instances: their command does not run."""
    script = (
        "echo ${FLUX_JOB_ID-none} ${FLUX_TASK_RANK-none} $FLUX_ENCLOSING_ID $FLUX_TRIO_PARENT_URI;"
        f" {SELF} jobs -n -a; FLUX_TRIO_URI=$FLUX_TRIO_PARENT_URI {SELF} jobs -n --name=names"
        " -o {id.f58}; echo $FLUX_TRIO_STATEDIR"
    )
    done = instance.run("run", "-n2", "--job-name=names", *FLUX_TRIO, "start", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    names, parents_job, statedir = done.stdout.splitlines()
    uri = f"unix://{instance.statedir}/local"
    assert names.split() == ["none", "none", parents_job, uri]
    assert statedir != str(instance.statedir)
    assert not Path(statedir).exists()


def test_a_further_task_goes_on_until_the_first_has_ended() -> None:
    """Else the job would fail of its exit-timeout. A signal is for the instance."""
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    job = {"FLUX_JOB_ID": "f1", "FLUX_TASK_RANK": "1", "FLUX_TRIO_STATEDIR": "/none"}
    env = environment(**job, PMI_FD=str(theirs.fileno()))
    command = [*FLUX_TRIO, "start", "true"]
    with ours, subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()]) as task:
        theirs.close()
        pmi = PmiJob("f1", 2, {})
        for said in ("init", "barrier_in", "finalize"):
            line = ours.recv(4096).decode().rstrip()
            assert line.startswith(f"cmd={said}")
            replies = dict(pmi.answer(1, line))
            if said == "barrier_in":
                task.send_signal(signal.SIGTERM)
                replies = dict(pmi.answer(0, line))
                assert task.poll() is None
            ours.sendall(replies[1].encode())
        assert task.wait(DEADLINE_S) == 0


def test_a_further_task_ends_with_the_instance(instance: RunningInstance) -> None:
    done = instance.run("run", "-n2", "-o", "exit-timeout=none", *FLUX_TRIO, "start", "echo", "it")
    assert (done.returncode, done.stdout) == (0, "it\n"), done.stderr


def test_an_instance_in_a_job_has_what_the_job_has_and_runs_jobs(nested: Nested) -> None:
    """20.rerank.1: its ranks begin at 0, whatever those of the job are.

    Its expiration is R's, and so is that of its jobs.
    """
    listing = ("resource", "list", "-n", "-s", "free", "-o", "{nnodes} {ncores} {nodelist}")
    assert nested.ok(*listing) == "1 2 node1\n"
    tasks = nested.ok("run", "-n2", "sh", "-c", "echo task $FLUX_TASK_RANK on $FLUX_TRIO_RANK")
    assert sorted(tasks.splitlines()) == ["task 0 on 0", "task 1 on 0"]
    times = json.loads(nested.ok("job", "info", nested.ok("job", "last").strip(), "R"))["execution"]
    assert 0 < times["expiration"] - times["starttime"] <= 50 * 60


def test_its_jobs_are_killed_before_it_is(nested: Nested) -> None:
    """By its own kill-timeout, which is half of that of its job at most."""
    assert nested.ok("config", "get", "exec.kill-timeout") == "15.000s\n"


def test_it_ends_later_or_sooner_when_the_job_does(
    instance: RunningInstance, nested: Nested
) -> None:
    """21.events.11: what the job is told after its start counts, and what it was told before."""
    sleeps = nested.submitted("sleep", "1000")
    nested.ok("job", "wait-event", "-q", sleeps, "start")
    instance.ok("update", nested.jobid, "duration=2h")
    nested.ok("job", "wait-event", "-q", sleeps, "resource-update")
    nested.ok("submit", "-t", "90m", "true")
    instance.ok("update", nested.jobid, "duration=30m")
    nested.ok("job", "wait-event", "-q", "-c", "2", sleeps, "resource-update")
    refused = nested.call("submit", "-t", "1h", "true")
    assert "job duration (1h) exceeds remaining instance lifetime" in refused.stderr
    nested.cancel_all()


LISTING = ("jobs", "-R", "-n", "-o", "{name} {status_abbrev}")


def test_jobs_of_instances_in_jobs_are_listed_below_them(
    instance: RunningInstance, nested: Nested
) -> None:
    nested.ok("submit", "--urgency=hold", "--job-name=held", "x")
    script = f"{SELF} submit --urgency=hold --job-name=deep x; sleep 100"
    nested.ok("submit", "--job-name=inner", *FLUX_TRIO, "start", "sh", "-c", script)
    until(lambda: "deep" in instance.ok(*LISTING))
    top, path, *middle, deep_path, deep = filter(None, instance.ok(*LISTING).splitlines())
    jobid = nested.jobid
    assert (top, path, sorted(middle)) == ("outer R", f"{jobid}:", ["held S", "inner R"])
    assert (deep_path.startswith(f"{jobid}/"), deep) == (True, "deep S")

    shallow = instance.ok(*LISTING, "-L1", "--stats", jobid).splitlines()[1:]
    assert shallow[1:3] == ["", f"{jobid}:"]
    assert re.fullmatch(r"1 running, \d+ completed, \d+ failed, 1 pending", shallow[3])
    assert sorted(shallow[4:]) == ["held S", "inner R"]

    told = json.loads(instance.ok("jobs", "--recurse-all", "--json", jobid))
    found = {job["name"]: [each["name"] for each in job.get("jobs", ())] for job in told["jobs"]}
    assert found == {"held": [], "inner": ["deep"]}
    nested.cancel_all()


def test_without_a_command_it_has_a_directory_of_its_own_and_leaves_with_its_jobs(
    instance: RunningInstance, tmp_path: Path
) -> None:
    with nested_in(instance, tmp_path, "--job-name=left") as nested:
        assert nested.statedir.parent == tmp_path
        left = nested.submitted("sleep", "1000")
        nested.ok("job", "wait-event", "-q", left, "start")
    # where it was is nobody any more
    assert instance.ok(*LISTING, "-a", nested.jobid) == "left CA\n"


def test_its_jobs_end_with_it_when_the_time_of_the_job_is_over(
    instance: RunningInstance, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    script = f"{SELF} run sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000'"
    command = [*FLUX_TRIO, "start", "sh", "-c", script]
    jobid = instance.submitted(*command)
    until(pid.exists)
    instance.ok("job", "kill", "-s", "ALRM", jobid)  # as at the end of a time limit
    until(lambda: not Path("/proc", pid.read_text().strip()).exists())
    instance.over(jobid)  # else later tests would list it


def test_an_instance_in_a_job_that_is_not_there_says_so(instance: RunningInstance) -> None:
    env = instance.env | {"FLUX_JOB_ID": "f1"}
    done = flux_trio("start", "true", env=env)
    assert done.returncode == 1
    assert done.stderr == ("flux-trio start: ERROR: resources of job f1: unknown job id\n")
