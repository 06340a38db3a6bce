"""What the next job manager reads of a job's eventlog is what it has; the rest was never stored."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from flux_trio.formats import job_key
from flux_trio.judge.rules import rfc21_events, rfc21_states, rfc33_queues
from flux_trio.judge.views.scheduling import LINK
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import CONTEXTS, ByHand

JOB: Final = 1
MANAGER = topics.JOB_MANAGER
ENDED: Final = {"module": MANAGER, "what": "crashed"}
STARTED: Final = {"module": MANAGER, "what": "started"}
TO_SCHED: Final = ("submit", "validate", "depend", "priority")
TO_RUN: Final = (*TO_SCHED, "alloc")
TO_CLEANUP: Final = (*TO_RUN, "start", "finish", "release")
CLAUSES: Final = [
    *[f"21.states.{n}" for n in range(1, 8)],
    "21.events.3",
    "21.events.31",
    "21.criteria.3",
    "21.exceptions.2",
    "33.assignment.3",
    "33.validation.4",
]


class Trace(ByHand):
    """A job manager that logs events of one job, with a monitor of the rules about them."""

    def __init__(self) -> None:
        rules = [*rfc21_states.RULES.all, *rfc21_events.RULES.all, *rfc33_queues.RULES.all]
        super().__init__(rules, CLAUSES)
        self.put(Kind.RECV, Request(topics.EXEC_HELLO, {"service": "exec"}, 1, routes=("exec",)))

    def commit(self, matchtag: int, errnum: int | None = 0) -> None:
        """Events that were logged are stored, or not; None: there is no answer."""
        answer = {} if not errnum else "the disk fails"
        self.put(Kind.SEND, Request(topics.KVS_COMMIT, {"ops": []}, matchtag))
        if errnum is not None:
            routes = (MANAGER,)
            said = Response(topics.KVS_COMMIT, answer, errnum, matchtag=matchtag, routes=routes)
            self.put(Kind.RECV, said)

    def read(self, *stored: str) -> None:
        """The job manager reads an eventlog that has these events."""
        lines = [
            msgspec.json.encode({"timestamp": 1.0, "name": each, "context": CONTEXTS.get(each, {})})
            for each in stored
        ]
        text = "".join(f"{line.decode()}\n" for line in lines)
        keys = [job_key(JOB, "jobspec"), job_key(JOB, "eventlog")]
        found = {"values": ["{}", text]}
        self.put(Kind.SEND, Request(topics.KVS_OWN.lookup_all, {"keys": keys}, 3))
        self.put(
            Kind.RECV, Response(topics.KVS_OWN.lookup_all, found, matchtag=3, routes=(MANAGER,))
        )


LOST: Final = [
    (TO_SCHED, ("alloc",), ("flux-restart", "priority", "alloc"), ["21.states.3", "21.states.4"]),
    (TO_SCHED, ("exception", "clean"), ("flux-restart", "priority"), ["21.events.31"] * 2),
    (TO_SCHED[:2], ("depend", "priority"), ("depend", "priority"), ["21.states.2"]),
    (TO_SCHED[:1], ("validate", "depend"), ("submit", "validate"), []),
    (TO_CLEANUP, ("free", "clean"), ("free", "clean"), ["21.events.31", "21.events.31"]),
    (TO_CLEANUP, ("free",), ("free", "clean"), ["21.states.6"]),
]


@pytest.mark.parametrize(("stored", "lost", "again", "named"), LOST)
def test_next_job_manager_goes_on_from_what_is_stored(
    stored: tuple[str, ...], lost: tuple[str, ...], again: tuple[str, ...], named: list[str]
) -> None:
    for is_read in (True, False):
        trace = Trace()
        trace.log(*stored)
        trace.commit(1)
        trace.log(*lost)
        trace.commit(2, Errno.EIO)
        trace.put(Kind.MODULE, data=ENDED)
        if is_read:
            trace.read(*stored)
        trace.log(*again)
        assert [each for each in trace.named if each in named] == ([] if is_read else named)
        assert not (is_read and trace.named)


@pytest.mark.parametrize(
    ("ended", "stored", "named"),
    [(ENDED, TO_SCHED, []), (ENDED, TO_RUN, ["21.states.3"]), (STARTED, TO_SCHED, ["21.states.3"])],
    ids=["lost", "stored", "same job manager"],
)
def test_what_is_stored_of_a_job_has_happened(
    ended: dict[str, str], stored: tuple[str, ...], named: list[str]
) -> None:
    trace = Trace()
    trace.log(*TO_SCHED)
    trace.commit(1)
    trace.log("alloc")
    trace.commit(2, None)
    trace.put(Kind.MODULE, data=ended)
    trace.read(*stored)
    trace.log("flux-restart", "priority")
    assert trace.named == named


def test_event_that_was_stored_for_sure_is_not_taken_back() -> None:
    trace = Trace()
    trace.log(*TO_RUN)
    trace.commit(1)
    trace.commit(2)
    trace.put(Kind.MODULE, data=ENDED)
    trace.read(*TO_SCHED)
    trace.log("flux-restart", "priority")
    assert trace.named == ["21.states.3"]


@pytest.mark.parametrize(
    ("ended", "named"), [(ENDED, []), (STARTED, ["21.events.3"])], ids=["ended", "not ended"]
)
def test_end_of_the_job_manager_is_known_though_nobody_heard_its_disconnect(
    ended: dict[str, str], named: list[str]
) -> None:
    """A job that was only handed over: the next job manager may validate it, and has read it."""
    trace = Trace()
    jobs = {"jobs": [{"id": JOB, "userid": 1000, "t_submit": 1.0}]}
    trace.put(Kind.RECV, Request(topics.JOB_SUBMIT, jobs, 1, routes=("job-ingest",)))
    trace.put(Kind.MODULE, data=ended)
    trace.log("validate")
    assert trace.named == named


@pytest.mark.parametrize(
    ("errnum", "ended", "is_named"),
    [(Errno.EIO, ENDED, False), (None, ENDED, False), (0, ENDED, True), (Errno.EIO, None, True)],
    ids=["refused", "unanswered", "stored", "same job manager"],
)
def test_submit_event_is_told_again_only_by_the_next_manager_if_nothing_is_stored(
    errnum: int | None, ended: dict[str, str] | None, is_named: bool
) -> None:
    trace = Trace()
    trace.commit(9)
    trace.log("submit", "validate")
    trace.commit(1, errnum)
    if ended is not None:
        trace.put(Kind.MODULE, data=ended)
    trace.log("submit", "validate")
    named = ["21.events.3", "21.criteria.3"]
    assert [each for each in named if each in trace.named] == (named if is_named else [])


@pytest.mark.parametrize(("ended", "peer"), [(ENDED, ""), (STARTED, "exec")])
def test_next_job_manager_knows_no_peers(ended: dict[str, str], peer: str) -> None:
    trace = Trace()
    trace.put(Kind.SEND, Response(topics.SCHED_READY, {"count": 0}, matchtag=2, routes=("sched",)))
    trace.put(Kind.SEND, Response(topics.EXEC_HELLO, None, matchtag=1, routes=("exec",)))
    trace.put(Kind.MODULE, data=ended)
    assert trace.monitor.facts.exec_peer == peer
    assert trace.monitor.at(LINK).is_up is bool(peer)


@pytest.mark.parametrize(
    ("errnum", "ended", "named"),
    [
        (Errno.EIO, ENDED, []),
        (0, ENDED, ["33.validation.4"]),
        (Errno.EIO, STARTED, ["33.validation.4"]),
    ],
    ids=["not removed", "removed", "same job manager"],
)
def test_refused_job_that_was_not_removed_may_be_submitted_again(
    errnum: int, ended: dict[str, str], named: list[str]
) -> None:
    trace = Trace()
    trace.commit(1)
    trace.log("submit", "invalidate")
    trace.commit(2, errnum)
    trace.commit(3, errnum)
    trace.put(Kind.MODULE, data=ended)
    trace.log("submit", "invalidate")
    assert [each for each in trace.named if each == "33.validation.4"] == named


@pytest.mark.parametrize(
    ("before", "named"), [((), []), (("submit",), ["33.assignment.3"]), (TO_SCHED[:2], [])]
)
def test_a_job_of_before_the_trace_may_be_moved_after_plugins_were_asked(
    before: tuple[str, ...], named: list[str]
) -> None:
    trace = Trace()
    trace.log(*before)
    trace.put(Kind.HOOK, data={"plugin": "p", "hook": "job.validate", "id": JOB, "error": None})
    trace.log("jobspec-update", **{"attributes.system.queue": "other"})
    assert trace.named == named
