"""PMI: the tasks of a job find each other, and no task of another job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flux_trio.shell import pmi
from flux_trio.shell.pmi import KEY_CHARS_MAX, VALUES_MAX, PmiError, PmiJob
from flux_trio.shell.protocol import PMI_VALUE_CHARS_MAX, Done, Started, WantsPmi
from tests.support.shell import Shell, hosts

# Each task puts its own value, waits for the others, and prints what the next one has put.
EXCHANGE = """
import os
door = os.fdopen(int(os.environ["PMI_FD"]), "r+b", buffering=0)
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
def ask(line):
    door.write(line.encode() + b"\\n")
    said = b""
    while not said.endswith(b"\\n"):
        part = door.read(1)
        if not part:
            os._exit(9)
        said += part
    return said.decode().rstrip("\\n")
assert "rc=0" in ask("cmd=init pmi_version=1 pmi_subversion=1")
name = ask("cmd=get_my_kvsname").partition("kvsname=")[2]
ask(f"cmd=put kvsname={name} key=of-{rank} value=I am {rank}")
print(ask("cmd=barrier_in"))
print(ask(f"cmd=get kvsname={name} key=of-{(rank + 1) % size}"))
print(ask(f"cmd=get kvsname={name} key=known"))
ask("cmd=finalize")
"""
ASKS = """
import os
door = int(os.environ["PMI_FD"])
try:
    os.write(door, b"cmd=init pmi_version=1 pmi_subversion=1\\n")
    os._exit(5 if os.read(door, 1) == b"" else 6)
except OSError:  # the other task has asked before
    os._exit(5)
