from __future__ import annotations

from typing import Any

import pytest

from flux_trio.broker import Peer, Router
from flux_trio.messages import (
    ROLE_OWNER,
    ROLE_USER,
    Errno,
    Event,
    Flag,
    FluxError,
    Message,
    Request,
    Response,
    respond,
    respond_stream,
)
from flux_trio.trace import Kind, Record, Trace
from tests.support.counting import count_steps


class Party:
    """A peer that keeps what is delivered to it."""

    def __init__(
        self, router: Router, name: str, *services: str, role: int = ROLE_OWNER, nbefore: int = 0
    ) -> None:
        self.inbox: list[tuple[int, Message]] = []
        self.peer = Peer(name, 100, role, self._deliver, lambda: len(self.inbox), nbefore)
        router.add(self.peer)
        for service in services:
            router.register(self.peer, service)

    def _deliver(self, ref: int, message: Message) -> None:
        self.inbox.append((ref, message))

    def take(self) -> list[Any]:
        messages = [message for _, message in self.inbox]
        self.inbox.clear()
        return messages


@pytest.fixture
def records() -> list[Record]:
    return []


@pytest.fixture
def router(records: list[Record]) -> Router:
    trace = Trace(lambda: 1.0)
    trace.add_sink(records.append)
    return Router(trace)


def test_a_request_goes_to_the_service_its_topic_names(router: Router) -> None:
    "3.routing.1: the part of the topic before the first period is the service name."
    client, server = Party(router, "client"), Party(router, "server", "kvs")
    router.route(client.peer, Request("kvs.lookup.deep", {"key": "a"}, 7))
    (request,) = server.take()
    assert (request.topic, request.matchtag, request.sender) == ("kvs.lookup.deep", 7, "client")


def test_who_called_a_service_hears_that_somebody_holds_its_name_again(router: Router) -> None:
    "readings: Job manager gone. Nobody has to ask again and again."
    waiting = Party(router, "sched")
    waiting.peer.subscriptions.add("service-back")
    first = Party(router, "job-manager", "job-manager")
    assert waiting.take() == []  # nobody has called it before
    router.route(waiting.peer, Request("job-manager.sched-hello", None, 1))
    router.remove(first.peer, first.inbox)
    waiting.take()
    Party(router, "job-manager", "job-manager")
    (event,) = waiting.take()
    assert (event.topic, event.payload) == ("service-back", {"service": "job-manager"})
    assert event.rolemask & ROLE_OWNER


def test_who_asked_in_vain_hears_that_somebody_holds_the_name(router: Router) -> None:
    "readings: Job manager gone. A first hello may come before the job manager does."
    waiting = Party(router, "sched")
    waiting.peer.subscriptions.add("service-back")
    router.route(waiting.peer, Request("job-manager.sched-hello", None, 1))
    waiting.take()
    Party(router, "kvs", "kvs")
    assert waiting.take() == []
    manager = Party(router, "job-manager", "job-manager")
    (event,) = waiting.take()
    assert event.payload == {"service": "job-manager"}
    router.remove(manager.peer, manager.inbox)
    assert waiting.take() == []  # it has not called that one
    Party(router, "job-manager", "job-manager")
    assert waiting.take() == []


def test_nobody_holds_the_service(router: Router) -> None:
    "6.errors.1, 3.routing.2: an unmatched topic is answered ENOSYS (38), with text."
    client = Party(router, "client")
    router.route(client.peer, Request("kvs.lookup", None, 7))
    text = "No service matching kvs.lookup is registered"
    answers = [(each.errnum, each.matchtag, each.topic, each.payload) for each in client.take()]
    assert answers == [(38, 7, "kvs.lookup", text)]


def test_a_noresponse_request_is_not_answered_even_by_the_broker(router: Router) -> None:
    "3.routing.3: a noresponse request gets no response, not even from the broker."
    client = Party(router, "client")
    router.route(client.peer, Request("kvs.lookup", None, 7, int(Flag.NORESPONSE)))
    assert client.take() == []


def test_a_response_that_claims_to_be_anothers_is_its_senders(router: Router) -> None:
    "3.format: userid and rolemask are assigned at ingress; no message can claim another's."
    client, server = Party(router, "client"), Party(router, "server", "kvs", role=ROLE_USER)
    router.route(client.peer, Request("kvs.lookup", None, 7))
    (request,) = server.take()
    claim = Response("kvs.lookup", {}, 0, 7, 0, 0, ROLE_OWNER, request.routes)
    router.route(server.peer, claim)
    (response,) = client.take()
    assert (response.userid, response.rolemask) == (100, ROLE_USER)


