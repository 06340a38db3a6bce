"""What is restored of the jobs of a backup, without an instance."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flux_trio.cores.job_index import active_key
from flux_trio.cores.kvs.ops import Put
from flux_trio.formats import EVENTLOG, Event, Jobspec, format_eventlog, job_key, parse_eventlog
from flux_trio.protocols import JobState, replay
from flux_trio.store.backup import Mark, restore, restoring, take
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE

WAITING = [
    Event(1.0, "submit", {"userid": 5, "urgency": 16, "flags": 0, "version": 1}),
    Event(2.0, "validate"),
    Event(3.0, "depend"),
    Event(4.0, "priority", {"priority": 16}),
]
RUNNING = [*WAITING, Event(5.0, "alloc"), Event(6.0, "start")]
JOBSPEC = msgspec.json.encode(Jobspec.from_command(["true"]).to_json()).decode()


def fill(path: Path, jobs: dict[int, list[Event]]) -> None:
    """Write a state file that has these jobs."""
    store = SqliteStore(path)
    for jobid, events in jobs.items():
        stored = {"jobspec": JOBSPEC, EVENTLOG: format_eventlog(events)}
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
