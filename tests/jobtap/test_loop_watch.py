"""Code of a plugin that never gives the processor back is named, and may end the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from traceback import FrameSummary

import pytest
import trio
import trio.testing

from flux_trio import jobtap
from flux_trio.config import parse_config
from flux_trio.formats import FormatError
from flux_trio.jobtap import OwnProcess, PluginError, ending_with_plugins, reason_of_end
from flux_trio.jobtap.lock_timers import SAY_S, LockTimers, frames_of_plugin, leave_note, place_of
from flux_trio.jobtap.loop_watch import held
from tests.support.instance import DEADLINE_S
from tests.support.plugin_host import PRIORITY, Rig, handling, rig

LOOK_S = 0.1  # a step of a task is shorter, even where it has to wait for a processor
SOON_S = 250.0  # what does not come by then fails the test


class Blocks:
    """What a plugin must not do, until it was named `times` or `is_over`."""

    def __init__(self, r: Rig, times: int = 1) -> None:
        self.is_over = threading.Event()
        self.held: list[str] = []
        self._watch, self._times = r.host.watch, times

    def until_named(self, *, busy: bool = False) -> None:
        began, given_up = self._watch.nnamed, time.monotonic() + SOON_S
        while not self.is_over.is_set() and self._watch.nnamed < began + self._times:
            assert time.monotonic() < given_up
            if not busy:
                time.sleep(0.001)
        self.held = held()


def is_in(text: str, function: Callable[..., object]) -> bool:
    """Whether a stack in a text has a line of this function, whichever it was at."""
    lines = {line for _, _, line in function.__code__.co_lines()}
    name = function.__name__
    return any(f'{__file__}", line {each}, in {name}' in text for each in lines)


async def test_handler_that_blocks_the_instance_is_named_with_its_stack(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with rig(look_s=LOOK_S) as r:
        blocks = Blocks(r)
        await r.host.load(handling(PRIORITY, lambda job: blocks.until_named()))
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        (text,) = r.logged
        first, _, stack = text.partition("\n")
        assert first.startswith(f"plugin a: {PRIORITY} for job ƒ8 holds the instance, for 0.1 s")
        assert f" ({__file__}:" in first
        assert is_in(stack, Blocks.until_named)
        assert blocks.held == [first]
        await until(lambda: held() == [])
    assert first in capfd.readouterr().err


async def test_it_is_named_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.jobtap.loop_watch.AGAIN_S", 2 * LOOK_S)
    async with rig(look_s=LOOK_S) as r:
        blocks = Blocks(r, times=3)
        await r.host.load(handling(PRIORITY, lambda job: blocks.until_named()))
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert len(r.logged) == 3


async def test_async_handlers_tasks_and_their_children_that_block_are_named_too() -> None:
    async with rig(look_s=LOOK_S) as r:

        async def blocks(_job: jobtap.Job | None) -> None:
            await trio.lowlevel.checkpoint()
            Blocks(r).until_named()
            await trio.lowlevel.checkpoint()

        async def parent() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(blocks, None)

        plugin = handling(PRIORITY, blocks)
        await r.host.load(plugin)
        for begin in (
            r.ask,
            lambda: plugin.start_soon(blocks, None),
            lambda: plugin.start_soon(parent),
        ):
            begin()
            await trio.testing.wait_all_tasks_blocked()
        assert [text.partition(" holds")[0] for text in r.logged] == [
            f"plugin a: {PRIORITY} for job ƒ8",
            "plugin a: task blocks",
            "plugin a: task parent",
        ]
        assert all(is_in(text, Blocks.until_named) for text in r.logged)


async def test_task_that_waits_holds_nothing() -> None:
    async with rig(look_s=LOOK_S) as r:
        plugin = handling(PRIORITY, lambda job: None)
        await r.host.load(plugin)
        plugin.start_soon(trio.sleep_forever)
        await trio.sleep(3 * LOOK_S)
        assert r.host.watch.nnamed == 0


async def test_file_that_blocks_when_it_is_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "blocks.py"
    file.write_text("import sys, time\nwhile not sys.watch_of_test.nnamed: time.sleep(0.001)\n")
    async with rig(look_s=LOOK_S) as r:
        monkeypatch.setattr(sys, "watch_of_test", r.host.watch, raising=False)
        with pytest.raises(PluginError, match="expected a jobtap"):
            r.host.find_code(jobtap.Loader(), str(file))
        await trio.testing.wait_all_tasks_blocked()
        assert r.logged[0].startswith(f"the file of plugin {file} holds the instance")
        assert f" ({file}:2)" in r.logged[0]


async def test_watch_is_there_when_it_is_needed_and_ends_with_the_host() -> None:
    before = threading.active_count()
    async with rig(handling(PRIORITY, lambda job: None, ".builtin")) as r:
        assert threading.active_count() == before
        await r.host.load(handling(PRIORITY, lambda job: None))
        await r.host.load(handling(PRIORITY, lambda job: None, "b"))
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


async def until(claim: Callable[[], object]) -> None:
    given_up = trio.current_time() + SOON_S
    while not claim():
        assert trio.current_time() < given_up
        await trio.sleep(LOOK_S)


# --- the limit


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[list[str]]:
    """The reasons for which the process would have been ended."""
    reasons: list[str] = []
    with ending_with_plugins(OwnProcess(tmp_path / "held", reasons.append)):
        yield reasons


async def test_call_that_uses_too_much_cpu_time_ends_the_process(ended: list[str]) -> None:
    async with rig(look_s=LOOK_S) as r:
        # The timer that ends a process whose lock is kept has the same limit: with a shorter one it
        # could come first where there is no processor for the watch.
        r.host.watch.limit_s = 1.0

        def loops(_job: jobtap.Job) -> None:
            given_up = time.monotonic() + SOON_S
            while not ended:
                assert time.monotonic() < given_up

        await r.host.load(handling(PRIORITY, loops))
        r.ask()
        place = f"plugin a: {PRIORITY} for job ƒ8 has used 1 s of CPU time in one call"
        assert ended[0].startswith(place)
        await until(lambda: held() == [])
        assert f" ({__file__}:" in ended[0]


async def test_call_that_only_takes_long_ends_nothing(ended: list[str]) -> None:
    """As a debugger's prompt does, a process that is stopped, and one that gets no processor."""
    async with rig(look_s=LOOK_S) as r:
        r.host.watch.limit_s = 2 * LOOK_S
        blocks = Blocks(r)

        def takes_long(_job: jobtap.Job) -> None:
            blocks.until_named()
            time.sleep(3 * LOOK_S)

        await r.host.load(handling(PRIORITY, takes_long))
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert len(r.logged) == 1
        assert ended == []