def test_a_response_finds_its_way_back(router: Router) -> None:
    "3.routing.4, 6.response.1: a response carries the request's topic, matchtag and routes."
    other, client = Party(router, "other"), Party(router, "client")
    server = Party(router, "server", "kvs")
    router.route(client.peer, Request("kvs.lookup", None, 7))
    (request,) = server.take()
    router.route(server.peer, respond(request, {"value": "x"}) or pytest.fail("no response"))
    assert other.take() == []
    answers = [(each.topic, each.matchtag, each.routes) for each in client.take()]
    assert answers == [("kvs.lookup", 7, request.routes)]


def test_who_sent_it_is_set_at_the_door(router: Router) -> None:
    "3.format: userid and rolemask are assigned at ingress; no message can claim another's."
    guest = Party(router, "guest", role=ROLE_USER)
    server = Party(router, "server", "kvs")
    claim = Request("kvs.lookup", None, 7, userid=0, rolemask=ROLE_OWNER, routes=("root",))
    router.route(guest.peer, claim)
    (request,) = server.take()
    assert (request.userid, request.rolemask, request.routes) == (100, ROLE_USER, ("guest",))


def test_messages_between_two_peers_keep_their_order(router: Router) -> None:
    "3.routing.5: messages between two endpoints arrive in the order sent."
    client, server = Party(router, "client"), Party(router, "server", "kvs")
    for matchtag in range(1, 50):
        router.route(client.peer, Request("kvs.lookup", None, matchtag))
    assert [request.matchtag for request in server.take()] == list(range(1, 50))


def test_services_are_told_of_a_vanished_peer(router: Router) -> None:
    "6.disconnect.1: a noresponse request <service>.disconnect goes to each server it used."
    client = Party(router, "client")
    used = Party(router, "used", "kvs", "resource")
    unused = Party(router, "unused", "sched")
    router.route(client.peer, Request("kvs.watch", None, 1))
    router.route(client.peer, Request("kvs.watch", None, 2))
    used.take()
    router.remove(client.peer)
    farewells = [(each.topic, each.sender, each.wants_response) for each in used.take()]
    assert farewells == [("kvs.disconnect", "client", False)]
    assert unused.take() == []


def test_what_a_client_has_ended_itself_is_not_answered_when_the_service_goes(
    router: Router,
) -> None:
    "6.response.1: its own disconnect ends what it asked one service for, and nothing else."
    client = Party(router, "client")
    server = Party(router, "server", "kvs", "resource")
    router.route(client.peer, Request("kvs.watch", None, 1, int(Flag.STREAMING)))
    router.route(client.peer, Request("resource.status", None, 2))
    router.route(client.peer, Request("kvs.disconnect", None, 0, int(Flag.NORESPONSE)))
    router.route(client.peer, Request("kvs.watch", None, 3, int(Flag.STREAMING)))
    server.take()
    router.remove(server.peer)
    assert [answer.matchtag for answer in client.take()] == [2, 3]


def test_services_that_had_called_the_vanished_peer_are_told(router: Router) -> None:
    "readings: Job manager gone. Scheduler and exec service get its disconnect."
    manager = Party(router, "manager", "job-manager")
    scheduler = Party(router, "scheduler", "sched")
    client = Party(router, "client")
    for caller in (scheduler, client):
        router.route(caller.peer, Request("job-manager.sched-hello", None, 1))
    router.remove(manager.peer)
    told = [request for request in scheduler.take() if isinstance(request, Request)]
    assert [(request.topic, request.sender) for request in told] == [
        ("sched.disconnect", "manager")
    ]


def test_callers_of_a_vanished_service_are_answered(router: Router) -> None:
    "readings: ENOSYS. What it took up with a matchtag, and what it did not take up at all."
    client, server = Party(router, "client"), Party(router, "server", "sched")
    router.route(client.peer, Request("sched.expiration", {"id": 1}, 5))
    router.route(client.peer, Request("sched.alloc", {"id": 1}))  # matchtag 0, taken up
    server.take()
    router.route(client.peer, Request("sched.alloc", {"id": 2}))  # matchtag 0, not taken up
    router.remove(server.peer, server.inbox)
    answers = client.take()
    assert [(a.topic, a.errnum, a.matchtag) for a in answers] == [
        ("sched.expiration", 38, 5),
        ("sched.alloc", 38, 0),
    ]
    assert "server is gone" in answers[0].error_text


def test_a_namesake_gets_no_answers_to_what_its_predecessor_asked(router: Router) -> None:
    "6.response.1: a reloaded module has the name of the one before it, but not its calls."
    first, server = Party(router, "client", "client"), Party(router, "server", "sched")
    router.route(first.peer, Request("sched.expiration", {"id": 1}, 5))
    router.remove(first.peer)  # neither the request nor this was taken up when the service goes
    second = Party(router, "client")
    router.route(second.peer, Request("sched.expiration", {"id": 2}, 9))
    router.remove(server.peer, server.inbox)
    assert [answer.matchtag for answer in second.take()] == [9]


