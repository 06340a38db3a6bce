"""`flux-trio queue` and `jobs -q`: the words, the fields, and queues of a real instance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flux_trio.cli.admin.queue_rows import FIELDS, FORMATS, needs_jobs, queue_row
from flux_trio.cli.admin.queue_status import count_lines, status_lines
from flux_trio.cli.admin.resource_rows import Resources
from flux_trio.cli.terminal.columns import Layout
from flux_trio.config import Config, parse_config
from flux_trio.sim import make_machine
from tests.support.instance import RunningInstance, running_instance

QUEUES = """
[exec]
simulate = true
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
[[resource.config]]
hosts = "node[0-2]"
properties = ["batch"]
[[resource.config]]
hosts = "node3"
properties = ["debug"]

[policy]
jobspec.defaults.system = { duration = "10m", queue = "batch" }
limits.duration = "8h"

[queues.batch]
requires.properties = ["batch"]

[queues.debug]
requires.ranks = ["3"]
policy.limits.duration = "30m"
policy.limits.job-size.max.nnodes = 2
policy.limits.job-size.min.ncores = 2
"""
QUICK = "--setattr=exec.test.run_duration=0.01"
UP = {"enable": True, "start": True}


def shown(config: Config, *names: str | None, layout: str = "default") -> list[str]:
    machine = make_machine(4, 4).to_json()
    told = {"R": machine, "offline": "0", "exclude": "", "drained": {}}
    resources = Resources.read(told)
    rows = [queue_row(name, config, UP, resources) for name in names]
    return list(Layout(FORMATS[layout].format, FIELDS).lines(rows))


def test_a_queue_that_moves() -> None:
    assert status_lines(UP) == ["Job submission is enabled", "Scheduling is started"]


def test_why_nothing_moves() -> None:
    told = {
        "enable": False,
        "start": False,
        "disable_reason": "closed",
        "stop_reason": "Scheduler is offline",
        "blocked": "scheduler",
        "held": {"plugin x: no answer": 3, "plugin y: no": 1},
    }
    assert status_lines(told) == [
        "Job submission is disabled: closed",
        "Scheduling is stopped: Scheduler is offline",
        "3 jobs are held: plugin x: no answer",
        "1 job is held: plugin y: no",
    ]


def test_counts() -> None:
    stats = {"states": {"run": 2, "cleanup": 1}, "sched": {"waiting": 4, "outstanding": 5}}
    assert count_lines(stats) == [
        "4 alloc requests queued",
        "5 alloc requests pending to scheduler",
        "3 running jobs",
    ]


def test_limits_are_listed_as_far_as_the_resources_go() -> None:
    config = parse_config(
        QUEUES.replace('requires.properties = ["batch"]', 'requires.ranks = ["0-2"]')
    )
    assert shown(config, "batch", "debug") == [
        "QUEUE    EN ST TDEFAULT   TLIMIT     NNODES     NCORES      NGPUS",
        "batch*    ✔  ✔      10m       8h        0-3       0-12        0-0",
        "debug     ✔  ✔      10m      30m        0-1        2-4        0-0",
    ]
    assert shown(config, "debug", layout="policy")[1].split()[-3:] == ["0-2", "2-inf", "0-inf"]
    assert shown(config, "batch", layout="nodes")[1].split()[3:] == ["3", "2", "1", "0", "2"]


def test_the_anonymous_queue_has_no_name_and_no_limits() -> None:
    assert shown(Config(), None) == [
        " EN ST TDEFAULT   TLIMIT     NNODES     NCORES      NGPUS",
        "  ✔  ✔      inf      inf        0-4       0-16        0-0",
    ]


def test_what_jobs_hold_is_asked_only_where_it_is_listed() -> None:
    fields = {name: Layout(each.format, FIELDS).fields for name, each in FORMATS.items()}
    assert {name: needs_jobs(each) for name, each in fields.items()} == {
        "default": False,
        "policy": False,
        "nodes": True,
    }


# --- a real instance


@pytest.mark.real
def test_a_stopped_queue_starts_no_job(instance: RunningInstance) -> None:
    assert instance.ok("queue", "stop") == "Scheduling is stopped\n"
    jobid = instance.submitted("true")
    instance.ok("job", "wait-event", "-q", jobid, "priority")
    assert "queue is stopped" in instance.ok("jobs")
    started, *_ = instance.ok("queue", "start").splitlines()  # then what jobs still wait for
    assert started == "Scheduling is started"
    instance.over(jobid)
    assert "0 running jobs" in instance.ok("queue", "status", "-v")
    assert instance.ok("queue", "stop", "--quiet") == ""
    instance.ok("queue", "start", "--quiet")


@pytest.mark.real
def test_a_missing_scheduler_is_the_reason(instance: RunningInstance) -> None:
    instance.ok("module", "remove", "sched")
    try:
        assert "Scheduling is stopped: Scheduler is offline" in instance.ok("queue", "status")
    finally:
        instance.ok("module", "load", "sched")


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """An instance with two queues."""
    directory = tmp_path_factory.mktemp("queues")
    with running_instance(directory, config=QUEUES) as running:
        yield running


@pytest.mark.real
def test_no_time_limit_is_told_where_the_queue_has_a_default(queues: RunningInstance) -> None:
    """readings: No time limit. A line for each queue, however many jobs go there."""
    words = ["-t", "0", "-n", "2", "-q", "{}", QUICK, "true", ":::", "debug", "batch", "debug"]
    told = sorted(queues.call("bulksubmit", *words).stderr.splitlines())
    text = "--time-limit: 0 is no limit of its own: the default of queue {} applies, 10m"
    assert [line for line in told if "--time-limit" in line] == [
        f"flux-trio bulksubmit: {text.format(queue)}" for queue in ("batch", "debug")
    ]
    assert "--time-limit" not in queues.call("submit", "-t", "1m", QUICK, "true").stderr


@pytest.mark.real
def test_one_queue_is_stopped_and_disabled_alone(queues: RunningInstance) -> None:
    """33.admin.1, 33.admin.4, 33.criteria.4: as flux-queue says it."""
    assert queues.ok("queue", "stop", "-m", "debug off", "debug") == (
        "debug: Scheduling is stopped: debug off\n"
    )
    assert queues.ok("queue", "disable", "-m", "closed", "-q", "batch") == (
        "batch: Job submission is disabled: closed\n"
    )
    assert queues.ok("queue", "status", "-v").splitlines()[:5] == [
        "batch: Job submission is disabled: closed",
        "batch: Scheduling is started",
        "debug: Job submission is enabled",
        "debug: Scheduling is stopped: debug off",
        "0 alloc requests queued",
    ]
    refused = queues.call("submit", QUICK, "true")
    assert refused.stderr.endswith("ERROR: job submission to batch is disabled: closed\n")
    assert queues.ok("queue", "start", "-a").splitlines() == [
        "batch: Scheduling is started",
        "debug: Scheduling is started",
    ]
    assert queues.ok("queue", "enable", "--all").splitlines() == [
        "batch: Job submission is enabled",
        "debug: Job submission is enabled",
    ]


@pytest.mark.real
def test_all_queues_have_to_be_meant(queues: RunningInstance) -> None:
    """33.admin.2, 33.admin.5"""
    text = "Named queues are defined. Specify queues or use --all.\n"
    assert queues.call("queue", "stop").stderr.endswith(text)
    text = "Use --all to apply this command to all queues\n"
    assert queues.call("queue", "disable").stderr.endswith(text)
    text = "'nosuch' is not a valid queue\n"
    assert queues.call("queue", "status", "nosuch").stderr.endswith(text)
    assert queues.call("queue", "status", "a", "-q", "b").returncode == 2


@pytest.mark.real
def test_jobs_go_to_the_queue_that_is_named_and_are_listed_by_it(queues: RunningInstance) -> None:
    """33.tools.3-6: the tool sets a queue only where its user names one."""
    queues.ok("queue", "stop", "-a", "--quiet")
    ids = {name: queues.submitted(*more, QUICK, "true") for name, more in SUBMISSIONS.items()}
    try:
        stored = queues.ok("job", "info", "--original", ids["default"], "jobspec")
        assert '"queue"' not in stored
        for options, names in (
            ((), ["default", "batch"]),
            (("-q", "debug"), ["debug"]),
            (("-q", "debug,batch"), ["default", "batch", "debug"]),
            (("-q", "all"), ["default", "batch", "debug"]),
        ):
            listed = queues.ok("jobs", "-n", "-o", "{id}", *options).split()
            assert listed == [ids[name] for name in names], options
        line = queues.ok("jobs", "-n", "-o", "{queue} {contextual_info}", "-q", "debug")
        assert line == "debug queue is stopped\n"
    finally:
        queues.ok("queue", "start", "-a", "--quiet")
        for name in ids.values():
            queues.over(name)


SUBMISSIONS = {"default": (), "batch": ("-q", "batch"), "debug": ("-q", "debug", "-n2")}


@pytest.mark.real
def test_drain_and_idle_wait_for_what_they_say(queues: RunningInstance) -> None:
    """33.admin.8-11"""
    queues.ok("queue", "stop", "-a", "--quiet")
    jobid = queues.submitted("-q", "debug", "-n2", QUICK, "true")
    queues.ok("job", "wait-event", "-q", jobid, "priority")
    assert queues.call("queue", "drain", "-t", "0.1s").stderr == (
        "flux-trio queue drain: ERROR: timeout\n"
    )
    assert queues.ok("queue", "drain", "batch") == ""
    assert queues.ok("queue", "idle") == "1 jobs\n"
    queues.ok("queue", "start", "-a", "--quiet")
    assert queues.ok("queue", "drain", "debug") == ""
    assert queues.ok("queue", "drain") == ""
    assert queues.ok("queue", "idle", "--quiet", "debug") == ""


@pytest.mark.real
def test_queues_are_listed(queues: RunningInstance) -> None:
    lines = queues.ok("queue", "list").splitlines()
    assert [line.split()[0] for line in lines] == ["QUEUE", "batch*", "debug"]
    assert queues.ok("queue", "list", "-n", "-q", "debug", "-o", "nodes").split()[:1] == ["debug"]
    assert "Unknown format field" in queues.call("queue", "list", "-o", "{x}").stderr


def test_jobs_in_other_queues_are_counted(queues: RunningInstance) -> None:
    held = ("--urgency=hold", "-n2")
    for queue in ("batch", "debug", "debug"):
        queues.ok("submit", "-q", queue, *held, "x")
    listed = queues.invoke("jobs")
    said = "flux-trio jobs: 2 more jobs are in other queues: -q all lists them\n"
    assert (listed.exit_code, listed.stderr) == (0, said)
    for words in (("-q", "all"), ("-q", "batch"), ("-A",), ("-n",)):
        assert queues.invoke("jobs", *words).stderr == ""
    queues.cancel_all()
    assert queues.invoke("jobs").stderr == ""