async def test_short_calls_do_not_add_up(ended: list[str]) -> None:
    async with rig(look_s=LOOK_S) as r:
        r.host.watch.limit_s = 0.3

        def works(_job: jobtap.Job) -> None:
            until = time.thread_time() + 0.05
            while time.thread_time() < until:
                pass

        await r.host.load(handling(PRIORITY, works))
        for _ in range(12):
            r.ask()
        assert ended == []


async def test_program_of_others_is_not_ended() -> None:
    async with rig(look_s=LOOK_S) as r:
        r.host.watch.limit_s = LOOK_S
        blocks = Blocks(r, times=2)
        r.host.watch._look_s = LOOK_S
        await r.host.load(handling(PRIORITY, lambda job: blocks.until_named(busy=True)))

        def end_when_named() -> None:
            while not r.host.watch.nnamed:
                time.sleep(LOOK_S)
            time.sleep(3 * LOOK_S)
            blocks.is_over.set()

        threading.Thread(target=end_when_named).start()
        r.ask()
        assert r.host.watch.nnamed == 1


async def test_a_clean_end_leaves_no_note(ended: list[str], tmp_path: Path) -> None:
    async with rig(handling(PRIORITY, lambda job: None), look_s=LOOK_S):
        await until((tmp_path / "held").exists)
    assert not (tmp_path / "held").exists()
    assert ended == []


@pytest.mark.parametrize("value", ["0.5s", "soon"])
def test_limit_is_a_second_at_least(value: str) -> None:
    with pytest.raises(FormatError, match="plugin-loop-limit"):
        parse_config(f"[job-manager]\nplugin-loop-limit = '{value}'\n")


