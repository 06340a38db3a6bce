"""The answers of the current edition, one after the other, and what the cores make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.config import Config
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.editions import CLASSIC, CURRENT, EDITIONS, Edition, rfc27, rfc28, rfc32
from flux_trio.formats import FormatError, Idset, ResourceSet, format_r, job_key
from flux_trio.messages import Errno, FluxError, Request, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.manager_script import ManagerScript, alloc_answer, start_answer
from tests.support.sched_script import SchedScript, alloc, answer, answers, jobspec, sent, tell
from tests.support.scheduling import machine

R = ResourceSet.build([(rank, 1, 0) for rank in range(3)], lambda rank: f"n{rank}")
PLAIN: dict[str, Any] = R.to_json()


def read(payload: Any) -> Request:
    return Request("x.y", payload)


def ids(text: str) -> Idset:
    return Idset.parse(text)


# --- RFC 27


@pytest.mark.parametrize(
    ("payload", "partial_ok"), [(None, False), ({}, False), ({"partial-ok": True}, True)]
)
def test_hello_says_whether_the_scheduler_understands_free(payload: Any, partial_ok: bool) -> None:
    assert CURRENT.sched_hello.read(read(payload)).partial_ok is partial_ok


def test_classic_hello_has_no_payload() -> None:
    with pytest.raises(FluxError, match="takes no payload"):
        CLASSIC.sched_hello.read(read({"id": 1}))


def test_held_job_may_have_ranks_that_are_freed_already() -> None:
    held = rfc27.HeldJob(1, 16, 1000, 5.0, free=ids("0"))
    payload = CURRENT.held_job.write(held)
    assert payload == {"id": 1, "priority": 16, "userid": 1000, "t_submit": 5.0, "free": "0"}
    assert CURRENT.held_job.read(read(payload)) == held


def test_hosts_of_r_have_their_own_widths() -> None:
    """readings: Hostlist widths."""
    r = PLAIN | {"execution": PLAIN["execution"] | {"nodelist": ["n[01-02,3]"]}}
    payload = {"id": 1, "type": 0, "R": r}
    got = CURRENT.alloc_answer.read(read(payload)).R
    assert got is not None
    assert got.hostnames == ("n01", "n02", "n3")
    assert ResourceSet.parse(r).hostnames == ("n01", "n02", "n03")
    (grown,) = CURRENT.changes.read(read({"resources": r, "up": ""}))
    assert grown.resources.hostnames == ("n01", "n02", "n3")


def test_success_has_the_resources() -> None:
    success = rfc27.AllocAnswer(1, rfc27.AllocType.SUCCESS, R=R)
    payload = CURRENT.alloc_answer.write(success)
    assert payload == {"id": 1, "type": 0, "R": PLAIN}
    assert CURRENT.alloc_answer.read(read(payload)).R == R
    assert CLASSIC.alloc_answer.write(success) == {"id": 1, "type": 0}
    assert CLASSIC.alloc_answer.read(read(payload)).R is None


@pytest.mark.parametrize(
    ("more", "text"), [({}, "missing required field `R`"), ({"R": {"version": 1}}, "R")]
)
def test_success_without_resources_is_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(FluxError, match=text) as raised:
        CURRENT.alloc_answer.read(read({"id": 1, "type": 0, **more}))
    assert raised.value.errnum == Errno.EPROTO


def test_free_has_the_resources_and_says_whether_it_is_the_last() -> None:
    assert CURRENT.free.write(rfc27.Free(1, R)) == {"id": 1, "R": PLAIN, "final": True}
    part = CURRENT.free.write(rfc27.Free(1, R, final=False))
    assert part == {"id": 1, "R": PLAIN}
    assert CURRENT.free.read(read(part)) == rfc27.Free(1, R, final=False)
    with pytest.raises(FluxError, match="missing required field `R`"):
        CURRENT.free.read(read({"id": 1}))


def test_feasibility_is_a_service_of_its_own() -> None:
    assert CLASSIC.feasibility is None
    assert CURRENT.feasibility is not None
    assert CURRENT.feasibility.write(rfc27.Feasibility({"version": 1})) == {
        "jobspec": {"version": 1}
    }
    with pytest.raises(FluxError, match="missing required field `jobspec`"):
        CURRENT.feasibility.read(read({}))


# --- RFC 28


def test_property_changes_are_keys_of_their_own() -> None:
    payload = {"property-add": {"ssd": "0-1"}, "property-remove": {"old": "2"}}
    change = rfc28.PropertiesChanged({"ssd": ids("0-1")}, {"old": ids("2")})
    assert list(CURRENT.changes.read(read(payload))) == [change]
    assert CURRENT.changes.write([change]) == payload
    added = rfc28.PropertiesChanged({"ssd": ids("0")}, {})
    assert CURRENT.changes.write([added]) == {"property-add": {"ssd": "0"}}
    with pytest.raises(FormatError, match=r"property-add\.ssd"):
        CURRENT.changes.read(read({"property-add": {"ssd": "x"}}))
    with pytest.raises(TypeError, match="classic"):
        CLASSIC.changes.write([change])


def test_first_response_has_all_resources_and_what_is_up() -> None:
    core = ResourceCore(R, Idset(), edition=CURRENT)
    core.turn(1.0, [answer(request, errnum=Errno.ENOENT) for request in core.start(1.0)])
    acquire = asked(topics.RESOURCE_ACQUIRE, None, by="sched", streaming=True)
    ((topic, payload),) = sent(core.turn(2.0, [acquire]))
    assert (topic, payload.keys()) == (topics.RESOURCE_ACQUIRE, {"resources", "up"})
    assert payload["up"] == "0-2"
    second = asked(topics.RESOURCE_ACQUIRE, None, by="other", streaming=True)
    (refused,) = core.turn(3.0, [second])
    assert refused.errnum == Errno.EBUSY
    release = asked(topics.RESOURCE_RELEASE, {"group": "default", "targets": "0"}, by="sched")
    (unknown,) = core.turn(4.0, [release])
    assert unknown.errnum == Errno.ENOSYS


# --- RFC 32


def test_start_has_the_resources() -> None:
    start = rfc32.Start(1, 1000, {}, reattach=True, R=R)
    payload = {"id": 1, "userid": 1000, "jobspec": {}, "reattach": True}
    assert CLASSIC.start.write(start) == payload
    assert CURRENT.start.write(start) == {**payload, "R": PLAIN}
    assert CURRENT.start.read(read({**payload, "R": PLAIN})) == start
    assert CLASSIC.start.read(read({**payload, "R": PLAIN})).R is None
    with pytest.raises(FluxError, match="missing required field `R`"):
        CURRENT.start.read(read(payload))


# --- the scheduler


@pytest.fixture
def sched() -> SchedScript:
    """Attached, with two nodes of two cores."""
    script = SchedScript(edition=CURRENT)
    (hello,) = script.acquired(resources=machine(2, 2).to_json(), up="0-1")
    assert hello.payload == {"partial-ok": True}
    (ready,) = script.turn(*script.hello_answers(hello, {}))
    script.turn(answer(ready, {"count": 0}))
    return script


def test_scheduler_acquires_without_a_payload(sched: SchedScript) -> None:
    assert [request.payload for request in sched.started] == [None]


def test_scheduler_sends_the_resources_and_answers_no_free(sched: SchedScript) -> None:
    (granted,) = answers(sched.turn(alloc(1)))
    assert ResourceSet.parse(granted["R"]) == sched.r(1)
    assert sent(sched.turn(tell("free", id=1, R=granted["R"], final=True))) == []
    (again,) = answers(sched.turn(alloc(2, jobspec(4))))
    assert again["type"] == 0


@pytest.mark.parametrize(("edition", "granted"), [(CLASSIC, {"ssd", "+batch"}), (CURRENT, {"ssd"})])
def test_r_of_a_job_has_no_properties_of_the_instance_alone(
    edition: Edition, granted: set[str]
) -> None:
    """RFC 20: the names of those begin with +; in the classic text they are as others."""
    inventory = machine(1, 1, properties={"ssd": ids("0"), "+batch": ids("0")})
    script = SchedScript(edition=edition)
    first = {"resources": inventory.to_json(), "up": "0"}
    if edition is CLASSIC:
        first = {"resources": inventory.to_json(), "online": "0", "offline": "", "type": "grow"}
    (hello,) = script.acquired(**first)
    (ready,) = script.turn(*script.hello_answers(hello, {}))
    script.turn(
        answer(ready, {"count": 0}), alloc(1, jobspec(constraints={"properties": ["+batch"]}))
    )
    assert set(script.r(1).properties) == granted


def test_scheduler_raises_no_exception_for_a_shrink(sched: SchedScript) -> None:
    sched.turn(alloc(1))
    assert sent(sched.acquired(shrink="0", down="0")) == []
    (denied,) = answers(sched.turn(alloc(2, jobspec(4))))
    assert denied["type"] == 2


def test_scheduler_goes_by_changed_properties(sched: SchedScript) -> None:
    wants = jobspec(constraints={"properties": ["ssd"]})
    (denied,) = answers(sched.turn(alloc(1, wants)))
    assert denied["type"] == 2
    sched.acquired(**{"property-add": {"ssd": "1"}})
    (granted,) = answers(sched.turn(alloc(2, wants)))
    assert granted["R"]["execution"]["R_lite"][0]["rank"] == "1"
    assert granted["R"]["execution"]["properties"] == {"ssd": "1"}
    sched.acquired(**{"property-remove": {"ssd": "0-1"}})
    (denied,) = answers(sched.turn(alloc(3, wants)))
    assert denied["type"] == 2


# --- the job manager


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> ManagerScript:
    monkeypatch.setitem(EDITIONS, "current", CURRENT)
    return ManagerScript(config=Config(edition="current"), peers=True)


def grant(manager: ManagerScript) -> None:
    """Job 1 is granted PLAIN: in the answer as in the kvs."""
    manager.submit(1)
    manager.store_text(1, format_r(R))
    manager.alloc(1, R=PLAIN)


def requests(manager: ManagerScript, topic: str) -> list[Any]:
    """The payloads of the requests with this topic so far."""
    sent = [each for each in manager.messages if isinstance(each, Request)]
    return [each.payload for each in sent if each.topic == topic]


def test_job_manager_sends_the_resources_with_start_and_free(manager: ManagerScript) -> None:
    manager.submit(1)
    manager.store_r(1, {0: [0]})
    stored = ResourceSet.parse(manager.kvs.value(job_key(1, "R")).encode()).to_json()
    manager.alloc(1, R=stored)
    (start,) = requests(manager, "job-exec.start")
    assert start["R"] == stored
    manager.execute(1, "start", "finish", "release final")
    assert requests(manager, topics.SCHED_FREE) == [{"id": 1, "R": stored, "final": True}]


@pytest.mark.parametrize("ranks", [{0: [0, 1]}, {1: [0]}])
def test_answer_with_other_resources_than_the_kvs_suspends_scheduling(
    manager: ManagerScript, ranks: dict[int, list[int]]
) -> None:
    """readings: R that is not of the instance."""
    manager.submit(1)
    manager.store_r(1, ranks)
    stored = json.loads(manager.kvs.value(job_key(1, "R")))
    manager.store_r(1, {0: [0]})
    (line,) = manager.alloc(1, R=stored)
    got = ResourceSet.parse(stored).summary()
    expected = "R: expected in the answer what is in the kvs, rank0/core0 of node0, got "
    assert f"{expected}{got} of node" in line
    assert manager.stats()["sched"]["link"] == "detached"


def test_job_manager_waits_for_no_answer_to_free(manager: ManagerScript) -> None:
    grant(manager)
    manager.execute(1, "start", "finish", "release final")
    assert manager.names(1)[-2:] == ["free", "clean"]
    assert manager.state(1) == JobState.INACTIVE


def test_grant_that_came_too_late_is_freed_with_its_resources(manager: ManagerScript) -> None:
    manager.submit(1)
    cancel = {"id": 1, "severity": 0, "type": "cancel"}
    manager.put(asked(topics.JOB_RAISE, cancel), alloc_answer(1, R=PLAIN))
    assert requests(manager, topics.SCHED_FREE) == [{"id": 1, "R": PLAIN, "final": True}]


def test_grant_that_is_judged_is_freed_with_its_resources(manager: ManagerScript) -> None:
    manager.lookups_wait = True
    manager.submit(1)
    manager.alloc(1, R=PLAIN)
    manager.raise_(1)
    assert requests(manager, topics.SCHED_FREE) == [{"id": 1, "R": PLAIN, "final": True}]


def test_success_without_resources_suspends_scheduling(manager: ManagerScript) -> None:
    manager.submit(1)
    manager.alloc(1, R=None)
    assert manager.stats()["sched"]["link"] == "detached"


def test_execution_service_may_say_hello_while_a_start_is_outstanding(
    manager: ManagerScript,
) -> None:
    grant(manager)
    manager.attach_exec("other")
    (start,) = requests(manager, "other.start")
    assert start["id"] == 1


def test_reattached_stands_for_start(manager: ManagerScript) -> None:
    grant(manager)
    manager.put(start_answer(1, "reattached"))
    assert "start" in manager.names(1)
