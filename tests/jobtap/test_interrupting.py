"""Code of a plugin that holds the instance is interrupted, and the instance lives."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.formats import FormatError
from flux_trio.jobtap import PluginError, PluginLoop
from flux_trio.jobtap.watchdog import SIGNAL, is_plugins
from flux_trio.protocols import AskHook
from tests.support.plugin_host import JOB, PRIORITY, Rig, handling, rig

SOON_S = 0.02  # so long may code run here before it is interrupted
SAID = "PluginLoop: it held the instance for 0.02 s without a checkpoint, and was interrupted"


def impatient(r: Rig) -> None:
    r.host.watchdog.loop_s = SOON_S


def loops(_job: jobtap.Job) -> None:
    while True:
        pass


def loops_in_calls(job: jobtap.Job) -> None:
    while True:
        job.event_posted("memo")  # most of the time it is in the host's code


def loops_in_a_library(_job: jobtap.Job) -> None:
    while True:
        json.loads("[" * 50 + "]" * 50)


def catches_exceptions(_job: jobtap.Job) -> None:
    while True:
        try:
            time.sleep(1e-4)
            raise ValueError
        except Exception:  # noqa: BLE001 - as people write it
            pass


def sleeps(_job: jobtap.Job) -> None:
    time.sleep(1e6)


def loops_in_finally(_job: jobtap.Job) -> None:
    try:
        loops(_job)
    finally:
        loops(_job)


def fails_to_print(_job: jobtap.Job) -> None:
    class Odd(Exception):
        def __str__(self) -> str:  # noqa: PLE0307 - it never returns
            while True:
                pass

    raise Odd


@pytest.mark.parametrize(
    "function",
    [loops, loops_in_calls, loops_in_a_library, catches_exceptions, sleeps, loops_in_finally],
)
async def test_handler_that_loops_fails_and_the_host_lives(function: Callable[[Any], None]) -> None:
    raised: list[BaseException] = []
    jobtap.failure_listeners.set((raised.append,))
    # a function of its own, since decorators mark functions
    async with rig(handling(PRIORITY, lambda job: function(job)), blocked_s=0.01) as r:
        impatient(r)
        error = r.answer().error or ""
        assert error.startswith(f"plugin a failed in {PRIORITY} for job ƒ8: PluginLoop: it held")
        assert r.answer("job.state.run").error is None
        place = [each for each in r.logged if "PluginLoop" in each]
        assert f"({__file__}:" in place[0]
    (told,) = raised
    *_, interrupted, handler = traceback.extract_tb(told.__traceback__)
    assert handler.name == "_handle"
    assert not interrupted.filename.startswith(str(Path(jobtap.__file__).parents[1]))


async def test_error_whose_text_loops_is_described() -> None:
    async with rig(handling(PRIORITY, lambda job: fails_to_print(job)), blocked_s=0.01) as r:
        impatient(r)
        assert "Odd: (its text cannot be told: PluginLoop)" in (r.answer().error or "")


async def test_async_handler_and_task_that_loop_fail() -> None:
    async def loops_later(_job: Any) -> None:
        await trio.lowlevel.checkpoint()
        loops(_job)

    plugin = handling(PRIORITY, loops_later)
    async with rig(plugin, blocked_s=0.01) as r:
        impatient(r)
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert SAID in (r.answers[0].answer.error or "")
        plugin.start_soon(loops_later, None)
        await trio.testing.wait_all_tasks_blocked()
        assert any("task loops_later ended: PluginLoop" in text for text in r.logged)


class EndlessLoads(jobtap.Plugin):
    name = "endless"

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        if self.conf.get("conf"):
            loops(None)  # type: ignore[arg-type]  # it looks at no job

    def loaded(self) -> None:
        if self.conf.get("loaded"):
            loops(None)  # type: ignore[arg-type]  # as above

    def removed(self) -> None:
        loops(None)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("where", ["conf", "loaded"])
async def test_plugin_that_loops_while_it_is_loaded_or_removed_is_not_there(where: str) -> None:
    async with rig(blocked_s=0.01) as r:
        impatient(r)
        with pytest.raises(PluginError, match="PluginLoop: it held the instance"):
            await r.host.load(EndlessLoads(), {where: 1})
        assert r.host.names() == []
        assert any("failed when it was removed: PluginLoop" in text for text in r.logged)


@pytest.mark.parametrize("body", ["while True: pass", "class P(jobtap.Plugin):\n __init__ = loop"])
async def test_file_that_loops_when_it_is_run_is_no_plugin(tmp_path: Path, body: str) -> None:
    file = tmp_path / "endless.py"
    loop = "def loop(self):\n  while True: pass\n"
    file.write_text(f"from flux_trio import jobtap\n{loop}{body}\n")
    async with rig(blocked_s=0.01) as r:
        impatient(r)
        with pytest.raises(PluginError, match=r"endless\.py.*PluginLoop"):
            r.host.find_code(jobtap.Loader(), str(file))
        await trio.testing.wait_all_tasks_blocked()
        assert r.logged[0].startswith(f"the file of plugin {file} blocked the instance")


async def test_nothing_is_raised_in_other_code() -> None:
    frames = []

    def seen(_job: jobtap.Job) -> None:
        frames.append(sys._getframe())
        frames.append(sys._getframe(1))

    async with rig(handling(PRIORITY, seen)) as r:
        r.answer()
        assert [is_plugins(frame) for frame in frames] == [True, False]
        assert not is_plugins(sys._getframe())  # no code of the host has called it
        r.host.watchdog.interrupter.interrupt(object(), "not running any more")
        assert signal.getsignal(SIGNAL) != signal.SIG_DFL
    assert not is_plugins(None)
    assert signal.getsignal(SIGNAL) == signal.SIG_DFL


async def test_nothing_is_raised_in_what_the_host_does_for_a_plugin() -> None:
    seen = []

    class Jobs:
        """Stands for a library that the host uses."""

        def get(self, _jobid: int) -> None:
            seen.append(is_plugins(sys._getframe()))

        def active(self) -> list[Any]:
            return []

    async with rig(handling(PRIORITY, lambda job: job.event_posted("memo"))) as r:
        r.host.jobs = Jobs()
        r.host.ask(AskHook(1, PRIORITY, JOB))
    assert seen == [False]


async def test_instance_beside_another_one_says_that_it_is_not_covered(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with rig(handling(PRIORITY, lambda job: None)), rig(blocked_s=0.01) as r:
        await block_until_named(r)
    assert "blocked and nothing interrupts it: something else in this process handles SIGURG" in (
        capfd.readouterr().err
    )


def test_instance_in_another_thread_says_that_it_is_not_covered(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        async with rig(blocked_s=0.01) as r:
            await block_until_named(r)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    thread.join()
    text = "blocked and nothing interrupts it: the instance does not run in the main thread"
    assert text in capfd.readouterr().err


async def block_until_named(r: Rig) -> None:
    impatient(r)

    def blocks(_job: jobtap.Job) -> None:
        while r.host.watchdog.reported is None:
            time.sleep(0.001)

    await r.host.load(handling(PRIORITY, blocks, "blocks"))
    r.answer()


PROGRAM = """
    import hashlib, os, signal, sys, trio
    from flux_trio import jobtap
    from tests.support.plugin_host import PRIORITY, handling, rig

    def swallows(job):
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    def in_c(job):
        os.kill(os.getpid(), signal.SIGTERM)
        hashlib.pbkdf2_hmac("sha512", b"a", b"b", 10**9)  # many minutes, without the GIL

    async def main():
        with trio.open_signal_receiver(signal.SIGTERM):
            async with rig(handling(PRIORITY, globals()[sys.argv[1]]), blocked_s=0.02) as r:
                r.host.watchdog._term_s = 0.1
                r.ask()
                print("went on")

    trio.run(main)
    """


def run_program(name: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", dedent(PROGRAM), name]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=root, check=False, timeout=120
    )


@pytest.mark.parametrize("name", ["swallows", "in_c"])
def test_process_whose_plugin_cannot_be_interrupted_ends_after_sigterm(name: str) -> None:
    done = run_program(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ended 0.1 s after SIGTERM: a plugin goes on" in done.stderr
    assert f"in {name}" in done.stderr


KEEPS_THE_LOCK = """
    import ctypes, trio
    from flux_trio.jobtap.watchdog import Watchdog

    def keeps_the_lock(): ctypes.PyDLL(None).usleep(500_000)

    async def main():
        watchdog = Watchdog(0.01, print)
        watchdog._lock_s = 0.1
        watchdog.start()
        keeps_the_lock()
        watchdog.stop()

    trio.run(main)
    """


def test_code_in_c_that_keeps_the_lock_of_python_is_named() -> None:
    command = [sys.executable, "-c", dedent(KEEPS_THE_LOCK)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "in keeps_the_lock" in done.stderr
    assert "code in C kept the interpreter's lock" in done.stderr


def test_loop_is_no_exception_that_a_plugin_catches() -> None:
    assert not issubclass(PluginLoop, Exception)


@pytest.mark.parametrize("value", ["0.5s", "soon"])
def test_limit_is_a_second_at_least(value: str) -> None:
    with pytest.raises(FormatError, match="plugin-loop-limit"):
        parse_config(f"[job-manager]\nplugin-loop-limit = '{value}'\n")


async def test_limit_is_that_of_the_configuration() -> None:
    config = parse_config("[job-manager]\nplugin-loop-limit = '2m'\n")
    async with rig(config=config) as r:
        assert r.host.watchdog.loop_s == 120
        r.ask("conf.update", None, parse_config("[job-manager]\nplugin-loop-limit = 'inf'\n"))
        assert r.host.watchdog.loop_s == float("inf")
