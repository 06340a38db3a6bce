"""Watches of a kvs core: what they are sent, when they end, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Append, Fetch, Fetched, Stored, StoreOps
from flux_trio.messages import Errno
from tests.support.asking import asked, gone
from tests.support.counting import count_steps
from tests.support.kvs_script import answers, commit, turn, watch


def watching(key: str, value: str | None) -> KvsCore:
    """A core with one open watch, matchtag 3."""
    core = KvsCore()
    turn(core, watch(key))
    turn(core, Fetched([value], []))
    return core


def test_watch_sends_the_value_then_appends_once_they_are_durable() -> None:
    core = KvsCore()
    turn(core, watch("log"))
    assert answers(turn(core, Fetched(["one\n"], []))) == [(3, 0, {"value": "one\n"})]
    turn(core, commit(["append", "log", "two\n"], by="bob"))
    assert answers(turn(core, Stored())) == [(1, 0, {}), (3, 0, {"append": "two\n"})]


def test_watch_of_an_absent_key_waits_for_its_first_value() -> None:
    core = KvsCore()
    turn(core, watch("log"))
    assert turn(core, Fetched([None], [])) == []
    turn(core, commit(["append", "log", "one\n"], ["append", "log", "two\n"]))
    expected = [(3, 0, {"value": "one\n"}), (3, 0, {"append": "two\n"})]
    assert answers(turn(core, Stored()))[1:] == expected


def test_watch_misses_nothing_and_repeats_nothing_of_what_comes_while_it_is_read() -> None:
    core = KvsCore()
    turn(core, commit(["append", "log", "1"], by="bob"), watch("log"))
    assert turn(core, commit(["append", "log", "2"], by="bob")) == []
    assert len(answers(turn(core, Stored()))) == 1
    value, store = turn(core, Fetched(["1"], []))
    assert value.payload == {"value": "1"}
    assert store == StoreOps([Append("log", "2")])
    assert answers(turn(core, Stored()))[1:] == [(3, 0, {"append": "2"})]


def test_watch_sends_the_value_again_when_it_is_put() -> None:
    core = watching("a", "1")
    turn(core, commit(["put", "a", "2"], ["put", "ab", "3"]))
    assert answers(turn(core, Stored()))[1:] == [(3, 0, {"value": "2"})]


@pytest.mark.parametrize("unlinked", ["a.b", "a"])
def test_watch_ends_with_enoent_when_its_key_or_one_above_is_unlinked(unlinked: str) -> None:
    core = watching("a.b", "1")
    turn(core, commit(["unlink", unlinked], ["put", "a.b", "2"]))
    assert answers(turn(core, Stored()))[1:] == [(3, Errno.ENOENT, "a.b: unlinked")]


@pytest.mark.parametrize(("key", "value"), [("ab", "1"), ("a", None)])
def test_watch_goes_on_when_another_or_an_absent_key_is_unlinked(
    key: str, value: str | None
) -> None:
    core = watching(key, value)
    turn(core, commit(["unlink", "a"]))
    assert answers(turn(core, Stored())) == [(1, 0, {})]


def test_watch_hears_nothing_of_a_transaction_that_failed() -> None:
    core = watching("a", "1")
    turn(core, commit(["put", "a", "2"]))
    assert [tag for tag, _, _ in answers(turn(core, Stored(Errno.EIO, "bad")))] == [1]


def test_watch_cancel_ends_the_stream_with_ecanceled() -> None:
    core = watching("a", "1")
    cancel = asked("kvs.watch-cancel", {"matchtag": 3}, tag=9)
    ended, answered = answers(turn(core, cancel))
    assert ended[:2] == (3, Errno.ECANCELED)
    assert answered == (9, 0, {})
    turn(core, commit(["put", "a", "2"]))
    assert answers(turn(core, Stored())) == [(1, 0, {})]
    assert answers(turn(core, cancel))[0][1] == Errno.ENOENT


def test_watch_can_be_canceled_while_its_key_is_read() -> None:
    core = KvsCore()
    turn(core, watch("a"))
    turn(core, asked("kvs.watch-cancel", {"matchtag": 3}, tag=9))
    assert turn(core, Fetched(["1"], [])) == []


def test_only_its_sender_can_cancel_a_watch() -> None:
    core = watching("a", "1")
    ((_, errnum, _),) = answers(turn(core, asked("kvs.watch-cancel", {"matchtag": 3}, by="bob")))
    assert errnum == Errno.ENOENT


def test_disconnect_ends_the_watches_of_that_peer_without_an_answer() -> None:
    core = watching("a", "1")
    turn(core, watch("a", by="bob", tag=8))
    turn(core, Fetched(["1"], []))
    assert turn(core, gone("kvs", "alice")) == []
    turn(core, commit(["append", "a", "2"], by="carol"))
    assert answers(turn(core, Stored()))[1:] == [(8, 0, {"append": "2"})]


def test_matchtag_of_an_open_watch_is_refused() -> None:
    core = watching("a", "1")
    assert answers(turn(core, watch("b")))[0][1] == Errno.EPROTO


@pytest.mark.parametrize("keys", [1, 1000])
def test_cost_of_leaving_grows_with_the_number_of_ones_own_watches_alone(keys: int) -> None:
    def leaving(mine: int, others: int) -> int:
        core = KvsCore()
        for by, count in (("alice", mine), ("bob", others)):
            asked_for = [watch(f"key{tag % keys}", by, tag) for tag in range(count)]
            turn(core, *asked_for)
            if count:
                turn(core, Fetched([None] * count, []))
        return count_steps(lambda: turn(core, gone("kvs", "alice")))

    few, many, among_many = leaving(100, 0), leaving(400, 0), leaving(100, 1000)
    assert many < 5 * few
    assert among_many < 1.5 * few


def test_cost_of_an_unlink_does_not_grow_with_the_watches_of_other_keys() -> None:
    def unlinking(others: int) -> int:
        core = KvsCore()
        turn(core, *[watch(f"key{tag}", tag=tag) for tag in range(others)])
        turn(core, Fetched([None] * others, []))
        turn(core, commit(["unlink", "job.1"]))
        return count_steps(lambda: turn(core, Stored()))

    assert unlinking(1000) < 1.5 * unlinking(10)


def watching_with_credit(value: str | None, credit: int = 1) -> KvsCore:
    core = KvsCore()
    payload = {"key": "a", "credit": credit}
    turn(core, asked("kvs.watch", payload, tag=3, streaming=True))
    turn(core, Fetched([value], []))
    return core


def changed(core: KvsCore, *ops: list[str]) -> list[tuple[int, int, Any]]:
    """What watchers are told of a commit."""
    turn(core, commit(*ops, by="bob", tag=1))
    return answers(turn(core, Stored()))[1:]


def granted(core: KvsCore, value: str | None, more: int = 1) -> list[tuple[int, int, Any]]:
    """What a watcher is told after a grant, `value` being what the store has."""
    request = asked("kvs.watch-credit", {"matchtag": 3, "credit": more}, tag=4)
    actions = turn(core, request)
    if any(isinstance(action, Fetch) for action in actions):
        actions += turn(core, Fetched([value], []))
    first, *told = answers(actions)
    assert first == (4, 0, None)
    return told


def test_watch_without_credit_is_told_all_that_changed_at_its_next_grant() -> None:
    core = watching_with_credit("1")
    assert changed(core, ["append", "a", "2"]) == []
    assert changed(core, ["append", "a", "3"]) == []
    assert granted(core, "123") == [(3, 0, {"append": "23"})]
    assert granted(core, "123") == []
    assert changed(core, ["append", "a", "4"]) == [(3, 0, {"append": "4"})]


def test_watch_without_credit_is_told_a_value_that_was_put_anew() -> None:
    core = watching_with_credit("1")
    assert changed(core, ["put", "a", "x"], ["append", "a", "y"]) == []
    assert granted(core, "xy") == [(3, 0, {"value": "xy"})]


def test_change_while_a_watch_is_read_again_is_told_once() -> None:
    core = watching_with_credit("1")
    changed(core, ["append", "a", "2"])
    (_, fetch) = turn(core, asked("kvs.watch-credit", {"matchtag": 3, "credit": 5}, tag=4))
    assert isinstance(fetch, Fetch)
    turn(core, commit(["append", "a", "3"], by="bob"))  # stored after what is being read
    assert answers(turn(core, Fetched(["12"], []))) == [(3, 0, {"append": "2"})]
    assert answers(turn(core, Stored()))[1:] == [(3, 0, {"append": "3"})]


def test_end_of_a_watch_needs_no_credit() -> None:
    core = watching_with_credit("1")
    ((_, errnum, _),) = changed(core, ["unlink", "a"])
    assert errnum == Errno.ENOENT
    assert granted(core, None) == []