def test_an_answered_call_is_not_answered_again_when_the_service_goes(router: Router) -> None:
    client, server = Party(router, "client"), Party(router, "server", "kvs")
    router.route(client.peer, Request("kvs.lookup", None, 5))
    (request,) = server.take()
    router.route(server.peer, respond(request) or pytest.fail("no response"))
    client.take()
    router.remove(server.peer)
    assert client.take() == []


def test_an_open_stream_ends_with_the_service(router: Router) -> None:
    "6.streaming.2: a stream ends with exactly one error response, whoever sends it."
    client, server = Party(router, "client"), Party(router, "server", "kvs")
    router.route(client.peer, Request("kvs.watch", None, 5, int(Flag.STREAMING)))
    (request,) = server.take()
    router.route(server.peer, respond_stream(request, {"value": ""}) or pytest.fail("none"))
    router.remove(server.peer)
    first, last = client.take()
    assert (first.errnum, first.ends_rpc, last.errnum, last.ends_rpc) == (0, False, 38, True)


def test_answer_to_a_replaced_peer_is_not_that_of_its_successors_call(
    router: Router, records: list[Record]
) -> None:
    "6.response.1: the service has not heard of the end yet, and both calls have one matchtag."
    server = Party(router, "kvs", "kvs")
    first = Party(router, "job-manager")
    router.route(first.peer, Request("kvs.commit", {"ops": []}, 1))
    router.remove(first.peer)
    second = Party(router, "job-manager", nbefore=1)
    router.route(second.peer, Request("kvs.commit", {"ops": []}, 1))
    asked, _, asked_again = server.take()
    router.route(server.peer, respond(asked, {}) or pytest.fail("no response"))
    assert second.take() == []
    assert records[-1].kind == Kind.DROP
    router.route(server.peer, respond(asked_again, {}) or pytest.fail("no response"))
    assert len(second.take()) == 1


def test_answers_of_a_replaced_peer_are_dropped_and_traced(
    router: Router, records: list[Record]
) -> None:
    "design, connection lost: stale answers from a replaced peer are discarded and traced."
    client, old = Party(router, "client"), Party(router, "old", "sched")
    router.route(client.peer, Request("sched.alloc", {"id": 1}))
    (request,) = old.take()
    router.remove(old.peer)
    client.take()
    returned = Party(router, "returned")  # the old one, connected again, without the name
    Party(router, "new", "sched")
    stale = Response("sched.alloc", {"id": 1, "type": 0}, routes=request.routes)
    router.route(returned.peer, stale)
    assert client.take() == []
    (drop,) = [record for record in records if record.kind == Kind.DROP]
    assert drop.data == {"reason": "returned does not hold that service"}


def test_a_service_name_has_one_holder(router: Router) -> None:
    Party(router, "one", "sched")
    with pytest.raises(FluxError, match="service sched is already held by one") as error:
        Party(router, "two", "sched")
    assert error.value.errnum == Errno.EEXIST


def test_events_go_to_subscribers_with_growing_sequence_numbers(router: Router) -> None:
    "3 Event Message Type: the header includes a monotonically increasing sequence number."
    publisher, listener = Party(router, "job-manager"), Party(router, "exec")
    listener.peer.subscriptions.add("job-*")
    for topic in ("job-exception", "other", "job-state"):
        router.route(publisher.peer, Event(topic, {"id": 1}))
    events = listener.take()
    assert [event.topic for event in events] == ["job-exception", "job-state"]
    assert events[0].sequence < events[1].sequence


