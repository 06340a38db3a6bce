"""A job of flux-core in our execution service: what it leaves in its guest namespace, and when."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.guest_contents import PLACES
from flux_trio.cores.exec.output import WHOLE_BYTES
from flux_trio.messages import Errno
from flux_trio.shell.protocol import Attach, Signal, Start
from tests.support.bridge_script import BridgeScript
from tests.support.exec_script import job_exception, jobspec
from tests.support.flux_kvs import FluxKvs

STARTED = ["init", "starting", "shell.init", "shell.start"]
ENDED = [*STARTED, "shell-exit", "complete", "done"]
RELEASED = ("release", {"ranks": "0", "final": True})


@pytest.fixture
def script() -> BridgeScript:
    return BridgeScript()


@pytest.fixture
def running(script: BridgeScript) -> BridgeScript:
    """One in which job 7 runs."""
    script.start()
    script.launched()
    return script


def topics_to(kvs: FluxKvs) -> list[str]:
    return [topic.removeprefix("kvs.") for topic, _ in kvs.requests]


def test_namespace_is_made_and_linked_before_anything_is_launched(script: BridgeScript) -> None:
    script.start()
    assert topics_to(script.kvs)[:4] == ["lookup", "namespace-create", "commit", "commit"]
    assert topics_to(script.kvs)[4:] == ["lookup"] * 3  # J, eventlog and exec eventlog
    assert script.kvs.owners["job-7"] == 1000
    assert script.kvs.links == {"job.0000.0000.0000.0007.guest": "job-7"}
    assert script.events() == ["init", "starting"]
    (start,) = script.shell
    assert isinstance(start, Start)


def test_those_who_follow_a_job_find_its_service_and_its_tasks(running: BridgeScript) -> None:
    assert running.answers() == [("start", {})]
    assert running.pop("service.add").payload == {"service": "1000-shell-f8"}
    assert running.events() == STARTED
    lines = running.text("exec.eventlog").splitlines()
    assert '{"service":"1000-shell-f8","leader-rank":0,"size":1}' in lines[2]
    assert '{"taskmap":{"version":1,"map":[[0,1,1,1]]}}' in lines[3]


def test_output_is_in_the_namespace_while_the_job_runs(running: BridgeScript) -> None:
    running.files[7, 0, "stdout"] = b"hello\n"
    running.poll()
    assert running.output() == {"stdout": "hello\n", "stderr": "", "eof": ""}
    running.files[7, 0, "stdout"] += b"world\n"
    running.files[7, 0, "stderr"] = b"oh\n"
    running.poll()
    assert running.output() == {"stdout": "hello\nworld\n", "stderr": "oh\n", "eof": ""}


def test_end_is_told_when_the_namespace_is_at_its_place(running: BridgeScript) -> None:
    running.files[7, 0, "stdout"] = b"hello\n"
    running.ended(status=256)
    assert running.answers() == [("start", {}), ("finish", {"status": 256}), RELEASED]
    assert list(running.kvs.spaces) == ["primary"]
    assert running.kvs.links == {}
    assert running.events() == ENDED
    assert running.output() == {"stdout": "hello\n", "stderr": "", "eof": "stdoutstderr"}
    assert not running.text(PLACES)
    assert running.pop("service.remove").payload == {"service": "1000-shell-f8"}


def test_end_waits_for_output_that_is_not_stored(running: BridgeScript) -> None:
    """A program that is killed now has told nothing, so the next one is asked for the job."""
    running.files[7, 0, "stdout"] = b"hello\n"
    running.hold()
    running.ended()
    assert running.answers() == [("start", {})]
    running.let_go()
    assert running.answers()[1:] == [("finish", {"status": 0}), RELEASED]


def test_what_is_on_its_way_to_the_kvs_has_a_bound(running: BridgeScript) -> None:
    running.files[7, 0, "stdout"] = b"x" * 3_000_000
    running.hold()
    running.ended()
    (commit,) = running.held or []
    assert len(str(commit.payload)) < 1_000_000
    running.let_go()
    assert len(running.output()["stdout"]) == 3_000_000


def test_output_beyond_the_limit_is_left_out_and_the_log_says_so(script: BridgeScript) -> None:
    script.start(spec=jobspec("true", attributes={"system.shell.options.output.limit": 10}))
    script.launched()
    script.files[7, 0, "stdout"] = b"0123456789abc"
    script.ended()
    assert script.output()["stdout"] == "0123456789"
    assert "stdout: 3 of 13 bytes truncated" in script.text("output")
    assert script.answers()[1] == ("finish", {"status": 0})


def test_next_program_takes_the_job_up_and_writes_each_byte_once(running: BridgeScript) -> None:
    running.files[7, 0, "stdout"] = b"one\n"
    running.poll()
    following = BridgeScript(running.kvs)
    following.files = running.files
    following.start(reattach=True)
    (attach,) = following.shell
    assert attach == Attach(7)
    following.launched()
    following.files[7, 0, "stdout"] += b"two\n"
    following.ended()
    assert following.answers() == [("reattached", {}), ("finish", {"status": 0}), RELEASED]
    assert following.output()["stdout"] == "one\ntwo\n"
    assert following.events() == [*STARTED, "reattach", "shell-exit", "complete", "done"]


def test_next_program_tells_an_end_that_was_stored_and_not_told(running: BridgeScript) -> None:
    """The first one was killed when the namespace was at its place."""
    running.ended(status=256)
    following = BridgeScript(running.kvs)
    following.start(reattach=True)
    assert following.shell == []
    assert following.answers() == [("reattached", {}), ("finish", {"status": 256}), RELEASED]
    assert following.events() == ENDED


@pytest.mark.parametrize("topic", ["kvs.getroot", "kvs.commit"])
def test_next_program_moves_a_namespace_that_was_not_moved_to_its_end(topic: str) -> None:
    """The first one was killed when it had asked this, after the last event of the namespace."""
    script = BridgeScript()
    script.start()
    script.launched()
    script.files[7, 0, "stdout"] = b"hello\n"
    script.kvs.dies_at = topic
    script.ended()
    assert script.answers() == [("start", {})]
    script.kvs.dies_at = ""
    assert script.events()[-1] == "done"
    following = BridgeScript(script.kvs)
    following.start(reattach=True)
    assert following.answers() == [("reattached", {}), ("finish", {"status": 0}), RELEASED]
    assert list(following.kvs.spaces) == ["primary"]
    assert following.events() == ENDED
    assert following.output()["stdout"] == "hello\n"
    assert following.logs == []


def test_namespace_is_removed_when_the_end_is_told(running: BridgeScript) -> None:
    """While it is there, a successor finds the job, whether flux-core asks again or not."""
    running.kvs.dies_at = "kvs.namespace-remove"
    running.ended()
    assert running.answers()[1:] == [("finish", {"status": 0}), RELEASED]


def test_start_that_is_asked_again_changes_nothing_in_the_room(running: BridgeScript) -> None:
    """The service had taken its hello back, while it had no shell host."""
    running.files[7, 0, "stdout"] = b"one\n"
    running.poll()
    running.start(reattach=True)
    running.files[7, 0, "stdout"] += b"two\n"
    running.ended()
    assert [each.topic for each in running.sent] == ["service.add", "service.remove"]
    assert running.output() == {"stdout": "one\ntwo\n", "stderr": "", "eof": "stdoutstderr"}
    assert running.events() == ENDED
    again = [("reattached", {}), ("finish", {"status": 0}), RELEASED]
    assert running.answers() == [("start", {}), *again]


def test_start_that_comes_again_without_reattach_launches_nothing_twice() -> None:
    """The first program was killed before it could say that the job has started."""
    script = BridgeScript()
    script.start()
    following = BridgeScript(script.kvs)
    following.start()
    assert script.shell == following.shell  # the shell host takes a start once
    assert following.events() == ["init", "starting", "reattach"]


@pytest.mark.parametrize("topic", ["kvs.namespace-create", "kvs.commit"])
def test_job_without_a_namespace_fails_and_is_released(topic: str) -> None:
    """Processes of it that an earlier service has left are ended before."""
    script = BridgeScript()
    script.kvs.errors[topic] = (Errno.EPERM, "not for you")
    script.start()
    assert script.shell == [Attach(7)]
    script.unknown()
    (kind, raised), released = script.answers()
    assert (kind, raised["severity"], raised["type"]) == ("exception", 0, "exec")
    assert raised["note"].startswith("no guest namespace: ")
    assert raised["note"].endswith("not for you")
    assert released == RELEASED
    assert script.logs[0].startswith("job ƒ8: ")


@pytest.mark.parametrize("topic", ["kvs.getroot", "kvs.commit", "kvs.namespace-remove"])
def test_namespace_that_cannot_be_moved_does_not_keep_the_resources(topic: str) -> None:
    script = BridgeScript()
    script.start()
    script.launched()
    answer = script.kvs.answer
    refused: list[str] = []

    def refuse(request: Any) -> Any:
        is_end = topic != "kvs.commit" or request.payload["namespace"] == "primary"
        if request.topic == topic and is_end and not refused:
            refused.append(topic)
            script.kvs.errors[topic] = (Errno.ENOSPC, "full")
        return answer(request)

    script.kvs.answer = refuse  # type: ignore[method-assign]
    script.ended()
    assert refused
    assert script.answers()[1:] == [("finish", {"status": 0}), RELEASED]
    assert any("full" in line for line in script.logs)


def test_jobspec_that_cannot_run_fails_with_its_reason(script: BridgeScript) -> None:
    script.start(spec=jobspec("true", attributes={"system.shell.options.cpu-affinity": "odd"}))
    (kind, raised), released = script.answers()
    assert kind == "exception"
    assert "cpu-affinity" in raised["note"]
    assert released == RELEASED
    assert script.events() == ["init", "starting", "done"]
    assert list(script.kvs.spaces) == ["primary"]


def test_cancel_ends_the_job(running: BridgeScript) -> None:
    running.broker_says(job_exception(7))
    assert running.shell[-1] == Signal(7, 15)
    running.ended(status=143 << 8)
    assert running.answers()[1:] == [("finish", {"status": 143 << 8}), RELEASED]


@pytest.mark.parametrize("limit", [None, "3"])
def test_output_that_leaves_nothing_to_write_makes_room_for_more(
    limit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are beyond the limit, or in the namespace since before: else the job would never end."""
    monkeypatch.setattr("flux_trio.cores.exec.copying.COPY_BYTES_MAX", WHOLE_BYTES + 2 * 5)
    attributes = {} if limit is None else {"system.shell.options.output.limit": limit}
    script = BridgeScript()
    script.start(spec=jobspec("true", attributes=attributes))
    script.launched()
    for _ in range(12):
        script.files[7, 0, "stdout"] = script.files.get((7, 0, "stdout"), b"") + b"line\n"
        script.poll()
    following = BridgeScript(script.kvs)
    following.files = script.files
    following.start(spec=jobspec("true", attributes=attributes), reattach=True)
    following.launched()
    for _ in range(12):
        following.files[7, 0, "stdout"] += b"line\n"
        following.poll()
    following.ended()
    assert following.answers()[-2:] == [("finish", {"status": 0}), RELEASED]
    whole = "line\n" * 24
    assert following.output()["stdout"] == (whole if limit is None else whole[:3])
