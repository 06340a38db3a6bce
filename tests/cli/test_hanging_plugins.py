"""Thirteen ways in which a plugin never ends: SIGTERM ends the instance, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import IO

import pytest

from flux_trio.cli.instance.ending import INSTANCE_S
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    TWO_NODES,
    RunningInstance,
    environment,
    running_instance,
    until,
)

pytestmark = pytest.mark.real

LIMIT_S = 1  # seconds of CPU time in one call
STATED_S = 2.0  # in place of INSTANCE_S where the end of what holds the instance does not come

# A job of one of these names lets its hook hold up the instance.
HANGS = """
    import asyncio, atexit, ctypes, hashlib, os, threading, time
    from collections import deque
    from itertools import repeat
    import trio
    from flux_trio import jobtap
    from flux_trio.cli.instance import ending
    from flux_trio.jobtap import lock_timers, tasks

    tasks.END_S = ending.LEFT_S = lock_timers.LOCK_S = 0.5
    ending.INSTANCE_S = $INSTANCE_S

    def name_of(job):
        return job.raw_jobspec["attributes"]["system"].get("job", {}).get("name")

    class Hangs(jobtap.Plugin):
        deadline = 0.1

        @jobtap.on("job.validate")
        def validate(self, job):
            if name_of(job) in AT_ONCE:
                AT_ONCE[name_of(job)]()

        @jobtap.on("job.state.depend")
        async def depend(self, job):
            if name_of(job) == "task":
                self.start_soon(swallows)
            elif name_of(job) in LATER:
                await LATER[name_of(job)]()

    async def waits():
        await trio.sleep_forever()

    async def thread():
        await trio.to_thread.run_sync(time.sleep, 1000)

    async def shield():
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def swallows():
        while True:
            try:
                await trio.sleep(1000)
            except BaseException:
                pass

    async def child():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(swallows)

    async def generator():
        async for _ in generate():
            return

    async def generate():
        try:
            yield
        finally:
            await swallows()

    async def own_thread():
        threading.Thread(target=time.sleep, args=[1000], name="mine").start()

    async def at_exit():
        atexit.register(time.sleep, 1000)

    def loop():
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    def c_loop():
        hashlib.pbkdf2_hmac("sha512", b"a", b"b", 10**9)  # many minutes, without Python's lock

    def c_loop_with_lock():
        deque(repeat(0), maxlen=0)

    def c_wait():
        mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)  # its own: for ever, whatever signals come

    AT_ONCE = {each.__name__: each for each in (loop, c_loop, c_loop_with_lock, c_wait)}
    LATER = {each.__name__: each for each in
             (waits, thread, shield, swallows, child, generator, own_thread, at_exit)}
    """

WAIT = ("waits", "thread", "shield", "swallows", "child", "task", "generator", "own_thread")
LOOPS = ("loop", "c_loop", "c_loop_with_lock")


class Hanging:
    """An instance with the plugin, one finished job and one that waits."""

    def __init__(self, instance: RunningInstance, plugin: Path, errors: Path) -> None:
        self.instance = instance
        self.plugin = plugin
        self._errors = errors
        self.finished = instance.over(instance.submitted("true"))
        self.waiting = instance.submitted("--urgency=hold", "true")

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def begin(self, way: str) -> subprocess.Popen[bytes]:
        """Submit a job whose hook holds the instance, and do not wait for the answer."""
        return subprocess.Popen(
            [*FLUX_TRIO, "submit", "--job-name", way, "true"],
            env=self.instance.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def assert_ends(self) -> None:
        self.instance.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        self.instance.process.wait(DEADLINE_S)
        assert time.monotonic() - began < DEADLINE_S / 2

    def assert_nothing_is_lost(self, log: str) -> None:
        """The next instance has both jobs, and logs how the last one ended."""
        errors = self._errors.with_name("next")
        with errors.open("w") as stderr, started(self.instance.statedir, stderr) as again:
            assert again.ok("jobs", "-n", "-a", "-o", "{id} {state}", self.finished) == (
                f"{self.finished} INACTIVE\n"
            )
            again.ok("job", "urgency", self.waiting, "default")
            again.over(self.waiting)
            (line,) = errors.read_text().splitlines()
            assert line.partition(": ")[2] == f"the last instance: {log}"


@contextmanager
def started(statedir: Path, stderr: IO[str]) -> Iterator[RunningInstance]:
    with running_instance(statedir, TWO_NODES, stderr, judged=False) as instance:
        yield instance


@contextmanager
def hanging(
    tmp_path: Path, limit: str = f"{LIMIT_S}s", instance_s: float = INSTANCE_S
) -> Iterator[Hanging]:
    plugin, errors = tmp_path / "hangs.py", tmp_path / "errors"
    plugin.write_text(dedent(HANGS).replace("$INSTANCE_S", str(instance_s)))
    config = f'[job-manager]\nplugin-loop-limit = "{limit}"\n{TWO_NODES}'
    with (
        errors.open("w") as stderr,
        running_instance(tmp_path / "state", config, stderr, judged=False) as instance,
    ):
        instance.ok("jobtap", "load", plugin)
        yield Hanging(instance, plugin, errors)


def test_whatever_waits_is_left_behind(tmp_path: Path) -> None:
    """All at once: nine of the thirteen."""
    with hanging(tmp_path) as held:
        for way in (*WAIT, "at_exit"):
            held.instance.submitted("--job-name", way, "true")
        held.assert_ends()
        ended = "flux-trio: has ended; left behind: "
        (said,) = [each for each in held.errors.splitlines() if each.startswith(ended)]
        for way in ("task swallows", "thread mine", *["job.state.depend for job "] * 4):
            assert way in said
        assert said.count("job.state.depend for job ") == 4  # thread, shield, swallows, child
        held.assert_nothing_is_lost(said.removeprefix("flux-trio: "))


@pytest.mark.parametrize("way", ["loop", pytest.param("c_loop", marks=pytest.mark.gate)])
def test_loop_ends_the_process_when_it_has_used_its_cpu_time(tmp_path: Path, way: str) -> None:
    with hanging(tmp_path) as held:
        command = held.begin(way)
        assert held.instance.process.wait(DEADLINE_S) == 1
        command.wait(DEADLINE_S)
        said = f"has used {LIMIT_S} s of CPU time in one call, which ends the process"
        (ended,) = [each for each in held.errors.splitlines() if said in each]
        assert ended.startswith("flux-trio: plugin hangs: job.validate for job ƒ")
        line = line_of(held.plugin, way)
        assert f"({held.plugin}:" in ended
        assert line <= int(ended.rpartition(":")[2].rstrip(")")) < line + 7
        held.assert_nothing_is_lost(ended.removeprefix("flux-trio: "))


@pytest.mark.gate
def test_loop_in_c_that_keeps_the_lock_ends_the_process_and_is_named_by_the_next(
    tmp_path: Path,
) -> None:
    with hanging(tmp_path) as held:
        command = held.begin("c_loop_with_lock")
        assert held.instance.process.wait(DEADLINE_S) == -signal.SIGPROF
        command.wait(DEADLINE_S)
        line = line_of(held.plugin, "c_loop_with_lock") + 1
        place = f"({held.plugin}:{line})"
        held.assert_nothing_is_lost(f"ended while code in C kept Python's lock {place}")


@pytest.mark.parametrize("way", [pytest.param("loop", marks=pytest.mark.gate), "c_wait"])
def test_sigterm_ends_a_process_that_is_held(tmp_path: Path, way: str) -> None:
    with hanging(tmp_path, "inf", STATED_S) as held:
        command = held.begin(way)
        until(lambda: "plugin hangs: job.validate for job" in held.errors)
        held.assert_ends()
        command.wait(DEADLINE_S)
        assert held.instance.process.returncode == 1
        what = (
            f"after {STATED_S:g} s: it waited for the instance; plugin hangs: job.validate for job"
        )
        if way != "loop":
            what = f"{STATED_S:g} s after a signal that its main thread did not take; plugin hangs"
        (ended,) = [each for each in held.errors.splitlines() if f"ended {what}" in each]
        held.assert_nothing_is_lost(ended.removeprefix("flux-trio: "))


def line_of(plugin: Path, way: str) -> int:
    """The line in which the function of this name begins."""
    for number, text in enumerate(plugin.read_text().splitlines(), 1):
        if text == f"def {way}():":
            return number
    raise AssertionError


# --- what only takes long


def test_process_that_is_stopped_and_one_that_asks_a_debugger_go_on(tmp_path: Path) -> None:
    plugin, errors = tmp_path / "asks.py", tmp_path / "errors"
    plugin.write_text(
        "from flux_trio import jobtap\n"
        "@jobtap.on('job.validate')\n"
        "def validate(job):\n"
        "    if 'job' in job.raw_jobspec['attributes']['system']:\n"
        "        breakpoint()\n"
    )
    config = f'[job-manager]\nplugin-loop-limit = "{LIMIT_S}s"\n{TWO_NODES}'
    statedir = tmp_path / "state"
    statedir.mkdir()
    (tmp_path / "config.toml").write_text(config)
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [*FLUX_TRIO, "start", "-c", tmp_path / "config.toml", "--statedir", statedir],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        instance = RunningInstance(statedir, process, process.stdout.readline())
        instance.ok("jobtap", "load", plugin)
        asking = Hanging(instance, plugin, errors).begin("asks")
        until(lambda: "job.validate for job" in errors.read_text())
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(LIMIT_S * 1.5)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(LIMIT_S * 1.5)
        process.stdin.write("continue\n")
        process.stdin.flush()
        assert asking.wait(DEADLINE_S) == 0
        instance.over(instance.submitted("true"))
        instance.cancel_all()
        assert instance.stop() == 0
    finally:
        process.kill()
        process.communicate()
