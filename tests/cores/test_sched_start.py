"""A scheduler comes: hello, ready, the resources, and what it leaves for."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.kvs_calls import READ_CHARS_MAX
from flux_trio.cores.turns import Exit, Log, Note
from flux_trio.formats import job_key
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import service_back
from tests.support.sched_script import (
    MANAGER,
    SchedScript,
    alloc,
    answer,
    answers,
    jobspec,
    leaves,
    only,
    sent,
    success,
    tell,
)
from tests.support.scheduling import machine


class TestStart:
    def test_acquires_the_default_group(self) -> None:
        """28.impl.1, 28.acquire.1."""
        acquire = only(SchedScript().started)
        assert (acquire.topic, acquire.payload) == ("resource.acquire", {"group": "default"})
        assert acquire.is_streaming

    def test_hello_follows_the_first_grow_and_is_empty_and_streaming(self) -> None:
        """27.hello.1, 27.hello.2, 27.hello.3; readings: Names and order at scheduler start."""
        hello = only(SchedScript().grow(machine(1, 1)))
        assert (hello.topic, hello.payload) == ("job-manager.sched-hello", None)
        assert hello.is_streaming

    def test_a_second_grow_says_no_hello(self, script: SchedScript) -> None:
        assert script.grow(machine(1, 1, first=2)) == []

    @pytest.mark.parametrize(
        ("config", "payload"),
        [
            ({}, {"mode": "unlimited"}),
            ({"mode": "limited", "limit": 42}, {"mode": "limited", "limit": 42}),
        ],
    )
    def test_ready_says_the_mode(self, config: dict[str, Any], payload: dict[str, Any]) -> None:
        """27.ready.1, 27.ready.3, 27.ready.4, 27.ready.5, 27.ready.9, 27.ready.11."""
        script = SchedScript(**config)
        hello = only(script.grow(machine(1, 1)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert (ready.topic, ready.payload) == ("job-manager.sched-ready", payload)

    def test_ready_waits_for_the_end_of_hello_and_for_every_r(self) -> None:
        """27.hello.14, 27.ready.2."""
        script = SchedScript()
        script.kvs_waits = True
        hello = only(script.grow(machine(2, 1)))
        told, end = script.hello_answers(hello, {"j7": machine(1, 1)})
        assert script.turn(told) == []
        assert script.turn(end) == []
        assert [request.payload for request in script.unanswered] == [
            {"keys": [job_key(7, "R")], "chars_max": READ_CHARS_MAX}
        ]
        ready = only(script.turn(*script.take_kvs_answers()))
        assert ready.topic == "job-manager.sched-ready"

    def test_what_hello_told_is_not_granted(self) -> None:
        """27.hello.12, 27.criteria.3, 28.disconnect.5."""
        script = SchedScript()
        script.attach(machine(2, 1), j7=machine(1, 1))
        script.turn(alloc(1))
        assert script.r(1).summary() == "rank1/core0"
        assert answers(script.turn(alloc(2))) == []
        assert answers(script.turn(tell("free", id=7))) == [success(2, "rank0/core0")]

    def test_hello_may_tell_of_ranks_that_are_not_ours(self) -> None:
        """27.hello.12, note."""
        script = SchedScript()
        script.attach(machine(1, 1), j7=machine(1, 1, first=5))
        assert sent(script.turn(tell("free", id=7))) == [("sched.free", {"id": 7})]
        assert script.grow(machine(1, 1, first=5)) == []

    def test_a_job_whose_r_overlaps_another_gets_an_exception(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        actions = script.turn(
            *script.hello_answers(hello, {"j7": machine(1, 2), "j8": machine(1, 1)})
        )
        raised, ready = (action for action in actions if isinstance(action, Request))
        assert raised.topic == "job-manager.raise"
        assert (raised.payload["id"], raised.payload["severity"]) == (8, 0)
        assert "core0 of rank0 is allocated already" in raised.payload["note"]
        assert ready.topic == "job-manager.sched-ready"
        script.turn(answer(ready, {"count": 1}))
        assert ("sched.free", {"id": 8}) in sent(script.turn(tell("free", id=8)))

    def test_a_job_that_is_told_twice_is_logged_and_marked_once(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        first, end = script.hello_answers(hello, {"j7": machine(1, 1)})
        log, ready = script.turn(first, first, end)
        place = "job 7: sched.alloc: sched-hello response in state ALLOCATED: expected "
        assert log.text.startswith(place)
        assert log.text.endswith(" (after sched-hello response)")
        (note,) = script.turn(answer(ready, {"count": 0}))
        assert [jobid for jobid, _ in note.data["allocated"]] == [7]

    def test_a_job_whose_r_is_nowhere_gets_an_exception(self) -> None:
        script = SchedScript()
        hello = only(script.grow(machine(1, 2)))
        told = script.hello_answers(hello, {"j7": machine(1, 1)})
        script.kvs.clear()
        raised, _ready = (each for each in script.turn(*told) if isinstance(each, Request))
        assert (raised.payload["id"], raised.payload["severity"]) == (7, 0)
        assert raised.payload["note"] == "its R is not in the kvs"

    @pytest.mark.parametrize(
        "found", [{"errnum": Errno.EIO}, {"payload": {"values": []}}, {"payload": {"value": "{}"}}]
    )
    def test_leaves_when_the_kvs_cannot_say_who_holds_what(self, found: dict[str, Any]) -> None:
        script = SchedScript()
        script.kvs_waits = True
        hello = only(script.grow(machine(1, 2)))
        script.turn(*script.hello_answers(hello, {"j7": machine(1, 1)}))
        assert leaves(script.turn(answer(script.unanswered[0], **found)))

    def test_what_is_allocated_is_noted_after_ready(self) -> None:
        script = SchedScript()
        (note,) = script.attach(machine(2, 1), j7=machine(1, 1))
        assert note == Note(
            "state", {"service": "sched", "allocated": [[7, machine(1, 1).to_json()]], "pending": 0}
        )

    def test_leaves_when_hello_fails(self) -> None:
        """27.hello.16, 27.hello.17."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        assert leaves(script.turn(answer(hello, errnum=Errno.EINVAL)))

    def test_first_hello_that_meets_enosys_waits_for_the_job_manager(self) -> None:
        """readings: Job manager gone.

        ENOSYS says that nobody holds the name; it is no answer to hello.
        """
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        assert script.turn(answer(hello, errnum=Errno.ENOSYS)) == []
        again = only(script.turn(service_back(MANAGER)))
        assert again.topic == hello.topic

    def test_leaves_when_ready_fails(self) -> None:
        """27.ready.14, 27.ready.15."""
        script = SchedScript()
        hello = only(script.grow(machine(1, 1)))
        ready = only(script.turn(answer(hello, errnum=Errno.ENODATA)))
        assert leaves(script.turn(answer(ready, errnum=Errno.EPROTO)))

    @pytest.mark.parametrize(
        "response",
        [
            {"errnum": Errno.EINVAL},
            {"payload": {"type": "other"}},
            {"payload": {"type": "online", "targets": "0"}},  # before any grow
            {"payload": {"type": "grow", "resources": {}, "online": "", "offline": ""}},
        ],
    )
    def test_leaves_when_acquire_fails(self, response: dict[str, Any]) -> None:
        """28.error.1, 28.error.2."""
        script = SchedScript()
        assert leaves(script.turn(answer(script.started[0], **response)))

    def test_change_that_has_no_place_names_the_group_and_what_came_before(self) -> None:
        script = SchedScript()
        online = {"type": "online", "targets": "0"}
        log, _ = script.turn(answer(script.started[0], payload=online))
        text = "resource group default: resource.acquire: online in state REQUESTED: expected "
        assert text in log.text
        assert log.text.endswith("(after resource.acquire)")

    @pytest.mark.parametrize("before", ["", "grow", "shrink"])
    def test_leaves_for_the_reason_that_the_resource_service_gives(self, before: str) -> None:
        """28.error.1, 28.error.2."""
        script = SchedScript()
        if before:
            script.grow(machine(2, 2))
        if before == "shrink":
            script.acquired(type="shrink", targets="1")
        log, _ = script.turn(answer(script.started[0], "out of order", errnum=Errno.EIO))
        assert log.text == "resource.acquire: out of order"

    @pytest.mark.parametrize("before", ["", "grow"])
    def test_leaves_when_a_response_ends_the_stream(self, before: str) -> None:
        """6.streaming.4: without the streaming flag it is the last one, so no change can follow."""
        script = SchedScript()
        if before:
            script.grow(machine(2, 2))
        resources = machine(2, 2).to_json()
        told = {"type": "grow", "resources": resources, "online": "0-1", "offline": ""}
        last = Response(topics.RESOURCE_ACQUIRE, told, matchtag=script.started[0].matchtag)
        log, leaving = script.turn(last)
        text = "resource.acquire: a response without the streaming flag ends the stream"
        assert (log.text, leaving) == (text, Exit(text))

    def test_releases_nothing_after_an_error(self, script: SchedScript) -> None:
        """28.error.2: a request that was in the same inbox as the error."""
        script.turn(alloc(1, jobspec(4)))
        script.acquired(type="shrink", targets="0")
        error = answer(script.started[0], "out of order", errnum=Errno.EIO)
        actions = script.turn(error, tell("free", id=1))
        assert [type(action) for action in actions[:2]] == [Log, Exit]
        assert sent(actions) == [("sched.free", {"id": 1})]
