"""The shell host with real processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from flux_trio.shell.protocol import (
    Attach,
    Done,
    Failure,
    FirstExit,
    List,
    Listing,
    Signal,
    Start,
    Started,
    Task,
    TaskSize,
    Unknown,
)
from tests.support.instance import environment
from tests.support.shell import (
    Shell,
    hosts,
    open_shell,
    processes_about,
    processes_of,
    tasks,
    tasks_in_number,
    until,
)

pytestmark = pytest.mark.real


async def test_status_is_that_of_a_shell(common_shell: Shell) -> None:
    """32.start.32, readings: finish status. A signal for an unknown job changes nothing."""
    scripts = {"exit 0": 0, "exit 3": 3 << 8, "kill -TERM $$": 143 << 8, "kill -KILL $$": 137 << 8}
    common_shell.send(Signal(99, signal.SIGKILL))
    for jobid, (script, status) in enumerate(scripts.items(), start=1):
        done = await common_shell.run(jobid, "sh", "-c", script)
        assert (done.status, done.lost, done.sizes) == (status, [], [])


ENDS = [("exit 3", 3 << 8, "Exit 3"), ("exit 0", 0, "Exit 0"), ("kill -9 $$", 137 << 8, "Killed")]


async def test_first_task_that_ends_is_told_while_others_run(common_shell: Shell) -> None:
    for jobid, (script, status, how) in enumerate(ENDS, start=1):
        one = f"if [ $FLUX_TASK_RANK = 1 ]; then {script}; else read x; fi"
        common_shell.start(jobid, "sh", "-c", one, ntasks=2, input=True)
        first = FirstExit(jobid, 1, status, how)
        assert await common_shell.hear(FirstExit) == first
        common_shell.send(Attach(jobid))
        assert await common_shell.hear(FirstExit) == first
        common_shell.send(Signal(jobid, 9))
        assert (await common_shell.hear(Done, jobid)).status == 137 << 8


async def test_limits_are_those_of_the_tasks(common_shell: Shell) -> None:
    limits = {"nofile": 64, "core": -1, "cpu": 7, "stack": 1 << 62}
    await common_shell.run(1, "sh", "-c", "ulimit -n; ulimit -t", limits=limits)
    assert common_shell.output(1) == "64\n7\n"
    await common_shell.run(2, "sh", "-c", "ulimit -n")
    assert common_shell.output(2) != "64\n"


async def test_output_of_each_task_is_in_files_of_its_own(common_shell: Shell) -> None:
    script = "echo out $FLUX_TASK_RANK $A; echo err >&2"
    done = await common_shell.run(1, "sh", "-c", script, ntasks=2, env={"A": "é"})
    assert done.sizes == [TaskSize(0, 9, 4), TaskSize(1, 9, 4)]
    assert common_shell.output(1, 1) == "out 1 é\n"
    assert common_shell.output(1, 0, "stderr") == "err\n"


COMMANDS = {
    "/no/such/command": (32512, "No such file or directory"),
    "no-such-command": (32512, "No such file or directory"),
    "": (32512, "No such file or directory"),
    "/etc/passwd": (32256, "Permission denied"),
    "nul\0": (32256, "embedded null byte"),
}


async def test_command_that_cannot_be_run(common_shell: Shell) -> None:
    for jobid, (command, (status, why)) in enumerate(COMMANDS.items(), start=1):
        common_shell.start(jobid, command, ntasks=2)
        failure = Failure(0, f"{command}: {why}")
        assert await common_shell.hear(Started) == Started(jobid, failure)
        assert await common_shell.hear(Done) == Done(jobid, status, 2)


DIRECTORIES = {
    "/no/such/place": "No such file or directory",
    "relative": "No such file or directory",
    "/etc/passwd": "Not a directory",
    "nul\0": "embedded null byte",
}


async def test_job_whose_directory_is_not_there_runs_in_tmp_and_is_told(
    common_shell: Shell,
) -> None:
    """readings: Missing working directory. Its first task says it."""
    for jobid, (cwd, why) in enumerate(DIRECTORIES.items(), start=1):
        assert (await common_shell.run(jobid, "pwd", cwd=cwd, ntasks=2)).status == 0
        assert [common_shell.output(jobid, taskid) for taskid in (0, 1)] == ["/tmp\n", "/tmp\n"]
        warning = f"WARNING: could not change to {cwd}: {why}. Going to /tmp\n"
        assert [common_shell.output(jobid, taskid, "stderr") for taskid in (0, 1)] == [warning, ""]


async def test_fifo_without_another_end_holds_up_nobody(directory: Path) -> None:
    """Output to it is the job's own error, input from it is at its end."""
    fifo = directory.parent / "fifo"
    os.mkfifo(fifo)
    async with open_shell(directory) as shell:
        for jobid, stream in ((1, "stdout"), (2, "stdin")):
            tasks_ = [Task(0, {}, [], {stream: str(fifo)})]
            shell.send(Start(jobid, ["cat"], {"PATH": "/usr/bin:/bin"}, "/", tasks_))
        started = await shell.hear(Started, 1)
        assert started.failure == Failure(0, f"{fifo}: No such device or address")
        assert (await shell.hear(Done, 1)).status == 126 << 8
        assert (await shell.hear(Done, 2)).status == 0
        assert (await shell.run(3, "true")).status == 0


