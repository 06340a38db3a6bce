"""6.response.2: a service that leaves cannot answer any more what it was asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Event, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind, Record
from tests.support.judged import Trace, hand_made, judge, made, made_note
from tests.support.recorded import broken, messages, recording

CLAUSE = "6.response.2"
SERVICES = {
    "job-ingest": topics.INGEST_SUBMIT,
    "job-list": topics.LIST_LIST,
    "resource": topics.RESOURCE_DRAIN,
    "kvs": topics.KVS_LOOKUP,
}
RETURN = {"module": "job-manager", "what": "started"}
EACH = pytest.mark.parametrize("name", SERVICES)
WITHOUT_A_DISK = pytest.mark.parametrize("name", [name for name in SERVICES if name != "kvs"])


def ask(name: str, matchtag: int = 1) -> Trace:
    return made("client", name, Request(SERVICES[name], {}, matchtag, routes=("client",)))


def answer(name: str, party: str = "", errnum: int = 0, matchtag: int = 1) -> Trace:
    response = Response(SERVICES[name], None, errnum, matchtag, routes=("client",))
    return made(party or name, "client", response)


def leave(name: str, what: str = "removed") -> Any:
    return made_note(Kind.MODULE.value, "broker", module=name, what=what)


def wait(seconds: int) -> tuple[Any, ...]:
    """So many seconds in which nothing happens; a step of a trace by hand takes one."""
    return tuple(made_note(Kind.CONFIG.value, "broker") for _ in range(seconds))


def named(*steps: Any, at_rest: bool = False) -> list[Violation]:
    found = judge(hand_made(*steps), ALL_RULES, cut=not at_rest).violations
    return [each for each in found if each.clause == CLAUSE]


@WITHOUT_A_DISK
def test_a_service_that_leaves_seconds_after_a_request_without_an_answer_is_named(name: str):
    """That the broker answers in its place does not make it good."""
    by_broker = answer(name, "broker", errnum=38)
    (found,) = named(ask(name), *wait(3), leave(name), by_broker, at_rest=True)
    assert found.party == name
    assert found.because == (2,)
    assert f"{SERVICES[name]}: {name} has left" in found.text


def test_a_kvs_that_leaves_seconds_after_a_request_is_not():
    """Its disk may be slow. If the kvs stays, it has to answer at last."""
    assert named(ask(topics.KVS), *wait(3), leave(topics.KVS), at_rest=True) == []
    (found,) = named(ask(topics.KVS), *wait(3), at_rest=True)
    assert found.text == "kvs.lookup was received, and is not answered"


@EACH
@pytest.mark.parametrize("what", ["removed", "crashed"])
def test_a_service_that_leaves_at_once_is_not(name: str, what: str):
    left = msgspec.structs.replace(leave(name, what), n=3)
    assert named([*ask(name), left]) == []


@EACH
def test_a_service_that_has_answered_is_not(name: str):
    assert named(ask(name), answer(name), *wait(3), leave(name)) == []


def test_a_service_that_waits_for_another_one_is_not():
    other = Request(topics.JOB_SUBMIT, {}, 5, routes=("job-ingest",))
    to_manager = made("job-ingest", "job-manager", other)
    assert named(ask("job-ingest"), to_manager, *wait(3), leave("job-ingest")) == []
    gone = leave("job-manager")
    assert named(ask("job-ingest"), gone, *wait(3), leave("job-ingest")) == []


def test_a_service_whose_stream_has_not_begun_is_not():
    """job-list answers nobody before the journal has begun: the job manager reads its state."""
    journal = Request(topics.JOB_JOURNAL, None, 5, flags=STREAMING, routes=("job-list",))
    follow = made("job-list", "job-manager", journal)
    began = Response(topics.JOB_JOURNAL, {"events": []}, 0, 5, routes=("job-list",))
    begun = made("job-manager", "job-list", began)
    assert named(follow, ask("job-list"), *wait(3), leave("job-list")) == []
    (found,) = named(follow, ask("job-list"), begun, *wait(3), leave("job-list"))
    assert found.party == "job-list"


def test_a_service_that_leaves_as_the_one_it_waited_for_is_back_is_not():
    """It asks again as soon as it hears of the return."""
    gone, back = leave("job-manager"), made_note(Kind.MODULE.value, "broker", **RETURN)
    at_once = msgspec.structs.replace(leave("job-ingest"), n=2)
    asked = [ask("job-ingest"), gone, *wait(3)]
    assert named(*asked, [back, at_once]) == []
    (found,) = named(*asked, back, *wait(3), leave("job-ingest"))
    assert found.party == "job-ingest"


def unheard(service: str) -> Record:
    """job-ingest has left with an event that tells that `service` is back."""
    event = Event(topics.SERVICE_BACK_EVENT, {"service": service})
    return Record(1, 0.0, Kind.DROP.value, "job-ingest", "", 0, event, {"reason": "it has ended"})


def test_a_service_that_has_not_heard_that_the_one_it_waits_for_is_back_is_not():
    """The event was on its way to it when it left. One that heard of the return had to answer."""
    gone, back = leave("job-manager"), made_note(Kind.MODULE.value, "broker", **RETURN)
    event = Event(topics.SERVICE_BACK_EVENT, {"service": "job-manager"})
    heard = made("job-manager", "job-ingest", event)
    unread = unheard("job-manager")
    asked = [ask("job-ingest"), gone, *wait(3), back]
    assert named(*asked, heard[:1], *wait(3), [unread], leave("job-ingest")) == []
    assert named(*asked, heard[:1], *wait(3), [unread], leave("job-ingest", "crashed")) == []
    (found,) = named(*asked, heard, *wait(3), leave("job-ingest"))
    assert found.party == "job-ingest"


def test_a_service_that_has_not_heard_of_a_return_for_which_it_does_not_wait_is_named():
    """Who is back was not away, or came back before the request was received."""
    (found,) = named(ask("job-ingest"), *wait(3), [unheard("sched")], leave("job-ingest"))
    assert found.party == "job-ingest"
    back = [leave("job-manager"), *wait(3), made_note(Kind.MODULE.value, "broker", **RETURN)]
    story = [*back, *wait(3), ask("job-ingest"), *wait(3), [unheard("job-manager")]]
    assert [each.party for each in named(*story, leave("job-ingest"))] == ["job-ingest"]
    gone, heard = leave("job-manager"), ask("job-ingest")
    story = [heard, gone, *wait(3), back[-1], *wait(3), [unheard("sched")], leave("job-ingest")]
    assert [each.party for each in named(*story)] == ["job-ingest"]


def test_a_service_that_waited_when_it_crashed_is_not():
    """Its calls end with it, before its end is in the trace."""
    other = Request(topics.JOB_SUBMIT, {}, 5, routes=("job-ingest",))
    asked = made("job-ingest", "job-manager", other)
    disconnect = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE, routes=("job-ingest",))
    gone = made("job-ingest", "job-manager", disconnect)
    assert named(ask("job-ingest"), asked, *wait(3), gone, leave("job-ingest", "crashed")) == []


def test_a_service_that_has_just_been_answered_is_not():
    """It may be about to answer in its turn."""
    other = Request(topics.KVS_COMMIT, {}, 5, routes=("job-ingest",))
    asked = made("job-ingest", "kvs", other)
    stored = made("kvs", "job-ingest", Response(other.topic, {}, 0, 5, routes=("job-ingest",)))
    disconnect = Request(topics.disconnect_of("kvs"), flags=NORESPONSE, routes=("job-ingest",))
    gone = [msgspec.structs.replace(made("job-ingest", "kvs", disconnect)[0], n=3)]
    crash = [*gone, msgspec.structs.replace(leave("job-ingest", "crashed"), n=4)]
    assert named(ask("job-ingest"), asked, *wait(3), [*stored, *crash]) == []
    at_last = [msgspec.structs.replace(each, n=each.n - 2) for each in crash]
    (found,) = named(ask("job-ingest"), asked, *wait(3), stored, *wait(3), at_last)
    assert found.party == "job-ingest"


def test_a_service_in_the_turn_in_which_it_was_answered_is_not():
    """It has said something, and may be about to answer."""
    stored = made("kvs", "resource", Response(topics.KVS_COMMIT, {}, 0, 5))
    said = made("resource", "", Event(topics.RESOURCE_OFFLINE_EVENT, {}))[:1]
    disconnect = Request(topics.disconnect_of("kvs"), flags=NORESPONSE)
    crash = hand_made(made("resource", "kvs", disconnect)[:1], leave("resource", "crashed"))
    before = [ask("resource"), made("resource", "kvs", Request(topics.KVS_COMMIT, {}, 5)), *wait(3)]
    assert named(*before, hand_made(stored, said, crash)) == []
    (found,) = named(*before, hand_made(stored, said), *wait(3), crash)
    assert found.party == "resource"


def test_a_service_that_took_requests_before_it_was_answered_is_not():
    """It may be about to answer, though it has taken up other requests long before."""
    waits = made("resource", "kvs", Request(topics.KVS_COMMIT, {}, 5))
    stored = made("kvs", "resource", Response(topics.KVS_COMMIT, {}, 0, 5))
    said = made("resource", "", Event(topics.RESOURCE_OFFLINE_EVENT, {}))[:1]
    disconnect = Request(topics.disconnect_of("kvs"), flags=NORESPONSE)
    crash = hand_made(made("resource", "kvs", disconnect)[:1], leave("resource", "crashed"))
    before = [ask("resource"), waits, ask("resource", matchtag=2), *wait(3)]
    assert named(*before, hand_made(stored, said, crash)) == []
    (found, *_) = named(*before, hand_made(stored, said), *wait(3), crash)
    assert found.party == "resource"


@WITHOUT_A_DISK
def test_what_a_service_does_for_another_request_is_no_excuse(name: str):
    last = hand_made(ask(name, 2), answer(name, matchtag=2), leave(name))
    (found,) = named(ask(name), *wait(3), last)
    assert found.because == (2,)


def late(name: str) -> Record:
    """An answer of a service that was replaced, which nobody takes up."""
    response = Response(SERVICES[name], None, 0, 1, routes=("client",))
    return Record(1, 0.0, Kind.DROP.value, "late", "", 0, response, {"reason": "it is replaced"})


@EACH
def test_a_late_answer_of_one_that_was_replaced_is_not_the_answer(name: str):
    story = [ask(name), late(name), answer(name, "broker", errnum=38)]
    assert judge(hand_made(*story), ALL_RULES, cut=True).violations == []
    (found,) = named(*story[:2], at_rest=True)
    assert found.party == name


def test_a_service_that_got_a_late_answer_has_not_left():
    other = Request(SERVICES["kvs"], {}, 1, routes=("resource",))
    response = Response(other.topic, None, 0, 1, routes=("resource",))
    stale = Record(1, 0.0, Kind.DROP.value, "late", "", 0, response, {"reason": "it is replaced"})
    stored = made("kvs", "resource", response)
    story = [ask("resource"), made("resource", "kvs", other), stale, stored]
    (found,) = named(*story, *wait(3), leave("resource"))
    assert found.party == "resource"


def test_what_an_earlier_client_of_that_name_asked_is_not_due():
    """The next one asks with the same matchtag, and what it asks has not arrived."""
    farewell = made(
        "client", "resource", Request(topics.disconnect_of("resource"), flags=NORESPONSE)
    )
    next_one = ask("resource")[:1]
    story = [ask("resource"), farewell, *wait(3), [*next_one, made_at(leave("resource"), 2)]]
    assert named(*story) == []


def made_at(record: Record, n: int) -> Record:
    return msgspec.structs.replace(record, n=n)


def test_a_service_whose_store_has_no_room_is_not():
    hindrance = Request(topics.JOB_HINDRANCE, {"reason": "disk full"}, routes=("kvs",))
    told = made("kvs", "job-manager", hindrance)
    assert named(ask("job-ingest"), told, *wait(3), leave("job-ingest")) == []


@EACH
def test_at_rest_every_request_is_answered(name: str):
    assert [each.party for each in named(ask(name), at_rest=True)] == [name]
    assert named(ask(name), answer(name), at_rest=True) == []


# --- in the trace of a router


def unanswered(seconds: float) -> Any:
    """flux-core's job-ingest leaves some time after a submission that it has not answered."""
    told = recording("01")
    (answer,) = messages(told, topics.INGEST_SUBMIT, "response")
    (asked,) = messages(told, topics.JOB_SUBMIT, "response")
    place = told["messages"].index(answer)
    told["messages"] = told["messages"][:place]
    at = {"t_rel": asked["t_rel"] + seconds, "from": "broker", "type": "request"}
    shutdown = {**at, "to": "job-ingest", "topic": "job-ingest.shutdown"}
    gone = {**at, "to": "job-manager", "topic": topics.JOB_MANAGER_DISCONNECT}
    told["messages"] += [shutdown, gone]
    return told


def test_a_module_of_flux_core_that_leaves_long_after_is_named():
    assert CLAUSE in broken(unanswered(seconds=4.0))
    assert CLAUSE not in broken(unanswered(seconds=0.1))


def test_what_a_module_was_asked_is_not_due_after_it_has_left():
    assert CLAUSE not in broken(unanswered(seconds=0.1), at_rest=True)
