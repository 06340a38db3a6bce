import pytest

from flux_trio.messages import (
    MATCHTAG_NONE,
    NODEID_ANY,
    Calls,
    Errno,
    Flag,
    Request,
    Response,
    disconnect_request,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    service_of,
)

REQUEST = Request("kvs.lookup", {"key": "a"}, 7, routes=("ali-1", "hop"))


def test_a_response_carries_topic_matchtag_and_routes_of_its_request() -> None:
    """3.routing.4 6.response.1 6.matchtag.1"""
    for response in (
        respond(REQUEST, {"value": "x"}),
        respond_stream(REQUEST, {"value": "x"}),
        respond_error(REQUEST, Errno.ENOENT, "no key a"),
        end_of_stream(REQUEST),
    ):
        assert response is not None
        assert (response.topic, response.matchtag) == ("kvs.lookup", 7)
        assert response.routes == ("ali-1", "hop")


def test_a_success_has_errnum_0_and_an_optional_payload() -> None:
    """6.response.2"""
    with_payload, without = respond(REQUEST, {"value": "x"}), respond(REQUEST)
    assert with_payload is not None
    assert without is not None
    assert (with_payload.errnum, with_payload.payload) == (0, {"value": "x"})
    assert (without.errnum, without.payload) == (0, None)


def test_a_failure_has_a_positive_errnum_and_an_optional_text() -> None:
    """6.response.3"""
    with_text, without = respond_error(REQUEST, 2, "no key a"), respond_error(REQUEST, 2)
    assert with_text is not None
    assert without is not None
    assert (with_text.errnum, with_text.payload, with_text.error_text) == (
        2, "no key a", "no key a",
    )  # fmt: skip
    assert (without.errnum, without.payload, without.error_text) == (2, None, "")


def test_a_request_that_wants_no_response_gets_none() -> None:
    """3.routing.3 6.request.5"""
    request = Request("a", None, 7, flags=int(Flag.NORESPONSE))
    assert not request.wants_response
    assert respond(request) is None
    assert respond_stream(request, {}) is None
    assert respond_error(request, Errno.EPERM) is None
    assert end_of_stream(request) is None


def test_responses_of_a_stream_are_flagged_and_an_error_ends_it() -> None:
    """6.streaming.2 6.streaming.3 6.streaming.4"""
    more, end = respond_stream(REQUEST, {}), end_of_stream(REQUEST)
    assert more is not None
    assert end is not None
    assert more.flags == Flag.STREAMING
    assert not more.ends_rpc
    assert (end.errnum, end.payload) == (Errno.ENODATA, None)
    assert end.ends_rpc


@pytest.mark.parametrize(
    ("response", "ends"),
    [
        (Response("a"), True),
        (Response("a", errnum=1), True),
        (Response("a", flags=int(Flag.STREAMING)), False),
        (Response("a", errnum=1, flags=int(Flag.STREAMING)), True),
    ],
)
def test_an_rpc_ends_without_the_streaming_flag_or_with_an_error(
    response: Response, ends: bool
) -> None:
    """6.matchtag.4"""
    assert response.ends_rpc is ends


def test_a_disconnect_names_the_sender_that_is_gone_and_wants_no_response() -> None:
    """6.disconnect.1 6.disconnect.3"""
    request = disconnect_request("sched", "ali-1", 100, 2)
    assert request == Request(
        "sched.disconnect", flags=int(Flag.NORESPONSE), userid=100, rolemask=2, routes=("ali-1",)
    )
    assert request.sender == "ali-1"


def test_matchtags_count_from_one_and_each_has_its_purpose() -> None:
    """6.request.1 6.response.5"""
    calls: Calls[str] = Calls()
    assert [calls.open("first"), calls.open("second")] == [1, 2]
    assert MATCHTAG_NONE not in (1, 2)
    assert calls.match(Response("a", matchtag=2)) == "second"
    assert calls.match(Response("a", matchtag=1)) == "first"
    assert len(calls) == 0


def test_a_matchtag_stays_open_until_its_stream_ends_and_then_matches_nothing() -> None:
    """6.streaming.2 6.matchtag.4"""
    calls: Calls[str] = Calls()
    tag = calls.open("stream")
    more = Response("a", matchtag=tag, flags=int(Flag.STREAMING))
    assert [calls.match(more), calls.match(more)] == ["stream", "stream"]
    assert calls.match(Response("a", errnum=Errno.ENODATA, matchtag=tag)) == "stream"
    assert calls.match(more) is None


def test_a_matchtag_in_use_is_not_given_out_again() -> None:
    """6.matchtag.4"""
    calls: Calls[str] = Calls()
    kept = calls.open("kept")
    calls._last = 0xFFFFFFFF - 1
    assert calls.open("last") == 0xFFFFFFFF
    assert calls.open("wrapped") == kept + 1


def test_answers_to_a_closed_call_match_nothing() -> None:
    calls: Calls[str] = Calls()
    tag = calls.open("a")
    assert calls.close(tag) == "a"
    assert calls.close(tag) is None
    assert calls.match(Response("a", matchtag=tag)) is None


def test_a_call_gets_another_purpose_and_keeps_its_matchtag() -> None:
    calls: Calls[str] = Calls()
    tags = [calls.open("a"), calls.open("b")]
    calls.change(lambda purpose, opened_since: f"{purpose} {opened_since}")
    assert [calls.match(Response("a", matchtag=tag)) for tag in tags] == ["a 1", "b 0"]


def test_calls_after_the_last_number_are_counted_on() -> None:
    calls: Calls[str] = Calls()
    calls._last = 0xFFFFFFFF - 1
    first, second = calls.open("first"), calls.open("second")
    assert (first, second) == (0xFFFFFFFF, 1)
    assert [calls.opened_since(tag) for tag in (first, second)] == [1, 0]


def test_the_service_is_the_topic_up_to_the_first_period() -> None:
    """3.routing.1"""
    assert service_of("job-manager.sched-hello") == "job-manager"
    assert service_of("kvs.watch.more") == "kvs"
    assert service_of("sched") == "sched"


def test_a_request_is_addressed_to_any_node_unless_it_says_so() -> None:
    """3.format.5 6.request.2 6.request.3"""
    assert Request("a").nodeid == NODEID_ANY == 0xFFFFFFFF
    assert Request("a").sender == ""
    assert not Request("a").is_owner
    assert not Request("a").is_streaming


def test_flags_are_those_of_the_header() -> None:
    """3.format.4"""
    assert {flag.name: flag.value for flag in Flag} == {
        "TOPIC": 0x01,
        "PAYLOAD": 0x02,
        "NORESPONSE": 0x04,
        "ROUTE": 0x08,
        "UPSTREAM": 0x10,
        "PRIVATE": 0x20,
        "STREAMING": 0x40,
        "USER1": 0x80,
    }
    assert Request("a", flags=0x40).is_streaming
    assert not Request("a", flags=0x80).is_streaming


def test_error_that_quotes_a_request_is_cut() -> None:
    request = Request("a.b", matchtag=1)
    short, long = respond_error(request, 22, "x" * 4096), respond_error(request, 22, "x" * 5000)
    assert short is not None
    assert short.error_text == "x" * 4096
    assert long is not None
    assert long.error_text == "x" * 4096 + "..."
