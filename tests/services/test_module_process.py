"""The scheduler and the execution service elsewhere: jobs run as if they were here.

Elsewhere is the other end of a connection in memory, or a process of its own.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from flux_trio.broker import Handle, open_remote, process, serve_connection
from flux_trio.config import Config, ExecConfig, parse_config
from flux_trio.formats import Jobspec, format_fluid, parse_eventlog
from flux_trio.instance import MODULES, Instance, Surroundings, durable_store, open_instance
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, Errno, FluxError, topics
from flux_trio.services import shell_client
from flux_trio.services.module_process import CONFIG_VARIABLE, main_of, module_environment
from flux_trio.sim import make_machine
from flux_trio.transports import Connection, Credentials, memory_pair
from tests.support.instance import RunningInstance, running_instance
from tests.support.kvs_words import lookup_of, value_of
from tests.support.shell import no_process_left, processes_about, processes_with, until

TEST_S_MAX = 300.0  # only what hangs takes so long, however busy the machine is
CONFIG = Config(exec=ExecConfig(kill_timeout="0.2s"))
EVENTS = ["submit", "validate", "depend", "priority", "alloc", "start", "finish", "release"]
ELSEWHERE = ("sched", "job-exec")


class User:
    """Somebody who submits jobs to an instance."""

    def __init__(self, instance: Instance, handle: Handle) -> None:
        self.instance = instance
        self.call = handle.call

    async def submit(self, *words: str, **options: Any) -> int:
        jobspec = Jobspec.from_command(words or ["true"], cwd="/", **options)
        return int((await self.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()}))["id"])

    async def events(self, jobid: int) -> list[str]:
        key = f"{format_fluid(jobid, 'kvs')}.eventlog"
        text = value_of(await self.call(topics.KVS_LOOKUP, lookup_of(key)))
        return [event.name for event in parse_eventlog(text)]

    async def wait(self, jobid: int, name: str) -> list[str]:
        while name not in await self.events(jobid):  # noqa: ASYNC110 - bounded by the test
            await trio.sleep(0.005)
        return await self.events(jobid)

    def pid(self, name: str) -> int:
        (pid,) = [each.pid for each in self.instance.supervisor.list() if each.name == name]
        assert pid is not None
        return pid


@asynccontextmanager
async def opened(statedir: Path, *without: str) -> AsyncIterator[User]:
    given = Surroundings(
        inventory=make_machine(1, 2),
        userid=os.getuid(),
        epoch=time.time(),
        statedir=statedir,
        listen=True,
        store=durable_store(CONFIG, statedir),
        modules=tuple(name for name in MODULES if name not in without),
    )
    with trio.fail_after(TEST_S_MAX), no_process_left(statedir / "shell"):
        async with open_instance(CONFIG, given) as instance, instance.connect() as handle:
            yield User(instance, handle)


@asynccontextmanager
async def in_memory(instance: Instance) -> AsyncIterator[Connection]:
    ours, theirs = memory_pair()
    owner = Credentials(os.getuid(), ROLE_OWNER | ROLE_LOCAL, "owner")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, instance.router, instance.write_log, ours, owner)
        yield theirs
        await theirs.aclose()


# --- at the other end of a connection


@pytest.mark.real
@pytest.mark.parametrize("name", ELSEWHERE)
async def test_jobs_run_with_a_service_behind_a_connection(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, name) as user:
        jobid = await user.submit("true")
        async with (
            in_memory(user.instance) as connection,
            open_remote(name, os.getuid(), connection, time.time) as handle,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(partial(main_of(name, CONFIG, tmp_path), handle))
            assert sorted((await user.wait(jobid, "clean"))[:8]) == sorted(EVENTS)
            nursery.cancel_scope.cancel()
        assert name not in user.instance.router.services


# --- in a process


@pytest.mark.real
async def test_jobs_run_with_a_service_in_a_process(tmp_path: Path) -> None:
    async with opened(tmp_path, "sched") as user:
        await user.call(topics.MODULE_LOAD, {"name": "sched", "exec": True})
        await user.wait(await user.submit("true"), "clean")
        pid = user.pid("sched")
        await user.call(topics.MODULE_RELOAD, {"name": "sched"})
        assert not is_running(pid)
        await user.wait(await user.submit("true"), "clean")


@pytest.mark.real
async def test_death_of_the_schedulers_process_is_a_crash_of_the_module(tmp_path: Path) -> None:
    "What was granted stays granted, what waited is granted by the next one."
    async with opened(tmp_path, "sched") as user:
        await user.call(topics.MODULE_LOAD, {"name": "sched", "exec": True})
        running = await user.submit("sleep", "1000")
        await user.wait(running, "start")
        waiting = await user.submit("true", ntasks=2)
        os.kill(user.pid("sched"), signal.SIGKILL)
        await until(lambda: "sched" not in user.instance.supervisor)
        with pytest.raises(FluxError) as gone:
            await user.call("sched.stats-get")
        assert gone.value.errnum == Errno.ENOSYS
        assert "module sched: ProcessEnded: its process was ended by SIGKILL" in [
            entry.text for entry in user.instance.log
        ]
        await user.call(topics.MODULE_LOAD, {"name": "sched-fifo", "exec": True})
        while (await user.call("sched.stats-get"))["allocated"] != 1:  # noqa: ASYNC110
            await trio.sleep(0.005)  # it is being told what is allocated
        assert "alloc" not in await user.events(waiting)
        await user.call(
            topics.JOB_RAISE, {"id": running, "severity": 0, "type": "cancel", "note": ""}
        )
        await user.wait(waiting, "clean")


@pytest.mark.real
async def test_jobs_outlive_the_process_of_the_execution_service(tmp_path: Path) -> None:
    "The next one finds them, and none is started twice."
    runs = tmp_path / "runs"
    async with opened(tmp_path, "job-exec") as user:
        await user.call(topics.MODULE_LOAD, {"name": "job-exec", "exec": True})
        script = f"echo run >> {runs}; while ! test -e {tmp_path}/go; do sleep 0.01; done; exit 3"
        jobid = await user.submit("sh", "-c", script)
        await user.wait(jobid, "start")
        await until(runs.exists)
        await user.call(topics.MODULE_KILL, {"name": "job-exec"})
        (tmp_path / "go").touch()
        await user.call(topics.MODULE_LOAD, {"name": "job-exec", "exec": True})
        events = await user.wait(jobid, "clean")
        assert (events.count("start"), events.count("finish")) == (1, 1)
        assert runs.read_text() == "run\n"


@pytest.mark.real
async def test_process_whose_start_is_slow_is_waited_for_and_named_and_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"  # each process, the shell host's as well, waits for this lock
    slow = tmp_path / "slow" / "sitecustomize.py"
    slow.parent.mkdir()
    slow.write_text(f"import fcntl\nfcntl.flock(open({str(held)!r}), fcntl.LOCK_SH)\n")
    monkeypatch.setenv("PYTHONPATH", str(slow.parent))
    monkeypatch.setattr(process, "SLOW_S", 0.1)
    monkeypatch.setattr(shell_client, "SLOW_S", 0.1)  # jobs wait for it, the instance does not
    (tmp_path / "state").mkdir()
    with held.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with opened(tmp_path / "state", "sched") as user:

            async def load() -> None:
                with suppress(FluxError):  # the first one is removed
                    await user.call(topics.MODULE_LOAD, {"name": "sched", "exec": True})

            async def wait_named(times: int) -> None:
                text = "still starting after 0.1 s"
                while [each.text for each in user.instance.log].count(text) != times:  # noqa: ASYNC110
                    await trio.sleep(0.005)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                await wait_named(1)
                await user.call(topics.MODULE_REMOVE, {"name": "sched"})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                await wait_named(2)
                lock.close()
            assert "clean" in await user.wait(await user.submit("true"), "clean")


@pytest.mark.real
def test_processes_end_with_an_instance_that_is_killed(tmp_path: Path) -> None:
    with running_instance(tmp_path) as instance:
        instance.ok("module", "reload", "--exec", "sched")
        (pid,) = module_processes(instance)
        instance.stop(signal.SIGKILL)
        deadline = time.monotonic() + TEST_S_MAX
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_running(pid)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def module_processes(instance: RunningInstance) -> list[int]:
    """Processes of the instance that are modules: they are told where it is."""
    here = processes_with(f"FLUX_TRIO_STATEDIR={instance.statedir}")
    return [pid for pid in processes_about("flux_trio.services.module_process") if pid in here]


# --- what they are told


def test_environment_has_the_tables_that_modules_read_and_no_more(tmp_path: Path) -> None:
    environment = module_environment(CONFIG, tmp_path)
    assert environment["FLUX_TRIO_STATEDIR"] == str(tmp_path)
    assert '"kill-timeout":"0.2s"' in environment[CONFIG_VARIABLE]


@pytest.mark.parametrize(("name", "policy"), [("sched", None), ("sched-fifo", "fifo")])
def test_sched_fifo_is_the_scheduler_with_the_fifo_policy(name: str, policy: str | None) -> None:
    main = main_of(name, Config(), None)
    assert isinstance(main, partial)
    assert main.keywords["policy"] == policy


def test_scheduler_elsewhere_knows_the_queues(tmp_path: Path) -> None:
    """33.schedpolicy.1"""
    config = parse_config("[queues.a.policy.scheduler]\npolicy = 'easy'\nmore = 1")
    text = module_environment(config, tmp_path)[CONFIG_VARIABLE]
    told = msgspec.json.decode(text, type=Config)
    assert told.policy_for("a").scheduler == {"policy": "easy", "more": 1}
