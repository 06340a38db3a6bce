"""What a tap is told by the arguments of a module."""

from __future__ import annotations

import pytest

from flux_trio.attach.tap.rules import Orders, Pattern, Rule, parse_orders
from flux_trio.formats import FormatError
from flux_trio.messages import Event, Message, Request, Response

ALLOC = Pattern("tx", "response", "sched.alloc")


def rule(arg: str) -> Rule:
    (found,) = parse_orders([arg]).rules
    return found


def test_what_does_not_begin_with_tap_is_the_modules() -> None:
    args = ["queue-depth=4", "tap-trace=/tmp/x=y", "log-level=debug", "tap-loader=my-loader"]
    orders = parse_orders(args)
    assert orders == Orders("/tmp/x=y", "my-loader", (), ("queue-depth=4", "log-level=debug"))


def test_a_pattern_means_the_first_message_unless_it_says_which() -> None:
    assert rule("tap-drop=tx,response,sched.alloc").pattern == ALLOC
    found = {
        which: [n for n in range(1, 7) if rule(f"tap-drop=tx,event,x,n={which}").pattern.means(n)]
        for which in ("1", "3", "2-4", "4-")
    }
    assert found == {"1": [1], "3": [3], "2-4": [2, 3, 4], "4-": [4, 5, 6]}


def test_delay_has_seconds_and_hold_may_have_another_pattern() -> None:
    delayed = rule("tap-delay=rx,request,sched.free,n=2,s=0.5")
    assert (delayed.deed, delayed.seconds, delayed.pattern.first) == ("delay", 0.5, 2)
    arg = "tap-hold=tx,response,sched.alloc,until=rx,request,sched.cancel,id=7,n=2"
    until = Pattern("rx", "request", "sched.cancel", (("id", 7),), 2, 2)
    assert rule(arg) == Rule(arg, "hold", ALLOC, 0.0, until)


@pytest.mark.parametrize(
    ("pattern", "message", "matches"),
    [
        ("tx,response,sched.alloc", Response("sched.alloc", {"type": 0}), True),
        ("rx,response,sched.alloc", Response("sched.alloc", {"type": 0}), False),
        ("tx,request,sched.alloc", Response("sched.alloc", {"type": 0}), False),
        ("tx,response,sched.*", Response("sched.alloc"), True),
        ("tx,response,sched", Response("sched.alloc"), False),
        ("tx,response,sched.alloc,type=3", Response("sched.alloc", {"type": 3}), True),
        ("tx,response,sched.alloc,type=3", Response("sched.alloc", {"type": 0}), False),
        ("tx,response,sched.alloc,type=3", Response("sched.alloc", "a text"), False),
        ("tx,response,*,errnum=61", Response("a.b", None, 61), True),
        ("tx,response,*,errnum=0", Response("a.b", None, 61), False),
        ("tx,event,*,name=start", Event("x", {"name": "start"}), True),
        ("tx,request,a.b,ok=true,x=1.5", Request("a.b", {"ok": True, "x": 1.5}), True),
    ],
)
def test_what_matches(pattern: str, message: Message, matches: bool) -> None:
    assert rule(f"tap-drop={pattern}").pattern.matches("tx", message) is matches


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("tap-", "one of tap-trace=, tap-loader=, tap-drop="),
        ("tap-lose=tx,request,a.b", "one of tap-trace=, tap-loader=, tap-drop="),
        ("tap-trace", "one of tap-trace="),
        ("tap-drop=", "one of tap-trace="),
        ("tap-drop=up,request,a.b", "DIRECTION,TYPE,TOPIC"),
        ("tap-drop=tx,message,a.b", "DIRECTION,TYPE,TOPIC"),
        ("tap-drop=tx,request", "DIRECTION,TYPE,TOPIC"),
        ("tap-drop=tx,request,a.b,key", "DIRECTION,TYPE,TOPIC"),
        ("tap-drop=tx,request,a.b,n=0", "n=2, n=2-4 or n=2-"),
        ("tap-drop=tx,request,a.b,n=x", "n=2, n=2-4 or n=2-"),
        ("tap-drop=tx,request,a.b,n=4-2", "the lesser one first"),
        ("tap-drop=tx,request,a.b,s=1", "s=SECONDS with tap-delay"),
        ("tap-delay=tx,request,a.b", "s=SECONDS with tap-delay"),
        ("tap-delay=tx,request,a.b,s=-1", "more than 0 and at most 3600 seconds"),
        ("tap-delay=tx,request,a.b,s=nan", "more than 0 and at most 3600 seconds"),
        ("tap-drop=tx,request,a.b,until=tx,request,c.d", "until= only with tap-hold"),
        ("tap-hold=tx,request,a.b,until=tx", "DIRECTION,TYPE,TOPIC"),
    ],
)
def test_a_wrong_argument_is_named(arg: str, expected: str) -> None:
    with pytest.raises(FormatError) as error:
        parse_orders(["queue-depth=4", arg])
    assert expected in str(error.value)
    assert f'got "{arg}"' in str(error.value)


def test_a_second_trace_and_too_many_rules_are_refused() -> None:
    with pytest.raises(FormatError, match="the first two once"):
        parse_orders(["tap-trace=a", "tap-trace=b"])
    with pytest.raises(FormatError, match="at most 256 rules, got 257"):
        parse_orders(["tap-drop=tx,request,a.b"] * 257)
