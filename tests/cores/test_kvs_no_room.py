"""The kvs core while the disk is full: what waits, what is refused, what goes on."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.kvs import held_requests
from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.disk_room import LAST_ROOM
from flux_trio.cores.kvs.ops import Append, DiskFree, Fetch, Fetched, Put, Stored, StoreOps, Unlink
from flux_trio.cores.turns import Log, SetTimer, TimerFired
from flux_trio.messages import Errno, Event, Request
from tests.support.asking import asked, gone, service_back
from tests.support.kvs_script import answers, lookup, turn, watch

FULL = Stored(Errno.ENOSPC, "f: disk is full")
NO_ROOM = "no room: the disk is full"
WHY = "no room for commits: f: disk is full"
RETRY = TimerFired("retry")


def commit(*ops: list[str], by: str = "alice", tag: int = 1, **how: Any) -> Request:
    return asked("kvs.commit", {"ops": list(ops), **how}, by=by, tag=tag)


def full(*more: Any) -> tuple[KvsCore, list[Any]]:
    """A core that holds the put of `a`, and what it did when it found the disk full."""
    core = KvsCore()
    turn(core, commit(["put", "a", "1"]), *more)
    return core, turn(core, FULL)


def told(actions: list[Any]) -> list[str]:
    """What the job manager is told."""
    return [
        str(dict(a.payload)["reason"])
        for a in actions
        if isinstance(a, Request)
        and a.topic == "job-manager.hindrance"
        and isinstance(a.payload, dict)
    ]


def test_commit_that_meets_a_full_disk_is_not_answered_and_is_tried_again_a_second_later() -> None:
    core, actions = full()
    assert answers(actions) == []
    assert told(actions) == [WHY]
    assert [a for a in actions if isinstance(a, SetTimer)] == [SetTimer("retry", 1.0)]
    assert turn(core, RETRY) == [StoreOps([Put("a", "1")])]
    assert answers(turn(core, Stored())) == [(1, 0, {})]


def test_tries_are_a_second_apart_and_the_log_and_the_job_manager_are_told_once() -> None:
    core, actions = full()
    for at in (1.0, 2.0, 3.0):
        actions += core.turn(at, [RETRY])
        assert core.turn(at, [lookup("b", by="bob")]) == [], "no second try before the next second"
        actions += core.turn(at, [FULL])
        core.turn(at, [Fetched([None], [])])
    assert [a.at for a in actions if isinstance(a, SetTimer)] == [1.0, 2.0, 3.0, 4.0]
    assert len([a for a in actions if isinstance(a, Log)]) == 1
    assert told(actions) == [WHY]


def test_commit_that_does_not_wait_is_refused_at_once() -> None:
    no_wait = commit(["put", "b", "2"], by="bob", tag=5, wait=False)
    core, actions = full(no_wait)
    assert answers(actions) == [(5, Errno.ENOSPC, NO_ROOM)]
    assert answers(turn(core, no_wait)) == [(5, Errno.ENOSPC, NO_ROOM)]
    assert turn(core, RETRY) == [StoreOps([Put("a", "1")])], "what was refused is not stored later"


PURGE = commit(["unlink", "b"], by="bob", tag=5, wait=False, frees=True)


def test_commit_that_frees_room_may_use_what_is_set_aside_after_those_before_it() -> None:
    core, _ = full()
    assert turn(core, PURGE) == [StoreOps([Put("a", "1")], frees=True)]
    first = turn(core, Stored(), DiskFree(0, is_last=True))
    assert answers(first) == [(1, 0, {})]
    assert first[-1] == StoreOps([Unlink("b")], frees=True)
    assert answers(turn(core, Stored())) == [(5, 0, {})]
    submit = commit(["put", "c", "1"], tag=7, wait=False)
    assert answers(turn(core, submit)) == [(7, Errno.ENOSPC, LAST_ROOM)]
    assert turn(core, commit(["put", "d", "1"], tag=8)) == [StoreOps([Put("d", "1")])]
    turn(core, Stored())
    assert answers(turn(core, DiskFree(1 << 30), submit)) == []


def test_commit_that_frees_room_is_refused_at_once_if_what_is_set_aside_does_not_help() -> None:
    core, _ = full()
    turn(core, PURGE)
    assert answers(turn(core, FULL)) == [(5, Errno.ENOSPC, NO_ROOM)]
    assert answers(turn(core, PURGE)) == [(5, Errno.ENOSPC, NO_ROOM)]
    assert turn(core, RETRY) == [StoreOps([Put("a", "1")])]


def test_first_commit_that_meets_a_full_disk_may_use_what_is_set_aside() -> None:
    assert turn(KvsCore(), PURGE) == [StoreOps([Unlink("b")], frees=True)]


def test_job_manager_is_told_how_much_of_the_disk_is_free() -> None:
    core = KvsCore()
    (said,) = turn(core, DiskFree(5))
    assert said.payload == {"reason": "", "disk_free": 5}
    assert turn(core, service_back("job-manager")) == [said]


def test_what_waits_is_stored_in_the_order_it_came_first_one_commit_and_then_all() -> None:
    core, _ = full()
    turn(core, commit(["append", "a", "2"], by="bob", tag=2), commit(["append", "a", "3"], tag=3))
    turn(core, RETRY)
    first = turn(core, Stored())
    assert answers(first) == [(1, 0, {})]
    assert first[-1] == StoreOps([Append("a", "2"), Append("a", "3")])
    last = turn(core, Stored())
    assert answers(last) == [(2, 0, {}), (3, 0, {})]
    assert told(last) == [""]
    assert turn(core, commit(["put", "b", ""])) == [StoreOps([Put("b", "")])]


def test_disk_that_fills_again_while_it_catches_up_keeps_the_order() -> None:
    core, _ = full()
    turn(core, commit(["put", "b", "2"], tag=2), commit(["put", "c", "3"], tag=3))
    turn(core, RETRY)
    turn(core, Stored())
    assert told(turn(core, FULL)) == [], "it was told already"
    assert turn(core, RETRY) == [StoreOps([Put("b", "2")])]
    assert turn(core, Stored())[-1] == StoreOps([Put("c", "3")])


def test_reads_go_on_and_those_of_what_waits_come_after_it() -> None:
    core, _ = full()
    assert turn(core, lookup("a", tag=7)) == [], "alice must see her own commit"
    assert turn(core, lookup("b", tag=8), lookup("a", by="bob", tag=9)) == [Fetch(["b", "a"], [])]
    read = turn(core, Fetched([None, None], []))
    assert [(tag, errnum) for tag, errnum, _ in answers(read)] == [(8, 2), (9, 2)]
    assert turn(core, RETRY) == [StoreOps([Put("a", "1")]), Fetch(["a"], [])]
    turn(core, Stored())
    assert answers(turn(core, Fetched(["1"], []))) == [(7, 0, {"value": "1"})]


@pytest.mark.parametrize("read", [lookup("a", tag=7), watch("a", tag=7)])
def test_read_of_the_round_that_failed_waits_for_its_senders_commit(read: Request) -> None:
    core = KvsCore()
    turn(core, commit(["put", "a", "1"]), read, lookup("x", by="bob", tag=8))
    turn(core, FULL)
    names = [tag for tag, _, _ in answers(turn(core, Fetched([None, None], [])))]
    assert names == [8]
    assert turn(core, RETRY) == [StoreOps([Put("a", "1")]), Fetch(["a"], [])]
    turn(core, Stored())
    assert answers(turn(core, Fetched(["1"], []))) == [(7, 0, {"value": "1"})]


def test_listing_waits_for_the_senders_own_commits_only() -> None:
    core, _ = full()
    assert turn(core, asked("kvs.dir", {"prefix": ""})) == []
    assert turn(core, asked("kvs.dir", {"prefix": ""}, by="bob")) == [Fetch([], [""])]


def test_room_is_looked_for_also_when_nothing_waits() -> None:
    core = KvsCore()
    turn(core, commit(["put", "a", "1"], wait=False))
    assert answers(turn(core, FULL)) == [(1, Errno.ENOSPC, NO_ROOM)]
    (probe,) = turn(core, RETRY)
    assert isinstance(probe, StoreOps)
    assert probe.ops[-1].key == probe.ops[0].key, "what it writes it removes"
    assert told(turn(core, Stored())) == [""]
    assert turn(core, commit(["put", "a", "1"], wait=False)) == [StoreOps([Put("a", "1")])]


@pytest.mark.parametrize("more", [[], [commit(["put", "a", "2"], tag=8)]])
def test_room_is_known_after_only_reads_have_waited_last(more: list[Request]) -> None:
    core, _ = full()
    turn(core, RETRY)
    assert turn(core, lookup("a", tag=7), *more) == [], "alice must see the commit that is tried"
    assert turn(core, Stored())[-1] == Fetch(["a"], []), "the commit after it waits for the read"
    *_, tried = turn(core, Fetched(["1"], []))
    assert isinstance(tried, StoreOps)
    assert tried.ops == [Put("a", "2")] if more else tried.ops[-1].key == "kvs-room"
    assert told(turn(core, Stored())) == [""]
    assert turn(core, commit(["put", "b", "3"])) == [StoreOps([Put("b", "3")])]


def test_what_may_wait_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_requests, "HELD_BYTES_MAX", 12)
    core, _ = full()
    turn(core, commit(["put", "b", "\u00e4" * 4], tag=2))  # 9 bytes, beside the 2 that wait
    ((tag, errnum, text),) = answers(turn(core, commit(["put", "c", "3"], tag=3)))
    assert (tag, errnum, text) == (3, Errno.ENOSPC, f"{NO_ROOM}, 11 bytes wait already")


def test_job_manager_that_comes_back_is_told_again() -> None:
    core, _ = full()
    assert told(turn(core, service_back("job-manager"))) == [WHY]
    assert told(turn(core, service_back("sched"))) == []
    assert told(turn(core, Event("service-back", {"service": "job-manager"}))) == []


def test_what_a_peer_committed_that_is_gone_is_stored_and_not_answered() -> None:
    "Its successor has its name: it sees what was committed, and no answer that is not its own."
    core, _ = full()
    turn(core, lookup("a", tag=8), commit(["put", "c", "3"], by="bob", tag=3))
    turn(core, gone("kvs", "alice"))
    assert turn(core, lookup("a", tag=1)) == []
    turn(core, RETRY)
    assert answers(turn(core, FULL, RETRY)) == []
    assert turn(core, Stored())[-2:] == [StoreOps([Put("c", "3")]), Fetch(["a"], [])]
    turn(core, gone("kvs", "bob"))
    assert answers(turn(core, Stored())) == []
    assert answers(turn(core, Fetched(["1"], []))) == [(1, 0, {"value": "1"})]


def test_other_error_ends_the_waiting_too() -> None:
    core, _ = full()
    turn(core, commit(["put", "b", "2"], tag=2), lookup("a", tag=3))
    turn(core, RETRY)
    actions = turn(core, Stored(Errno.EIO, "bad"))
    text = "kvs store failed, commits are refused: bad"
    assert answers(actions) == [(1, Errno.EIO, text), (2, Errno.EIO, text)]
    assert actions[-1] == Fetch(["a"], []), "what was read goes on"
