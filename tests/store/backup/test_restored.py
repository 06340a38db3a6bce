"""What a restored copy changes in the state, and what is restored of the jobs of a backup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flux_trio.config import parse_config
from flux_trio.cores.job_index import active_key
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.kvs.ops import Put
from flux_trio.formats import EVENTLOG, Event, Jobspec, format_eventlog, job_key, parse_eventlog
from flux_trio.messages import FluxError
from flux_trio.protocols import JobState, replay
from flux_trio.store.backup import Mark, restore, restoring, take
from flux_trio.store.backup.restoring import ending_event, stopped_checkpoint
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE

SUBMIT = Event(1.0, "submit", {"userid": 5, "urgency": 16, "flags": 0, "version": 1})
WAITING = [
    SUBMIT,
    Event(2.0, "validate"),
    Event(3.0, "depend"),
    Event(4.0, "priority", {"priority": 16}),
]
RUNNING = [*WAITING, Event(5.0, "alloc"), Event(6.0, "start")]


def spec(**attributes: Any) -> str:
    return json.dumps(Jobspec.from_command(["true"], attributes=attributes).to_json())


def event_for(events: list[Event], jobspec: str = "", now: float = 50.0) -> str | None:
    return ending_event(1, format_eventlog(events), jobspec or spec(), "a copy", now)


@pytest.mark.parametrize("nevents", [1, 3, 4])
def test_job_that_waits_is_left_alone(nevents: int) -> None:
    assert event_for(WAITING[:nevents]) is None


@pytest.mark.parametrize("nevents", [5, 6])
def test_job_with_resources_ends(nevents: int) -> None:
    eventlog = format_eventlog(RUNNING[:nevents])
    added = ending_event(1, eventlog, spec(), "a copy", 50.0)
    assert added is not None
    events = parse_eventlog(eventlog + added)
    assert events[-1] == Event(
        50.0, "exception", {"type": "restore", "severity": 0, "note": "a copy"}
    )
    assert replay(1, events).state is JobState.CLEANUP


def test_job_that_ends_already_is_left_alone() -> None:
    assert event_for([*RUNNING, Event(7.0, "finish", {"status": 0})]) is None


def test_job_that_waits_for_no_queue_ends() -> None:
    assert event_for(WAITING, spec(**{"system.alloc-bypass": {"R": {}}})) is not None


def test_times_of_an_eventlog_do_not_go_back() -> None:
    added = event_for(RUNNING, now=2.0)
    assert added is not None
    assert json.loads(added)["timestamp"] == 6.0


def test_eventlog_that_cannot_be_read_is_named() -> None:
    with pytest.raises(FluxError, match="not a job eventlog"):
        ending_event(1, "nonsense\n", "", "", 1.0)


CONFIG = parse_config(
    "[queues.a]\n[queues.b]\n[policy.jobspec.defaults.system]\nqueue = 'a'\n", "config"
)


@pytest.mark.parametrize("before", [None, "damaged", Queues(CONFIG).checkpoint()])
def test_all_queues_are_stopped_and_stay_so_until_they_are_started(before: str | None) -> None:
    queues = Queues(CONFIG)
    queues.restore(stopped_checkpoint(before, "a copy"))
    assert [queue.stop_reason for queue in queues.by_name.values()] == ["a copy", "a copy"]
    again = Queues(CONFIG)
    again.restore(queues.checkpoint())
    assert not any(again.schedules(name) for name in again.names)
    assert "all_stopped" not in msgspec.json.decode(queues.checkpoint())


def fill(path: Path, jobs: dict[int, list[Event]]) -> None:
    """Write a state file that has these jobs."""
    store = SqliteStore(path)
    for jobid, events in jobs.items():
        stored = {"jobspec": spec(), EVENTLOG: format_eventlog(events)}
        store.commit([Put(job_key(jobid, name), text) for name, text in stored.items()])
        store.commit([Put(active_key(jobid), "")])
    store.close()


def state_of(store: SqliteStore, jobid: int) -> JobState:
    (eventlog,) = store.lookup([job_key(jobid, EVENTLOG)])
    assert isinstance(eventlog, str)
    return replay(jobid, parse_eventlog(eventlog)).state


@pytest.mark.parametrize("running", [1, 2, 3, 5])
def test_every_job_that_runs_is_ended_on_whichever_page_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: int
) -> None:
    monkeypatch.setattr(restoring, "PAGE_JOBS", 2)
    jobs = dict.fromkeys(range(1, running + 1), RUNNING) | {running + 1: WAITING}
    (tmp_path / "state").mkdir()
    backup, copy = tmp_path / "backup", tmp_path / "copy"
    take(tmp_path / "state", backup, Mark("/state", 1.0, "1"), lambda path: fill(path, jobs))
    restored = restore(backup, copy, 9.0)
    assert (restored.ended, restored.waiting) == (running, 1)
    store = SqliteStore(copy / STATE_FILE)
    states = [state_of(store, jobid) for jobid in jobs]
    store.close()
    assert states == [JobState.CLEANUP] * running + [JobState.SCHED]