async def test_task_has_its_cores_where_the_machine_has_them(common_shell: Shell) -> None:
    mine = sorted(os.sched_getaffinity(0))
    command = ("python3", "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
    await common_shell.run(1, *command, cores=mine[:1])
    await common_shell.run(2, *command, cores=[*mine, 4000])
    assert common_shell.output(1) == f"{mine[:1]}\n"
    assert common_shell.output(2) == f"{mine}\n"


# Signals


async def test_signal_reaches_the_whole_process_group(common_shell: Shell) -> None:
    common_shell.start(1, "sh", "-c", "sleep 100 & sleep 100; echo never")
    await tasks_in_number(common_shell.directory, 3)
    common_shell.send(Signal(1, signal.SIGTERM))
    assert (await common_shell.hear(Done)).status == (128 + signal.SIGTERM) << 8
    await until(lambda: not tasks(common_shell.directory))  # the kernel takes its time to bury them


async def test_group_that_ignores_sigterm_dies_of_sigkill(common_shell: Shell) -> None:
    common_shell.start(1, "sh", "-c", "trap '' TERM; sh -c 'sleep 100; echo never' & echo up; wait")
    await common_shell.output_holds(1, "up\n")
    common_shell.send(Signal(1, signal.SIGTERM))
    common_shell.send(Attach(1))
    await common_shell.hear(Started)
    await common_shell.hear(Started)  # it still runs
    common_shell.send(Signal(1, signal.SIGKILL))
    assert (await common_shell.hear(Done)).status == (128 + signal.SIGKILL) << 8


async def test_what_a_task_leaves_in_its_group_does_not_outlive_the_job(
    common_shell: Shell,
) -> None:
    """readings: Final release without finish. No resource is freed under live processes."""
    done = await common_shell.run(1, "sh", "-c", "trap '' TERM; sleep 100 & exit 2")
    assert done.status == 2 << 8
    await until(lambda: not tasks(common_shell.directory))


def sleepers(seconds: int) -> list[int]:
    """The processes `sleep SECONDS`; the number is how a test knows its own."""
    return processes_of(f"sleep\0{seconds}\0".encode())


_numbers = itertools.count(os.getpid() * 1000)


def a_duration() -> int:
    """Seconds that no other test sleeps."""
    return next(_numbers)


UNTIL_GO = "until [ -e $0 ]; do sleep 0.01; done"
SCRUBBED = "env -i setsid sleep {0} </dev/null >/dev/null 2>&1 &"  # nothing tells its job


LEAVING = [
    "setsid sleep {0} &",
    "(setsid sh -c 'sleep {0} & sleep {0}' &) ; sleep 0.01;",
    "set -m; sleep {0} &",
    "env -i setsid sleep {0} &",  # known by its output
    SCRUBBED,  # known because no other job runs
    "setsid sh -c '(setsid sleep {0} &); trap \"\" TERM HUP; sleep {0}' &",
]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("script", "end"),
    [
        *((each, "by itself") for each in LEAVING),
        (LEAVING[0], "canceled"),
        (LEAVING[-1], "canceled"),
    ],
)
async def test_children_that_left_their_group_do_not_outlive_the_job(
    directory: Path, script: str, end: str
) -> None:
    "Done is said when nothing of the job runs: then its cores are given away."
    orphan = a_duration()
    last = "sleep 1000" if end == "canceled" else ""
    async with open_shell(directory) as shell:
        shell.start(1, "sh", "-c", f"{script.format(orphan)} echo up; {last}")
        if end == "canceled":
            await shell.output_holds(1, "up\n")
            await until(partial(sleepers, orphan))
            shell.send(Signal(1, signal.SIGTERM))
        await shell.hear(Done, 1)
        assert processes_about(str(orphan)) == []  # nor one that is still to run sleep
        shell.forget(1)


