"""RFC 6 from both ends: what servers keep apart, what clients bear with."""

from __future__ import annotations

from typing import Any

import trio

from flux_trio.broker import Handle
from flux_trio.messages import (
    NODEID_ANY,
    Errno,
    Flag,
    Request,
    Response,
    disconnect_request,
    respond,
    service_of,
    topics,
)
from tests.support.asking import OWNER_USERID, asked
from tests.support.instant_kvs import InstantKvs
from tests.support.kvs_words import words
from tests.support.manager_script import ManagerScript
from tests.support.sched_script import SchedScript, answer
from tests.support.scheduling import machine
from tests.support.serving import World

KEY = "some.key"


def watch(kvs: InstantKvs, sender: str) -> None:
    """Open a watch whose matchtag is 1, as everybody's is."""
    (first,) = kvs.take(Request(words().own.watch, {"key": KEY}, 1, int(Flag.STREAMING)), sender)
    assert first.routes == (sender,)


def watchers_told(kvs: InstantKvs) -> list[str]:
    return [response.routes[0] for response in kvs.commit(["append", KEY, "more\n"])]


def watched_kvs() -> InstantKvs:
    kvs = InstantKvs()
    kvs.commit(["put", KEY, "text\n"])
    watch(kvs, "alice")
    watch(kvs, "bob")
    assert sorted(watchers_told(kvs)) == ["alice", "bob"]
    return kvs


def test_a_cancel_ends_the_senders_own_request_and_is_not_answered():
    """6.cancel.1, 6.cancel.2, 6.cancel.3, 6.matchtag.2: by sender and matchtag, with ECANCELED."""
    kvs = watched_kvs()
    cancel = Request(words().own.cancel, {"matchtag": 1}, 2, int(Flag.NORESPONSE))
    told = [(each.topic, each.errnum, each.routes) for each in kvs.take(cancel, "bob")]
    assert told == [(words().own.watch, Errno.ECANCELED, ("bob",))]
    assert watchers_told(kvs) == ["alice"]


def test_requests_of_a_client_that_is_gone_end_without_a_response():
    """6.disconnect.2, 6.disconnect.3: and nobody else's do."""
    kvs = watched_kvs()
    gone = disconnect_request(service_of(words().own.watch), "alice", OWNER_USERID, 0)
    assert kvs.take(gone, "alice") == []
    assert watchers_told(kvs) == ["bob"]


def test_journal_followers_with_equal_matchtags_are_kept_apart():
    """6.disconnect.2, 6.matchtag.2: in the job manager."""
    m = ManagerScript(peers=True)
    for sender in ("alice", "bob"):
        m.put(asked(topics.JOB_JOURNAL, by=sender, tag=1, streaming=True))
    assert followers_told(m, 1) == {("alice",), ("bob",)}
    assert m.gone("alice") == []
    assert followers_told(m, 2) == {("bob",)}


def followers_told(m: ManagerScript, jobid: int) -> set[tuple[str, ...]]:
    m.messages.clear()
    m.submit(jobid)
    return {sent.routes for sent in m.messages if sent.topic == topics.JOB_JOURNAL}


async def test_answers_may_come_in_any_order():
    """6.response.5: each caller gets its own."""

    async def answers_backwards(
        handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        handle.register("slow")
        task_status.started()
        waiting: list[Request] = []
        while len(waiting) < 3:
            waiting += await handle.receive()
        for request in reversed(waiting):
            response = respond(request, request.payload)
            assert isinstance(response, Response)
            handle.send(response)
        await trio.sleep_forever()

    world = World()
    got: dict[int, Any] = {}
    async with world.serving("slow", answers_backwards):
        handle = world.handle("client")

        async def call(n: int) -> None:
            got[n] = (await handle.call("slow.echo", {"n": n}))["n"]

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(call, n)
    assert got == {0: 0, 1: 1, 2: 2}


def test_one_answer_that_never_comes_holds_up_nobody_else():
    """27.background.5: no time runs out, nothing is sent twice, the others go on."""
    m = ManagerScript(peers=True)
    m.submit(1)
    m.now += 1e6
    assert m.submit(2) == ["job-manager.submit -> {'errors': []}", "sched.alloc 2"]
    assert m.alloc(2) == ["job-exec.start 2"]
    assert m.names(1) == ["submit", "validate", "depend", "priority"]


def requests_of_a_job_manager() -> list[Request]:
    """What it asks about two jobs: one is canceled while it waits, the other runs to its end."""
    m = ManagerScript(peers=True)
    m.submit(1)
    m.urgency(1, 20)
    m.raise_(1)
    m.running(2)
    m.execute(2, "finish", "release final")
    return [each for each in m.messages if isinstance(each, Request)]


def test_requests_are_addressed_to_no_node_in_particular():
    """6.request.3"""
    assert {(each.topic, each.nodeid) for each in requests_of_a_job_manager()} == {
        (topics.SCHED_ALLOC, NODEID_ANY),
        (topics.SCHED_PRIORITIZE, NODEID_ANY),
        (topics.SCHED_CANCEL, NODEID_ANY),
        ("job-exec.start", NODEID_ANY),
        (topics.SCHED_FREE, NODEID_ANY),
    }


def test_requests_whose_answers_are_matched_otherwise_have_no_matchtag():
    """6.matchtag.3: their answers name the job, or there is no answer."""
    assert {each.matchtag for each in requests_of_a_job_manager()} == {0}


def test_hello_and_acquire_have_the_streaming_flag():
    """6.request.4"""
    script = SchedScript()
    begin = [*script.started, *script.grow(machine(1, 1))]
    assert [(each.topic, each.is_streaming) for each in begin] == [
        (topics.RESOURCE_ACQUIRE, True),
        (topics.SCHED_HELLO, True),
    ]


def test_enodata_is_the_good_end_of_a_stream():
    """6.streaming.3: ready follows."""
    script = SchedScript()
    (hello,) = script.grow(machine(1, 1))
    actions = script.turn(answer(hello, errnum=Errno.ENODATA))
    assert [getattr(each, "topic", each) for each in actions] == [topics.SCHED_READY]