def test_a_flood_is_refused_at_the_bound(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's client leaves room for services, which may have to end if they are refused."""
    monkeypatch.setattr("flux_trio.broker.router.REQUESTS_WAITING_MAX", 4)
    client, server = Party(router, "client"), Party(router, "server", "kvs")
    module = Party(router, "job-manager", "job-manager")
    for matchtag in (1, 2, 3, 4):
        router.route(client.peer, Request("kvs.lookup", None, matchtag))
    (refusal,) = client.take()
    assert (refusal.matchtag, refusal.errnum) == (4, Errno.EAGAIN)
    assert refusal.payload == "kvs has 3 requests waiting; try again later"
    for matchtag in (5, 6):
        router.route(module.peer, Request("kvs.lookup", None, matchtag))
    assert [each.matchtag for each in module.take()] == [6]
    assert [request.matchtag for request in server.take()] == [1, 2, 3, 5]


def test_what_waits_of_one_guest_is_bounded_in_number_and_bytes(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_trio.broker.guests.WAITING_OF_GUEST_MAX", 2)
    monkeypatch.setattr("flux_trio.broker.guests.WAITING_OF_GUEST_BYTES_MAX", 100)
    guest, server = Party(router, "guest", role=ROLE_USER), Party(router, "server", "kvs")
    again = Party(router, "again", role=ROLE_USER)  # another connection of the same user
    other = Party(router, "other", role=ROLE_USER)
    other.peer.userid = 200
    owner = Party(router, "owner")
    router.route(guest.peer, Request("kvs.lookup", None, 1))
    router.route(again.peer, Request("kvs.lookup", {"key": "x" * 100}, 1))
    router.route(again.peer, Request("kvs.lookup", None, 2))
    router.route(guest.peer, Request("kvs.lookup", None, 3))
    router.route(guest.peer, Request("kvs.lookup", None, 0, int(Flag.NORESPONSE)))
    router.route(other.peer, Request("kvs.lookup", None, 4))
    router.route(owner.peer, Request("kvs.lookup", {"key": "x" * 100}, 5))
    refusals = [(each.matchtag, each.errnum, each.payload) for each in again.take() + guest.take()]
    assert refusals == [
        (1, Errno.EAGAIN, "user 100 has 100 bytes of requests waiting at kvs; try again later"),
        (3, Errno.EAGAIN, "user 100 has 2 requests waiting at kvs; try again later"),
    ]
    assert [request.matchtag for request in server.take()] == [1, 2, 4, 5]
    router.route(guest.peer, Request("kvs.lookup", None, 6))
    assert [request.matchtag for request in server.take()] == [6]


def test_guests_leave_room_for_the_owner(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flux_trio.broker.router.REQUESTS_WAITING_MAX", 4)
    server, owner = Party(router, "server", "kvs"), Party(router, "owner")
    for userid in (200, 300, 400):
        guest = Party(router, f"guest-{userid}", role=ROLE_USER)
        guest.peer.userid = userid
        router.route(guest.peer, Request("kvs.lookup", None, 1))
    for matchtag in (1, 2):
        router.route(owner.peer, Request("kvs.lookup", None, matchtag))
    assert [request.sender for request in server.take()] == ["guest-200", "guest-300", "owner"]


def test_cost_of_leaving_does_not_grow_with_what_others_wait_for(router: Router) -> None:
    server = Party(router, "server", "kvs")
    others = [Party(router, f"other-{n}") for n in range(4)]

    def leaving(name: str) -> int:
        party = Party(router, name)
        for matchtag in range(1, 20):
            router.route(party.peer, Request("kvs.watch", None, matchtag))
        return count_steps(lambda: router.remove(party.peer))

    alone = leaving("first")
    for matchtag in range(1, 500):
        for other in others:
            router.route(other.peer, Request("kvs.watch", None, matchtag))
    assert leaving("second") < 1.5 * alone
    assert [len(requests) for requests in server.peer.inflight.values()] == [499] * 4


def test_a_private_event_is_for_its_user_and_the_owner(router: Router) -> None:
    "3 Event Message Type: private restricts delivery to the sender's credentials and the owner."
    guest = Party(router, "guest", role=ROLE_USER)
    same = Party(router, "same", role=ROLE_USER)
    owner = Party(router, "owner")
    stranger = Party(router, "stranger", role=ROLE_USER)
    stranger.peer.userid = 200
    for party in (same, owner, stranger):
        party.peer.subscriptions.add("*")
    router.route(guest.peer, Event("hint", {"id": 1}, flags=int(Flag.PRIVATE)))
    assert [len(party.take()) for party in (same, owner, stranger)] == [1, 1, 0]


def test_a_lost_request_that_wants_no_response_is_traced(
    router: Router, records: list[Record]
) -> None:
    client, server = Party(router, "client"), Party(router, "server", "sched")
    router.route(client.peer, Request("nobody.there", None, 0, int(Flag.NORESPONSE)))
    router.route(client.peer, Request("sched.cancel", {"id": 1}, 0, int(Flag.NORESPONSE)))
    router.remove(server.peer, server.inbox)
    drops = [record for record in records if record.kind == Kind.DROP]
    assert [drop.message.topic for drop in drops] == ["nobody.there", "sched.cancel"]
    assert client.take() == []


def test_an_answer_to_a_namesake_is_dropped(router: Router, records: list[Record]) -> None:
    "design, connection lost: what the one before had asked is not answered to the one after."
    old, server = Party(router, "sched-client"), Party(router, "server", "kvs")
    router.route(old.peer, Request("kvs.lookup", None, 1))
    (request,) = server.take()
    router.remove(old.peer)
    namesake = Party(router, "sched-client")
    router.route(server.peer, respond(request) or pytest.fail("no response"))
    assert namesake.take() == []
    (drop,) = [record for record in records if record.kind == Kind.DROP]
    assert drop.data == {"reason": "sched-client does not wait for it"}