"""


def descriptors(host: int) -> int:
    return len(list(Path(f"/proc/{host}/fd").iterdir()))


@pytest.mark.real
async def test_tasks_read_what_the_others_have_put(shell: Shell) -> None:
    shell.start(1, sys.executable, "-c", EXCHANGE, ntasks=3, pmi={"known": "before"})
    assert (await shell.hear(Done, 1)).status == 0
    for taskid in range(3):
        assert shell.output(1, taskid).splitlines() == [
            "cmd=barrier_out rc=0",
            f"cmd=get_result rc=0 value=I am {(taskid + 1) % 3}",
            "cmd=get_result rc=0 value=before",
        ]
    shell.forget(1)


@pytest.mark.real
async def test_two_jobs_at_once_do_not_meet(shell: Shell) -> None:
    for jobid in (1, 2):
        shell.start(jobid, sys.executable, "-c", EXCHANGE, ntasks=2, pmi={"known": str(jobid)})
    done = {each.id: each.status for each in [await shell.hear(Done), await shell.hear(Done)]}
    assert done == {1: 0, 2: 0}
    assert shell.output(1, 0).splitlines()[-1] == "cmd=get_result rc=0 value=1"
    assert shell.output(2, 0).splitlines()[-1] == "cmd=get_result rc=0 value=2"
    shell.forget(1, 2)


@pytest.mark.real
async def test_tasks_have_pmi_if_the_start_says_so(shell: Shell) -> None:
    ask = "exit ${PMI_SIZE:-0}"
    assert (await shell.run(1, "sh", "-c", ask, ntasks=2)).status == 0
    assert (await shell.run(2, "sh", "-c", ask, pmi={})).status == 1 << 8
    assert (await shell.run(3, "sh", "-c", ask, ntasks=2, pmi={"a": "b"})).status == 2 << 8
    shell.forget(1, 2, 3)


@pytest.mark.real
async def test_sockets_are_closed_when_their_tasks_have_ended(
    directory: Path, shell: Shell
) -> None:
    (host,) = hosts(directory)
    await shell.run(1, "true")
    before = descriptors(host)
    for jobid in range(2, 6):
        assert (await shell.run(jobid, "true", ntasks=2, pmi={})).status == 0
    shell.forget(1, 2, 3, 4, 5)
    assert (await shell.run(6, "true")).status == 0
    shell.forget(6)
    assert descriptors(host) <= before + 1


def test_further_tasks_share_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmi, "SOCKETS_MAX", 3)
    sockets = pmi.PmiSockets()
    server = sockets.server(1, "ƒ1", 2, {})
    with pmi.TaskSockets(sockets, server) as of_job:
        assert None not in (of_job.of_task(0), of_job.of_task(1))
    assert [taskid for _, taskid, _ in sockets.came] == [0, 1]
    further = sockets.server(2, "ƒ2", 2, {})
    assert further is not None
    assert further.is_shared
    with pmi.TaskSockets(sockets, further) as of_job:
        assert of_job.of_task(0) == of_job.of_task(1)
    ((jobid, ours),) = sockets.shared
    assert jobid == 2
    assert not sockets.asked(ours)  # its tasks have ended
    for _, _, each in sockets.came:
        each.close()


@pytest.mark.real
async def test_task_that_asks_without_room_is_noticed_and_reads_the_end_of_the_file(
    shell: Shell,
) -> None:
    ntasks = pmi.SOCKETS_MAX + 1
    shell.start(1, sys.executable, "-S", "-E", "-c", ASKS, ntasks=2, pmi={})
    assert (await shell.hear(Done)).status == 6 << 8  # there was an answer
    first_asks = f"[ $PMI_RANK = 0 ] && exec {sys.executable} -c '{ASKS}'"
    shell.start(2, "sh", "-c", first_asks, ntasks=ntasks, pmi={})
    assert await shell.hear(Started) == Started(2)
    assert await shell.hear(WantsPmi) == WantsPmi(2)
    await shell.hear(Done, 2)
    shell.forget(1, 2)


# --- the protocol


def answers(job: PmiJob, line: str, taskid: int = 0) -> list[tuple[int, str]]:
    return job.answer(taskid, line)


def one(job: PmiJob, line: str) -> str:
    ((taskid, reply),) = job.answer(0, line)
    assert (taskid, reply[-1]) == (0, "\n")
    return reply.rstrip("\n")


@pytest.fixture
def job() -> PmiJob:
    return PmiJob("ƒ9", 2, {"flux.instance-level": "1"})


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
        ),
        ("cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init rc=-1"),
        ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024"),
        ("cmd=get_universe_size", "cmd=universe_size rc=0 size=2"),
        ("cmd=get_appnum", "cmd=appnum rc=0 appnum=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=ƒ9"),
        ("cmd=get kvsname=ƒ9 key=flux.instance-level", "cmd=get_result rc=0 value=1"),
        ("cmd=get kvsname=ƒ9 key=unknown", "cmd=get_result rc=-1"),
        ("cmd=get kvsname=other key=flux.instance-level", "cmd=get_result rc=-1"),
        ("cmd=put kvsname=ƒ9 key=a value=b c=d", "cmd=put_result rc=0"),
        ("cmd=put kvsname=other key=a value=b", "cmd=put_result rc=-1"),
        ("cmd=put kvsname=ƒ9 key=a", "cmd=put_result rc=-1"),
        (f"cmd=put kvsname=ƒ9 key={'k' * (KEY_CHARS_MAX + 1)} value=b", "cmd=put_result rc=-1"),
        (
            f"cmd=put kvsname=ƒ9 key=k value={'b' * (PMI_VALUE_CHARS_MAX + 1)}",
            "cmd=put_result rc=-1",
        ),
        ("cmd=publish_name service=x", "cmd=publish_result rc=-1 msg=there are no names here"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
    ],
)
def test_a_line_is_answered_as_rfc_13_has_it(job: PmiJob, line: str, reply: str) -> None:
    assert one(job, line) == reply


def test_a_value_may_have_blanks_and_equal_signs(job: PmiJob) -> None:
    one(job, "cmd=put kvsname=ƒ9 key=a value=b c=d")
    assert one(job, "cmd=get kvsname=ƒ9 key=a") == "cmd=get_result rc=0 value=b c=d"


def test_a_barrier_opens_when_all_are_there_and_can_be_used_again(job: PmiJob) -> None:
    for _ in range(2):
        assert answers(job, "cmd=barrier_in", 1) == []
        assert answers(job, "cmd=barrier_in", 1) == []  # once more is not another task
        out = "cmd=barrier_out rc=0\n"
        assert answers(job, "cmd=barrier_in", 0) == [(0, out), (1, out)]


@pytest.mark.parametrize("line", ["", "hello", "cmd=unknown", "mcmd=spawn", "cmd="])
def test_what_is_no_command_breaks_the_protocol(job: PmiJob, line: str) -> None:
    with pytest.raises(PmiError):
        job.answer(0, line)


def test_the_values_of_a_job_have_a_bound(job: PmiJob) -> None:
    replies = [one(job, f"cmd=put kvsname=ƒ9 key=k{n} value=") for n in range(VALUES_MAX + 9)]
    assert replies[0] == "cmd=put_result rc=0"
    assert replies[-1] == "cmd=put_result rc=-1"
    assert one(job, "cmd=put kvsname=ƒ9 key=k0 value=new") == "cmd=put_result rc=0"