async def test_limit_is_that_of_the_configuration() -> None:
    config = parse_config("[job-manager]\nplugin-loop-limit = '2m'\n")
    async with rig(config=config) as r:
        assert r.host.watch.limit_s == 120
        r.ask("conf.update", None, parse_config("[job-manager]\nplugin-loop-limit = 'inf'\n"))
        assert r.host.watch.limit_s == float("inf")


# --- code in C that keeps Python's lock

KEEPS_THE_LOCK = """
    import ctypes, sys, trio
    from collections import deque
    from itertools import repeat
    from pathlib import Path
    from flux_trio.jobtap import lock_timers
    from flux_trio.jobtap.loop_watch import LoopWatch

    lock_timers.LOCK_S = 0.1
    lock_timers.SAY_S = 0.2

    def waits(): ctypes.PyDLL(None).usleep(500_000)
    def loops(): deque(repeat(0), maxlen=0)

    async def main():
        own = lock_timers.OwnProcess(Path(sys.argv[2]))
        with lock_timers.ending_with_plugins(own):
            watch = LoopWatch(0.01, str, print)
            watch.limit_s = 0.5
            watch.start()
            await trio.sleep(0.05)
            globals()[sys.argv[1]]()
            watch.stop()
            print("went on")

    trio.run(main)
    """


def run_program(way: str, note: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(KEEPS_THE_LOCK), way, note],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        cwd=Path(__file__).parents[2],
    )


def test_code_in_c_that_keeps_the_lock_of_python_is_named_and_ends_nothing(tmp_path: Path) -> None:
    done = run_program("waits", tmp_path / "held")
    assert done.returncode == 0
    went_on, said = done.stdout.splitlines()
    assert went_on == "went on"
    assert "s: code in C kept Python's lock, or the process was stopped (<string>:" in said
    assert said in done.stderr
    assert not (tmp_path / "held").exists()


def test_loop_in_c_that_keeps_the_lock_ends_the_process_and_the_next_one_is_told(
    tmp_path: Path,
) -> None:
    done = run_program("loops", tmp_path / "held")
    assert (done.returncode, done.stdout) == (-27, "")  # SIGPROF
    said = reason_of_end(tmp_path / "held")
    assert said.startswith("ended while code in C kept Python's lock (<string>:")
    assert not (tmp_path / "held").exists()


def frame(name: str, line: int) -> FrameSummary:
    return FrameSummary(name, line, "f")


def test_place_of_a_plugin_is_in_the_file_that_the_host_has_called() -> None:
    host = str(Path(jobtap.__file__).with_name("dispatch.py"))
    builtin = str(Path(jobtap.__file__).with_name("builtins") / "perilog.py")
    library, plugin = "/usr/lib/json/decoder.py", "/home/p.py"
    stack = [frame(library, 5), frame(plugin, 7), frame(plugin, 9), frame(host, 1), frame("m", 2)]
    assert place_of(frames_of_plugin(stack)) == f" ({plugin}:7)"
    calling_us = [frame(host, 3), *stack[1:]]
    assert place_of(frames_of_plugin(calling_us)) == f" ({plugin}:7)"
    assert place_of(frames_of_plugin([frame(builtin, 4), frame(host, 1)])) == f" ({builtin}:4)"
    assert place_of(frames_of_plugin([frame(host, 3), frame("m", 2)])) == ""
    assert place_of(frames_of_plugin([])) == ""


def test_note_is_told_once(tmp_path: Path) -> None:
    leave_note(tmp_path / "held", "ended at once")
    assert reason_of_end(tmp_path / "held") == "ended at once"
    assert reason_of_end(tmp_path / "held") == ""


def test_note_is_not_emptied_by_the_thread_that_goes_on_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_trio.jobtap.lock_timers.LOCK_S", 0.0)
    timers = LockTimers(tmp_path / "held", 1)
    leave_note(tmp_path / "held", "ended at once")
    assert timers.look(SAY_S) != ""  # the note of before is read and emptied
    assert reason_of_end(tmp_path / "held") == "ended at once"
    timers.close()


def test_note_of_an_instance_that_was_killed_says_nothing(tmp_path: Path) -> None:
    note = tmp_path / "held"
    assert reason_of_end(note) == ""
    note.write_text("the watched thread is 7f01\n")
    assert reason_of_end(note) == ""