HOPS = """
import os, sys, time
os.setsid()
while time.monotonic() < float(sys.argv[1]):
    if os.fork():
        os._exit(0)
"""


@pytest.mark.usefixtures("either_way")
async def test_process_that_hops_to_a_new_one_all_the_time_is_caught(shell: Shell) -> None:
    """Each of its processes ends as soon as it has a child, so a search may find only zombies."""
    until_ = str(time.monotonic() + 250)
    script = 'python3 -c "$0" "$1" & python3 -c "$0" "$1" & sleep 0.1'
    done = await shell.run(1, "sh", "-c", script, HOPS, until_)
    assert (done.status, processes_of(f"{until_}\0".encode())) == (0, [])
    shell.forget(1)


@pytest.mark.usefixtures("either_way")
async def test_orphans_of_other_jobs_are_left_alone(directory: Path) -> None:
    first, second = a_duration(), a_duration()
    async with open_shell(directory) as shell:
        shell.start(1, "sh", "-c", f"(setsid sleep {first} &); echo up; sleep 1000")
        await shell.output_holds(1, "up\n")
        await until(partial(sleepers, first))
        assert (await shell.run(2, "sh", "-c", f"setsid sleep {second} &")).status == 0
        assert (sleepers(first) != [], processes_about(str(second))) == (True, [])
        shell.send(Signal(1, signal.SIGTERM))
        await shell.hear(Done, 1)
        assert sleepers(first) == []
        shell.forget(1, 2)


@pytest.mark.usefixtures("without_cgroups")
async def test_orphan_that_nothing_tells_the_job_of_ends_with_the_last_that_may_own_it(
    directory: Path,
) -> None:
    "As documented: it does not hold up its own job while an older job runs."
    orphan = a_duration()
    async with open_shell(directory) as shell:
        shell.start(1, "sleep", "1000")
        await shell.hear(Started, 1)
        go_on = directory / "go"
        shell.start(2, "sh", "-c", f"{SCRUBBED.format(orphan)} {UNTIL_GO}", str(go_on))
        await until(partial(sleepers, orphan))
        go_on.touch()
        await shell.hear(Done, 2)
        assert len(sleepers(orphan)) == 1
        shell.send(Signal(1, signal.SIGTERM))
        await shell.hear(Done, 1)
        assert sleepers(orphan) == []
        shell.forget(1, 2)


