"""Commands, and instances, in a job."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    TWO_NODES,
    RunningInstance,
    flux_trio,
    invoked,
    running_instance,
    until,
)

pytestmark = pytest.mark.real

SELF = f"{sys.executable} -m flux_trio"


def test_commands_in_a_job_reach_its_instance(instance: RunningInstance) -> None:
    inner = '"$0" -m flux_trio jobs -n -o {id.f58}; echo $FLUX_JOB_ID'
    listed, own = instance.ok("run", "sh", "-c", inner, sys.executable).splitlines()[-2:]
    assert listed == own


def inside(instance: RunningInstance, script: str, *options: str) -> list[str]:
    """What `script` prints, as the command of an instance that is a job; $F is the command."""
    command = [*FLUX_TRIO, "start", "sh", "-c", f"F='{SELF}'; {script}"]
    done = instance.run("run", *options, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_instance_in_a_job_has_what_the_job_has_and_runs_jobs(instance: RunningInstance) -> None:
    """20.rerank.1: its ranks begin at 0, whatever those of the job are.

    Its expiration is R's, and so is that of its jobs. Its commands are its own.
    """
    script = (
        "echo ${FLUX_JOB_ID-none} ${FLUX_TASK_RANK-none} $FLUX_ENCLOSING_ID $FLUX_TRIO_PARENT_URI;"
        " $F jobs -n -a; FLUX_TRIO_URI=$FLUX_TRIO_PARENT_URI $F jobs -n -o {id.f58};"
        " echo $FLUX_TRIO_STATEDIR;"
        " $F resource list -n -s free -o '{nnodes} {ncores} {nodelist}';"
        " $F run -n2 sh -c 'echo task $FLUX_TASK_RANK on $FLUX_TRIO_RANK';"
        " $F job info $($F job last) R"
    )
    found = inside(instance, script, "-n1", "-c2", "--requires=big", "-t", "60s")
    names, parents_job, statedir, free, *tasks, text = found
    job, task, enclosing, uri = names.split()
    assert (job, task, enclosing) == ("none", "none", parents_job)
    assert uri == f"unix://{instance.statedir}/local"
    assert statedir != str(instance.statedir)
    assert not Path(statedir).exists()
    assert free == "1 2 node1"
    assert sorted(tasks) == ["task 0 on 0", "task 1 on 0"]
    times = json.loads(text)["execution"]
    assert 0 < times["expiration"] - times["starttime"] <= 60


def test_more_tasks_of_the_job_are_no_more_instances(instance: RunningInstance) -> None:
    (free,) = inside(instance, "$F resource list -n -s free -o '{nnodes} {nodelist}'", "-N2")
    assert free == "2 node[0-1]"


def test_it_ends_later_or_sooner_when_the_job_does(instance: RunningInstance) -> None:
    """21.events.11: what the job is told after its start counts, and what it was told before."""
    script = (
        "id=$($F submit sleep 1000); $F job wait-event -q $id start;"
        " FLUX_TRIO_URI=$FLUX_TRIO_PARENT_URI $F update $FLUX_ENCLOSING_ID duration=2h;"
        " $F job wait-event -q $id resource-update; $F submit -t 90m true >/dev/null && echo taken;"
        " FLUX_TRIO_URI=$FLUX_TRIO_PARENT_URI $F update $FLUX_ENCLOSING_ID duration=30m;"
        " $F job wait-event -q -c 2 $id resource-update; $F submit -t 1h true"
    )
    command = [*FLUX_TRIO, "start", "sh", "-c", f"F='{SELF}'; {script}"]
    done = instance.run("run", "-t", "300s", *command)
    assert done.stdout == "taken\n", done.stderr
    assert "job duration (1h) exceeds remaining instance lifetime" in done.stderr


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[RunningInstance]:
    """An instance that gives its jobs all the time that a busy machine needs to end them."""
    config = TWO_NODES.replace('kill-timeout = "0.2s"', 'kill-timeout = "30s"')
    with running_instance(tmp_path / "outer", config) as running:
        yield running


def test_without_a_command_it_has_a_directory_of_its_own_and_leaves_with_its_jobs(
    patient: RunningInstance, tmp_path: Path
) -> None:
    instance = patient
    script = f"exec {SELF} start >{tmp_path}/out"
    jobid = instance.ok("submit", f"--env=TMPDIR={tmp_path}", "sh", "-c", script).strip()
    until = time.monotonic() + DEADLINE_S
    while not (said := announcement(tmp_path / "out")) and time.monotonic() < until:
        time.sleep(0.02)
    statedir = said.rpartition("=")[2].strip()
    assert Path(statedir).parent == tmp_path
    env = instance.env | {"FLUX_TRIO_STATEDIR": statedir}
    left = invoked("submit", "sleep", "1000", env=env).stdout.strip()
    invoked("job", "wait-event", "-q", left, "start", env=env)
    instance.ok("cancel", jobid)
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    log = instance.ok("job", "eventlog", jobid)
    assert '"signal":9' not in log, "it has canceled what was left and ended by itself"
    assert not Path(statedir).exists()


def test_its_jobs_end_with_it_when_the_time_of_the_job_is_over(
    instance: RunningInstance, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    script = f"{SELF} run sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000'"
    command = [*FLUX_TRIO, "start", "sh", "-c", script]
    jobid = instance.ok("submit", *command).strip()
    until(pid.exists)
    instance.ok("job", "kill", "-s", "ALRM", jobid)  # as at the end of a time limit
    until(lambda: not Path("/proc", pid.read_text().strip()).exists())
    instance.ok("job", "wait-event", "-q", jobid, "clean")  # else later tests would list it


def test_what_does_not_want_to_end_is_killed_before_the_instance_is(tmp_path: Path) -> None:
    pid, inner = tmp_path / "pid", tmp_path / "inner.toml"
    inner.write_text('[exec]\nkill-timeout = "60s"\n')
    stubborn = f"trap '' TERM; echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do sleep 0.1; done"
    (tmp_path / "stubborn").write_text(stubborn)
    command = [*FLUX_TRIO, "start", "--config", str(inner), *FLUX_TRIO, "run", "sh"]
    config = TWO_NODES.replace('kill-timeout = "0.2s"', 'kill-timeout = "8s"')
    with running_instance(tmp_path / "outer", config) as instance:
        jobid = instance.ok("submit", *command, str(tmp_path / "stubborn")).strip()
        until(pid.exists)
        instance.ok("cancel", jobid)
        instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert not Path("/proc", pid.read_text().strip()).exists()


def announcement(output: Path) -> str:
    return output.read_text() if output.exists() else ""


def test_an_instance_in_a_job_that_is_not_there_says_so(instance: RunningInstance) -> None:
    env = instance.env | {"FLUX_JOB_ID": "f1"}
    done = flux_trio("start", "true", env=env)
    assert done.returncode == 1
    assert done.stderr == ("flux-trio start: ERROR: resources of job f1: unknown job id\n")


def test_jobs_of_instances_in_jobs_are_listed_below_them(instance: RunningInstance) -> None:
    hold = f"{SELF} submit --urgency=hold --job-name"
    inner = f"{SELF} start sh -c '{hold}=deep x; sleep 100'"
    script = f"{hold}=held x; {SELF} submit --job-name=inner {inner}; sleep 100"
    outer = [*FLUX_TRIO, "start", "sh", "-c", script]
    jobid = instance.ok("submit", "-c2", "--job-name=outer", *outer).strip()
    listing = ["jobs", "-R", "-n", "-o", "{name} {status_abbrev}"]
    until(lambda: "deep" in instance.ok(*listing))
    top, path, *middle, deep_path, deep = filter(None, instance.ok(*listing).splitlines())
    assert (top, path, sorted(middle)) == ("outer R", f"{jobid}:", ["held S", "inner R"])
    assert (deep_path.startswith(f"{jobid}/"), deep) == (True, "deep S")

    shallow = instance.ok(*listing, "-L1", "--stats", jobid).splitlines()[1:]
    assert shallow[1:4] == ["", f"{jobid}:", "1 running, 0 completed, 0 failed, 1 pending"]
    assert sorted(shallow[4:]) == ["held S", "inner R"]

    told = json.loads(instance.ok("jobs", "--recurse-all", "--json", jobid))
    found = {job["name"]: [each["name"] for each in job.get("jobs", ())] for job in told["jobs"]}
    assert found == {"held": [], "inner": ["deep"]}
    instance.ok("cancel", jobid)
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert instance.ok(*listing, "-a", jobid) == "outer CA\n"  # where it was is nobody any more
