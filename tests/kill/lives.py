"""Lives of one instance: each begins in the same state directory and ends with SIGKILL.

Everything is drawn from one seed: what is submitted and canceled, what befalls the instance
(`tests.kill.troubles`), and when the end comes. What the
instance acknowledged is remembered; `tests.kill.findings` holds it against what is there at last.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from flux_trio.client import TOKEN_FILE, URI_FILE, Client, ClientError, open_client
from flux_trio.editions import Edition
from flux_trio.formats import Jobspec, job_key, parse_fluid
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.store.fsck import check_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from tests.kill.troubles import Trouble, draw_trouble, flip_a_bit, kill_hosts, make_room, repair
from tests.support.instance import DEADLINE_S, FLUX_TRIO, environment

# Four nodes of four cores that are all this machine.
CONFIG = """
edition = "{edition}"
[exec]
kill-timeout = "0.2s"
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
"""
CORES = 16
RUNS_FILE = "runs"  # a line from each task that was ever started: job id and task
START_S_MAX = 0.6  # about what it takes to be ready: some lives end before
BUSY_S_MAX = 0.7
COPYING_S_MAX = 3.0  # some copies are whole by then
JOBS_MAX = 60  # of one life
FLIPPED = 0.2  # of the lives leave a state in which a bit is flipped
REPAIRED = 0.1  # leave one that is repaired before the next life

TASK = 'echo "$FLUX_JOB_ID $FLUX_TASK_RANK" >> "$0"; echo "$FLUX_JOB_ID"; exec sleep "$1"'


@dataclass
class Memory:
    """What an instance has said it will remember."""

    submitted: list[int] = field(default_factory=list)  # ids, in the order they were told
    asked_to_cancel: set[int] = field(default_factory=set)
    canceled: set[int] = field(default_factory=set)  # and this was answered
    asked_to_purge: set[int] = field(default_factory=set)
    purged: set[int] = field(default_factory=set)  # and this was answered
    hosts_killed: int = 0  # shell hosts, with which the ends of their jobs may be lost
    moments: list[str] = field(default_factory=list)  # how each life ended


class Lives:
    """One state directory, and who lived in it."""

    def __init__(self, directory: Path, edition: Edition, rng: random.Random) -> None:
        self.directory = directory
        self.edition = edition
        self.memory = Memory()
        self._rng = rng
        self._config = directory / "config.toml"
        self._config.write_text(CONFIG.format(edition=edition.name))
        self._is_ending = False
        (directory / RUNS_FILE).touch()

    def live(self) -> None:
        """Start, give it work and trouble, and kill it at a moment of chance."""
        trouble = draw_trouble(self._rng)
        self._is_ending = False
        copying = trouble is Trouble.BACKUP
        with self._started() as process:
            if self._rng.random() < 0.25:
                after = self._rng.uniform(0, START_S_MAX)
                time.sleep(after)
                self.memory.moments.append(f"{after:.3f} s after it was started")
            else:
                wait_until_ready(process)
                after = self._rng.uniform(0, COPYING_S_MAX if copying else BUSY_S_MAX)
                with self._submitting(), self._backing_up(trouble):
                    trio.run(self._give_work, after, trouble, process.pid)
                    self.memory.moments.append(f"{after:.3f} s after it was ready; {trouble}")
                    process.kill()  # before the command's end is awaited
            process.kill()
            is_ending = trouble is Trouble.ENDING and process.wait() == 0
            assert is_ending or process.wait() == -signal.SIGKILL, "it ended by itself"
        if self._rng.random() < FLIPPED:
            self.memory.moments.append(flip_a_bit(self.directory, self._rng))
        if self._rng.random() < REPAIRED:
            self.memory.moments.append(repair(self.directory))

    @contextmanager
    def last(self) -> Iterator[subprocess.Popen[str]]:
        """A life that ends in peace, unless the block raises."""
        with self._started() as process:
            wait_until_ready(process)
            yield process
            process.terminate()
            assert process.wait(DEADLINE_S) == 0

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[str]]:
        for name in (URI_FILE, TOKEN_FILE):  # of the life before
            (self.directory / name).unlink(missing_ok=True)
        words: list[str | Path] = ["start", "--config", self._config, "--statedir", self.directory]
        process = subprocess.Popen(
            [*FLUX_TRIO, *words], env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    async def _give_work(self, seconds: float, trouble: Trouble, pid: int) -> None:
        try:
            with trio.CancelScope() as scope:
                async with connected(self.directory) as client, trio.open_nursery() as nursery:
                    scope.deadline = trio.current_time() + seconds
                    nursery.start_soon(self._submit, client)
                    nursery.start_soon(self._cancel, client)
                    nursery.start_soon(self._purge, client)
                    await self._trouble(trouble, client, self._rng.uniform(0, seconds), pid)
                    await trio.sleep_forever()
        except* ClientError:
            pass  # it was killed under us

    async def _trouble(self, trouble: Trouble, client: Client, after: float, pid: int) -> None:
        match trouble:
            case Trouble.HOST:
                await trio.sleep(after)
                self.memory.hosts_killed += kill_hosts(self.directory)
            case Trouble.APART | Trouble.MODULE:
                name = await self._take_apart(client)
                await trio.sleep(after)
                if trouble is Trouble.MODULE:
                    await self._kill_module(client, name)
            case Trouble.ENDING:
                await trio.sleep(after)
                self._is_ending = True
                os.kill(pid, signal.SIGTERM)
            case Trouble.FULL:
                await trio.sleep(after)
                make_room(pid, room=False)
                await trio.sleep(self._rng.uniform(0, BUSY_S_MAX))
                make_room(pid, room=True)

    async def _submit(self, client: Client) -> None:
        left = self._rng.randrange(JOBS_MAX)
        while left > 0:
            count = self._rng.randint(1, 10)
            left -= count
            answers = await client.submit_many([self._jobspec() for _ in range(count)])
            for answer in answers:
                is_full = isinstance(answer, FluxError) and answer.errnum == Errno.ENOSPC
                assert isinstance(answer, int) or is_full or self._is_ending, answer
            self.memory.submitted += [each for each in answers if isinstance(each, int)]
            await trio.sleep(self._rng.uniform(0, 0.05))

    async def _cancel(self, client: Client) -> None:
        while True:
            await trio.sleep(self._rng.uniform(0.02, 0.2))
            if not self.memory.submitted:
                continue
            jobid = self._rng.choice(self.memory.submitted[-20:])
            self.memory.asked_to_cancel.add(jobid)
            try:
                await client.call(
                    topics.JOB_RAISE, {"id": jobid, "severity": 0, "type": "cancel", "note": ""}
                )
            except FluxError:
                continue  # it is over already
            self.memory.canceled.add(jobid)

    async def _purge(self, client: Client) -> None:
        while True:
            await trio.sleep(self._rng.uniform(0.05, 0.2))
            over = [each for each in self.memory.submitted[:-20] if each not in self.memory.purged]
            if not over:
                continue
            jobid = self._rng.choice(over)
            was_asked = jobid in self.memory.asked_to_purge
            self.memory.asked_to_purge.add(jobid)
            try:
                await client.call(topics.JOB_PURGE_ID, {"id": jobid, "force": True})
            except FluxError as error:  # it is active, or gone, or there is no room
                is_sure = error.errnum != Errno.ENOSYS  # the broker's: the job manager has left
                if is_sure and not was_asked:
                    self.memory.asked_to_purge.discard(jobid)
                continue
            self.memory.purged.add(jobid)

    async def _take_apart(self, client: Client) -> str:
        """Let a module, which is named, go on in a process that must end with the instance."""
        name = self._rng.choice(("sched", "job-exec"))
        await client.call(topics.MODULE_RELOAD, {"name": name, "exec": True})
        return name

    async def _kill_module(self, client: Client, name: str) -> None:
        """SIGKILL its process."""
        listed = await client.call(topics.MODULE_LIST)
        (pid,) = [module["pid"] for module in listed["modules"] if module["name"] == name]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _jobspec(self) -> dict[str, Any]:
        words = self._command(self._rng.choice((0, 0.01, 0.1, 0.4)))
        cores = self._rng.choice((1, 1, 2, 4))
        ntasks = self._rng.choice((1, 1, 2, 4))
        return Jobspec.from_command(
            words, ntasks=ntasks, cores_per_task=cores, cwd=str(self.directory)
        ).to_json()

    def _command(self, seconds: float) -> list[str]:
        return ["/bin/sh", "-c", TASK, str(self.directory / RUNS_FILE), str(seconds)]

    @contextmanager
    def _backing_up(self, trouble: Trouble) -> Iterator[None]:
        """Some lives are copied: a copy that is said to be whole has what was acknowledged."""
        if trouble is not Trouble.BACKUP:
            yield
            return
        known = [each for each in self.memory.submitted if each not in self.memory.asked_to_purge]
        copy = self.directory / "copy"
        process = subprocess.Popen(
            [*FLUX_TRIO, "backup", copy],
            env=environment(FLUX_TRIO_STATEDIR=str(self.directory)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield
        finally:
            if process.wait(DEADLINE_S) == 0:
                asked = self.memory.asked_to_purge
                known = [each for each in known if each not in asked]
                assert all(_kept_in(copy, known)), "the copy lacks a job"
            shutil.rmtree(copy, ignore_errors=True)

    @contextmanager
    def _submitting(self) -> Iterator[None]:
        """Some lives also have a `flux-trio submit`: an id that it printed is acknowledged."""
        if self._rng.random() < 0.5:
            yield
            return
        process = subprocess.Popen(
            [*FLUX_TRIO, "submit", "--cwd", self.directory, *self._command(0.05)],
            env=environment(FLUX_TRIO_STATEDIR=str(self.directory)),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            yield
        finally:
            printed, _ = process.communicate(timeout=DEADLINE_S)
            self.memory.submitted += [parse_fluid(line) for line in printed.split()]


def _kept_in(copy: Path, jobids: list[int]) -> list[bool]:
    """Whether a copy of a state directory has the jobspec of each of these jobs."""
    assert check_file(copy / STATE_FILE).damage == []
    with closing(SqliteStore(copy / STATE_FILE)) as store:
        found = store.lookup([job_key(jobid, "jobspec") for jobid in jobids])
    return [each is not None for each in found]


def connected(directory: Path) -> AbstractAsyncContextManager[Client]:
    """A client of the instance in `directory`."""
    uri, token = ((directory / name).read_text() for name in (URI_FILE, TOKEN_FILE))
    return open_client(uri, token)


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Until it says so. Raises AssertionError when it ends instead."""
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline(), "the instance did not come up"