@pytest.mark.usefixtures("either_way")
async def test_next_host_ends_what_jobs_of_the_one_before_have_left(directory: Path) -> None:
    "Job 1 goes on and ends then; job 2 ends while there is no host."
    orphan = "(setsid sleep {0} &); echo up; sleep 1000"
    first, second = a_duration(), a_duration()
    async with open_shell(directory) as shell:
        for jobid, seconds in ((1, first), (2, second)):
            shell.start(jobid, "sh", "-c", orphan.format(seconds))
            await shell.hear(Started, jobid)
            await shell.output_holds(jobid, "up\n")
            await until(partial(sleepers, seconds))
        (host,) = hosts(directory)
        # a subshell that is still to end has the same words, and a later id
        task = min(processes_of(orphan.format(second).encode() + b"\0"))
        os.kill(host, signal.SIGSTOP)
        os.kill(task, signal.SIGKILL)
        await shell.kill_host()
        shell.send(Attach(2))
        await shell.hear(Done, 2)
        assert (sleepers(second), len(sleepers(first))) == ([], 1)
        shell.send(Signal(1, signal.SIGTERM))
        await shell.hear(Done, 1)
        assert sleepers(first) == []
        shell.forget(1, 2)


# At most once


async def test_job_is_launched_once_however_often_it_is_asked_for(common_shell: Shell) -> None:
    """32.start.10, readings: Exec override."""
    done = await common_shell.run(1, "echo", "once")
    assert await common_shell.run(1, "echo", "twice") == done
    assert common_shell.output(1) == "once\n"


async def test_attach_never_launches(common_shell: Shell) -> None:
    common_shell.send(Attach(1))
    assert await common_shell.hear(Unknown) == Unknown(1)


async def test_acknowledged_job_is_forgotten_with_its_files(common_shell: Shell) -> None:
    await common_shell.run(1, "echo", "hi")
    await common_shell.run(2, "true")
    common_shell.forget(1)
    common_shell.send(List())
    assert await common_shell.hear(Listing) == Listing([2])
    assert {path.name.split(".")[0] for path in (common_shell.directory / "jobs").iterdir()} == {
        "2"
    }


async def test_job_that_runs_cannot_be_acknowledged(common_shell: Shell) -> None:
    common_shell.start(1, "sleep", "100")
    await common_shell.hear(Started)
    common_shell.forget(1)
    common_shell.send(Signal(1, 9))
    assert (await common_shell.hear(Done)).status == (128 + 9) << 8


# Clients come and go


async def test_job_outlives_its_client_and_its_end_is_told_to_the_next(directory: Path) -> None:
    async with open_shell(directory) as shell:
        go_on = directory / "go"
        shell.start(1, "sh", "-c", f"{UNTIL_GO}; exit 4", str(go_on))
        await shell.hear(Started)
    assert hosts(directory)  # told to end, but something runs
    go_on.touch()
    async with open_shell(directory) as shell:
        assert (await shell.run(1, "never")).status == 4 << 8


async def test_host_ends_when_the_last_client_leaves_and_nothing_runs(directory: Path) -> None:
    async with open_shell(directory) as shell:
        before = hosts(directory)
        async with open_shell(directory) as second:
            await second.run(1, "true")
        assert (await shell.run(2, "true")).status == 0  # the other one told it to end, too early
        assert hosts(directory) == before
    await until(lambda: not hosts(directory))


async def test_what_was_sent_last_still_arrives(directory: Path) -> None:
    async with open_shell(directory) as shell:
        await shell.run(1, "true")
        shell.forget(1)
    await until(lambda: list((directory / "jobs").iterdir()) == [])


def test_it_is_up_at_once() -> None:
    """The first job waits for it: it imports no jobspecs."""
    code = "import sys, flux_trio.shell.host\nprint('flux_trio.formats' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
def test_tasks_can_be_interrupted_also_if_a_script_has_started_the_instance(name: str) -> None:
    """What a process ignores its children ignore, and a script's background ignores these."""
    program = f"""
import signal, subprocess
signal.signal(signal.{name}, signal.SIG_IGN)
from flux_trio.shell.host import let_tasks_be_interrupted
let_tasks_be_interrupted()
task = subprocess.run(["sh", "-c", "kill -{name[3:]} $$"])
assert task.returncode == -signal.{name}, task
"""
    subprocess.run([sys.executable, "-c", program], check=True)
