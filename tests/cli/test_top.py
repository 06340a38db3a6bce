"""`flux-trio top`: its panes, its keys, and a real terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from flux_trio.cli.jobs.top_screen import Snapshot, View, screen
from flux_trio.formats import Idset, ResourceSet, format_fluid
from tests.support.instance import RunningInstance
from tests.support.terminal import on_terminal

NOW = 10_000.0
FOUR = ResourceSet.build([(rank, 0b11, 0) for rank in range(4)], lambda rank: f"n{rank}")


def job(jobid: int, ranks: str, **more: Any) -> dict[str, Any]:
    return {
        "id": jobid, "userid": 12345, "urgency": 16, "priority": 16, "state": 16, "ntasks": 2,
        "t_submit": NOW - 100, "t_run": NOW - 90, "ranks": ranks, "nnodes": 1, "ncores": 2,
        "name": f"job{jobid}", **more,
    }  # fmt: skip


def snapshot(*jobs: dict[str, Any], **more: Any) -> Snapshot:
    states = {"depend": 1, "priority": 0, "sched": 2, "run": 2, "cleanup": 1, "inactive": 7}
    results = {"successful": 4, "failed": 1, "canceled": 1, "timeout": 1}
    told: dict[str, Any] = {
        "info": {"version": "1.0", "t_start": NOW - 7200},
        "status": {"R": FOUR.to_json(), "drained": {}, "offline": "", "exclude": ""},
        "stats": {"job_states": states, **results},
        "queues": (),
        "jobs": jobs,
        "now": NOW,
    }
    return Snapshot(**told | more)


def shown(told: Snapshot, view: View = View(), height: int = 20) -> list[str]:  # noqa: B008
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        console.print(screen(told, view, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_summary_tells_what_is_used_down_and_counted() -> None:
    drained = {"3": {"timestamp": 1.0, "reason": ""}}
    status = {"R": FOUR.to_json(), "drained": drained, "offline": "", "exclude": ""}
    head, nodes, cores, counts, *_ = shown(snapshot(job(1, "0-1", ncores=4), status=status))
    assert head == "size: 4  left: ∞  uptime: 2h  flux-trio 1.0"
    assert nodes == f" nodes [{'|' * 20}{' ' * 10}{'|' * 10}] 2/4 (1 down)"
    assert cores == f" cores [{'|' * 20}{' ' * 10}{'|' * 10}] 4/8 (2 down)"
    assert counts == "  jobs: 3 pending, 3 running, 4 complete, 3 failed"


def test_gpus_have_a_bar_if_there_are_any() -> None:
    gpus = ResourceSet.build([(rank, 0b11, 0b11) for rank in range(4)], lambda rank: f"n{rank}")
    status = {"R": gpus.to_json(), "drained": {}, "offline": "3", "exclude": ""}
    held = gpus.restrict(Idset.of([0, 1])).to_json()
    lines = shown(snapshot(job(1, "0-1", ncores=4), status=status, held=held))
    assert lines[3] == f"  gpus [{'|' * 20}{' ' * 10}{'|' * 10}] 4/8 (2 down)"


def test_narrow_terminal_has_short_bars_and_lines_that_are_cut_off() -> None:
    console = Console(file=io.StringIO(), width=40)
    with console.capture() as capture:
        console.print(screen(snapshot(job(1, "0")), View(), 20, 40))
    lines = capture.get().splitlines()
    assert lines[1] == f" nodes [{'|' * 4}{' ' * 11}] 1/4"
    assert [len(line) <= 40 for line in lines] == [True] * 7
    assert lines[5].startswith("JOBID  ")
    assert lines[6].startswith(f"   {format_fluid(1, 'f58')}  ")


def test_jobs_are_listed_with_how_long_they_run() -> None:
    *_, header, line = shown(snapshot(job(1, "0")))
    assert header.split() == ["JOBID", "USER", "ST", "NTASKS", "NNODES", "RUNTIME", "NAME"]
    assert line.split() == [format_fluid(1, "f58"), "12345", "R", "2", "1", "1.5m", "job1"]
    *_, header, line = shown(snapshot(job(1, "0", queue="batch"), queues=("batch",)))
    assert (header.split()[1], line.split()[1]) == ("QUEUE", "batch")


def test_the_job_at_the_cursor_is_always_seen() -> None:
    many = snapshot(*[job(number, "0") for number in range(30)])
    assert shown(many, height=10)[-1].split()[-1] == "job3"
    assert shown(many, View(cursor=20), height=10)[-1].split()[-1] == "job20"


def keys(told: Snapshot, *pressed: str) -> View:
    view = View()
    for key in pressed:
        view = view.after(key, told)
    return view


def test_keys_move_choose_and_end() -> None:
    told = snapshot(job(1, "0"), job(2, "0"), queues=("a", "b"))
    assert keys(told, "j").cursor == 1
    assert keys(told, "j", "\x1b[B", "j").cursor == 1
    assert keys(told, "j", "k", "\x1b[A").cursor == 0
    assert [keys(told, *["l"] * times).queue for times in range(4)] == [None, "a", "b", None]
    assert keys(told, "h").queue == "b"
    assert keys(told, "j", "l").cursor == 0
    assert not keys(told, "x").ended
    assert keys(told, "q").ended
    assert "7 inactive" in shown(told, keys(told, "d"))[3]


@pytest.mark.real
def test_it_is_shown_once_where_there_is_no_terminal(instance: RunningInstance) -> None:
    running = instance.submitted("--wait-event=start", "sleep", "100")
    told = instance.ok("top").splitlines()
    assert told[0].startswith("size: 2  left: ∞")
    assert told[1].endswith("] 1/2")
    assert told[-1].split()[0] == running
    instance.ok("cancel", running)


@pytest.mark.real
def test_a_terminal_shows_it_until_q(instance: RunningInstance) -> None:
    size = {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with on_terminal("top", **instance.env, **size) as terminal:
        assert "\x1b[?1049h" in terminal.until("jobs: ")  # a screen of its own
        terminal.press("q")
        rest, code = terminal.until_end()
    assert "\x1b[?1049l" in rest
    assert code == 0


@pytest.mark.real
def test_queue_that_is_not_there_is_an_error(instance: RunningInstance) -> None:
    assert instance.refused("top", "-q", "nosuch") == "queue nosuch not configured"
