"""Our execution service dies at each request to the kvs of flux-core; a successor goes on."""

from __future__ import annotations

from collections import Counter

import pytest

from flux_trio.formats import format_eventlog, job_key
from flux_trio.messages import Request, Response
from flux_trio.shell.protocol import Attach, Signal, Start
from tests.support.asking import OWNER_USERID
from tests.support.bridge_script import BridgeScript
from tests.support.eventlogs import ending, raised, running
from tests.support.flux_kvs import FluxKvs

REQUESTS = 13
"""Of the kvs in the life of the job below, from the start request on."""

RELEASED = ("release", {"ranks": "0", "final": True})


class Dead(Exception):
    """The service was killed."""


class Deadly(FluxKvs):
    """Kills who asks for the request number `after`, done before or not."""

    def __init__(self, after: int, *, done: bool) -> None:
        super().__init__()
        self.after = after
        self.done = done
        self.count = -1  # of requests; -1: they do not count yet

    def answer(self, request: Request) -> Response | None:
        if self.count == self.after and not self.done:
            raise Dead
        answer = super().answer(request)
        if self.count == self.after:
            raise Dead
        self.count += self.count >= 0
        return answer


def first_life(after: int, *, done: bool) -> BridgeScript:
    """A service that runs job 7 until it dies."""
    kvs = Deadly(after, done=done)
    script = BridgeScript(kvs)
    kvs.count = 0
    try:
        script.start()
        script.launched()
        script.files[7, 0, "stdout"] = b"one\n"
        script.poll()
        script.files[7, 0, "stdout"] += b"two\n"
        script.ended()
    except Dead:
        kvs.count = -1
        return script
    raise AssertionError(f"it lives after {kvs.count} requests")


def successor(first: BridgeScript) -> BridgeScript:
    first.kvs.requests.clear()
    script = BridgeScript(first.kvs)
    script.files = first.files
    return script


def knows(script: BridgeScript, kind: str) -> bool:
    """Whether flux-core was told this of the job."""
    return kind in [each for each, _ in script.answers()]


def check_guest(script: BridgeScript) -> None:
    """The namespace is at its place, whole, and nothing is in it twice."""
    assert list(script.kvs.spaces) == ["primary"]
    assert script.output() == {"stdout": "one\ntwo\n", "stderr": "", "eof": "stdoutstderr"}
    events = Counter(script.events())
    assert events.pop("reattach", 0) <= 1
    assert set(events.values()) == {1}
    assert script.events()[-1] == "done"


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("after", range(REQUESTS))
def test_job_is_told_once_and_its_namespace_is_whole(after: int, done: bool) -> None:
    first = first_life(after, done=done)
    eventlog = job_key(7, "eventlog")
    if knows(first, "release"):
        log = [*running(48.0, userid=OWNER_USERID), *ending(48.0)]
        first.kvs.spaces["primary"][eventlog] = format_eventlog(log)
        following = successor(first)
        assert following.shell == []
        check_guest(following)
        return
    assert not knows(first, "finish")
    following = successor(first)
    following.start(reattach=knows(first, "start"))
    for request in following.shell:
        assert isinstance(request, Start | Attach)
        assert isinstance(request, Attach) or not knows(first, "start")
        following.launched()
        following.files[7, 0, "stdout"] = b"one\ntwo\n"
        following.ended()
    assert following.answers()[-2:] == [("finish", {"status": 0}), RELEASED]
    check_guest(following)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("after", range(REQUESTS))
def test_job_that_is_canceled_meanwhile_does_not_go_on(after: int, done: bool) -> None:
    """flux-core does not ask for it: it is in CLEANUP."""
    first = first_life(after, done=done)
    if knows(first, "release"):
        return  # it is over
    log = [*running(48.0, userid=OWNER_USERID), raised("cancel")]
    first.kvs.spaces["primary"][job_key(7, "eventlog")] = format_eventlog(log)
    following = successor(first)
    is_launched = any(isinstance(each, Start) for each in first.shell)
    if "job-7" not in following.kvs.spaces and not following.shell and not following.sent:
        assert not is_launched
        return
    if following.shell:
        assert following.shell == [Attach(7)]
        if is_launched:
            following.launched()
            assert following.shell[-1] == Signal(7, 15)
            following.ended(status=143 << 8)
        else:
            following.unknown()
    assert following.told == []
    assert following.pop("job-manager.raise").payload["severity"] == 7
    assert list(following.kvs.spaces) == ["primary"]
