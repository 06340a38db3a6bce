"""Requests that come while a service starts: kept in order, and bounded for each guest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.cores import sharing
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.cores.job_list import JobListCore
from flux_trio.cores.sharing import BACKLOG_OF_GUEST_BYTES_MAX, Backlog
from flux_trio.messages import (
    ROLE_USER,
    Errno,
    Flag,
    Request,
    Response,
    disconnect_request,
    respond,
    topics,
)
from tests.support.asking import asked, asked_by_guest, gone
from tests.support.manager_script import ManagerScript

MAX = 5


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "BACKLOG_OF_GUEST_MAX", MAX)


def ignored(_sender: str) -> None:
    """Nothing was answered in this turn."""


def guests(topic: str, tag: int, payload: Any = None, **what: Any) -> Request:
    return msgspec.structs.replace(asked_by_guest(topic, payload), matchtag=tag, **what)


def many(topic: str) -> list[Request]:
    return [guests(topic, tag) for tag in range(1, MAX + 3)]


def refused(actions: list[Any]) -> list[int]:
    """Matchtags of what was refused with EAGAIN."""
    answers = [each for each in actions if isinstance(each, Response)]
    return [each.matchtag for each in answers if each.errnum == Errno.EAGAIN]


def test_submissions_of_a_guest_that_wait_for_the_job_manager_are_bounded() -> None:
    core = IngestCore()
    core.start(0.0)
    assert refused(core.turn(0.0, many(topics.INGEST_SUBMIT))) == [MAX + 1, MAX + 2]
    assert refused(core.turn(0.0, [asked(topics.INGEST_SUBMIT, tag=9)])) == []  # the owner's


def test_lists_of_a_guest_that_wait_for_the_jobs_are_bounded() -> None:
    core = JobListCore()
    core.start(0.0)
    assert refused(core.turn(0.0, many(topics.LIST_LIST))) == [MAX + 1, MAX + 2]


def test_requests_of_a_guest_that_wait_for_the_jobs_to_be_read_back_are_bounded() -> None:
    manager = ManagerScript(early=many(topics.JOB_STATS))
    answers = [each for each in manager.messages if isinstance(each, Response)]
    assert refused(answers) == [MAX + 1, MAX + 2]


def test_requests_without_a_response_are_counted_and_dropped_without_a_word() -> None:
    backlog: Backlog[Request] = Backlog()
    silent = guests("a.b", 0, flags=int(Flag.NORESPONSE))
    assert [backlog.put(silent, ignored) for _ in range(MAX + 3)] == [None] * (MAX + 3)
    assert len(backlog.remove_all()) == MAX
    backlog.put(silent, ignored)
    assert len(backlog.remove_all()) == 1  # counted anew


def test_bytes_are_counted() -> None:
    backlog: Backlog[Request] = Backlog()
    long = guests("a.b", 1, "x" * (BACKLOG_OF_GUEST_BYTES_MAX // 2))
    assert backlog.put(long, ignored) is None
    assert backlog.put(long, ignored) is not None


def test_what_a_guest_has_sent_goes_with_the_guest() -> None:
    """Leaving is no message that piles up; that of the owner's peers is kept in its place."""
    backlog: Backlog[Request] = Backlog()
    first, last = asked("a.b"), gone("a", "alice")
    for message in (first, guests("a.b", 1), last):
        backlog.put(message, ignored)
    for _ in range(3):
        assert backlog.put(disconnect_request("a", "guest", 7, ROLE_USER), ignored) is None
    assert [each.topic for each in backlog.remove_all()] == [first.topic, last.topic]


def test_owners_peer_that_has_gone_is_not_answered() -> None:
    """6.disconnect.2"""
    backlog: Backlog[Request] = Backlog()
    backlog.put(asked("job-manager.getinfo", None, by="gone", tag=1), ignored)
    backlog.put(asked("job-manager.getinfo", None, by="there", tag=2), ignored)
    backlog.put(gone("job-manager", "gone"), ignored)
    waiting = backlog.remove_all()
    assert [respond(each, {}) is None for each in waiting] == [True, False, True]


@pytest.mark.parametrize("userid", [7, asked("a.b").userid], ids=["guest", "owner"])
def test_answers_of_the_turn_to_a_peer_that_leaves_are_dropped(userid: int) -> None:
    """6.disconnect.2"""
    backlog: Backlog[Request] = Backlog()
    forgotten: list[str] = []
    backlog.put(asked("a.b", by="there"), forgotten.append)
    role = ROLE_USER if userid == 7 else asked("a.b").rolemask
    backlog.put(disconnect_request("a", "gone", userid, role), forgotten.append)
    assert forgotten == ["gone"]
