"""What becomes of the messages that a tap sees."""

from __future__ import annotations

from flux_trio.attach.tap.core import HELD_MAX, Action, NoteFault, PassOn, TapCore
from flux_trio.attach.tap.rules import Direction, parse_orders
from flux_trio.messages import Request
from flux_trio.messages.native import to_frame


class Script:
    """A core, and what it does with requests that are numbered in their payload."""

    def __init__(self, *args: str) -> None:
        self.core = TapCore(parse_orders(args).rules)

    def take(self, topic: str, number: int, t: float = 0.0, direction: Direction = "tx") -> str:
        message = Request(topic, {"id": number})
        return shown(self.core.handle(direction, to_frame(message), message, t))


def shown(actions: list[Action]) -> str:
    """The messages that go on by their number, and notes in words."""
    words = []
    for each in actions:
        assert isinstance(each.message, Request)
        assert isinstance(each.message.payload, dict)
        number = each.message.payload["id"]
        words.append(str(number) if isinstance(each, PassOn) else f"{each.what} {number}")
    return ", ".join(words)


def test_without_rules_all_goes_on() -> None:
    script = Script()
    assert [script.take("a.b", n) for n in (1, 2)] == ["1", "2"]
    assert script.core.next_due() is None


def test_the_nth_message_is_dropped_or_duplicated_and_no_other() -> None:
    script = Script("tap-drop=tx,request,a.b,n=2", "tap-duplicate=tx,request,a.*,n=4")
    done = [script.take("a.b", n) for n in range(1, 6)]
    assert done == ["1", "drop 2", "3", "duplicate 4, 4, 4", "5"]


def test_the_first_rule_that_means_a_message_decides_and_all_count_it() -> None:
    script = Script("tap-drop=tx,request,a.b,n=1", "tap-duplicate=tx,request,a.b,n=1-2")
    assert [script.take("a.b", n) for n in (1, 2, 3)] == ["drop 1", "duplicate 2, 2, 2", "3"]


def test_a_fault_says_by_which_rule_and_which_message_it_was() -> None:
    script = Script("tap-drop=tx,request,a.b,n=2")
    script.take("a.b", 1)
    message = Request("a.b", {"id": 2})
    (note,) = script.core.handle("tx", to_frame(message), message, 0.0)
    assert note == NoteFault("drop", "tx", message, "tap-drop=tx,request,a.b,n=2", 2)


def test_a_delayed_message_is_overtaken_and_goes_on_when_it_is_due() -> None:
    script = Script("tap-delay=tx,request,a.b,s=2", "tap-delay=tx,request,a.c,s=1")
    assert script.take("a.b", 1, 10.0) == "delay 1"
    assert script.take("a.b", 2, 10.0) == "2"
    assert script.take("a.c", 3, 10.5) == "delay 3"
    assert script.core.next_due() == 11.5
    assert shown(script.core.due(11.5)) == "released 3, 3"
    assert script.core.next_due() == 12.0
    assert shown(script.core.due(13.0)) == "released 1, 1"
    assert script.core.next_due() is None


def test_a_held_message_follows_the_message_that_it_waits_for() -> None:
    script = Script("tap-hold=tx,request,a.b,until=rx,request,c.d,n=2")
    assert script.take("c.d", 1, direction="rx") == "1"  # before it is held: does not count
    assert script.take("a.b", 2) == "hold 2"
    assert script.take("c.d", 3, direction="rx") == "3"
    assert script.take("c.d", 4, direction="rx") == "4, released 2, 2"
    assert script.take("c.d", 5, direction="rx") == "5"


def test_a_message_does_not_release_itself() -> None:
    script = Script("tap-hold=tx,request,a.b,until=tx,request,a.b")
    assert [script.take("a.b", n) for n in (1, 2)] == ["hold 1", "2, released 1, 1"]


def test_what_is_held_goes_on_at_a_word_in_its_order_and_what_is_delayed_stays() -> None:
    script = Script("tap-hold=tx,request,a.b,n=1-", "tap-delay=tx,request,a.c,s=5")
    for n in (1, 2):
        script.take("a.b", n)
    script.take("a.c", 3)
    assert shown(script.core.release()) == "released 1, 1, released 2, 2"
    assert script.core.nkept == 1
    assert shown(script.core.end()) == "lost 3"
    assert script.core.nkept == 0


def test_when_too_much_is_kept_back_the_next_message_goes_on_and_is_noted() -> None:
    script = Script("tap-hold=tx,request,a.b,n=1-")
    for n in range(HELD_MAX):
        script.take("a.b", n)
    assert script.take("a.b", HELD_MAX) == f"no room {HELD_MAX}, {HELD_MAX}"
    assert script.core.nkept == HELD_MAX
