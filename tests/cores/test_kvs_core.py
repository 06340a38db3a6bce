"""The kvs core as a script: requests and store results in, answers and store actions out."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.cores.kvs.core import COMMIT_OPS_MAX, LOOKUP_KEYS_MAX, KvsCore
from flux_trio.cores.kvs.disk_room import ROUND_OPS_MAX
from flux_trio.cores.kvs.held_requests import KEYS_OF_SENDER_MAX, ROUND_BYTES_MAX
from flux_trio.cores.kvs.ops import (
    KEY_CHARS_MAX,
    VALUE_BYTES_MAX,
    Append,
    BackedUp,
    Damaged,
    Fetch,
    Fetched,
    MakeBackup,
    Op,
    PageRead,
    Put,
    StopBackup,
    Stored,
    StoreOps,
    Unlink,
    checked_bytes,
)
from flux_trio.cores.turns import Log
from flux_trio.messages import Errno, Event, FluxError, Level, Request, Response, topics
from tests.support.asking import asked, asked_by_guest, gone
from tests.support.kvs_script import PUT, answers, commit, lookup, turn, watch


def test_commit_is_answered_after_it_is_durable_and_not_before() -> None:
    core = KvsCore()
    assert turn(core, commit(PUT)) == [StoreOps([Put("a", "1")])]
    assert answers(turn(core, Stored())) == [(1, 0, {})]


def test_all_commits_of_a_turn_are_one_transaction() -> None:
    core = KvsCore()
    actions = turn(
        core, commit(PUT), commit(["append", "b", "x"], by="bob"), commit(["unlink", "c"])
    )
    assert actions == [StoreOps([Put("a", "1"), Append("b", "x"), Unlink("c")])]
    assert len(answers(turn(core, Stored()))) == 3


def test_commits_that_come_while_the_store_works_are_its_next_transaction() -> None:
    core = KvsCore()
    turn(core, commit(PUT))
    assert turn(core, commit(["put", "b", "2"], tag=2)) == []
    assert turn(core, commit(["put", "c", "3"], tag=3)) == []
    first, second = turn(core, Stored())
    assert answers([first]) == [(1, 0, {})]
    assert second == StoreOps([Put("b", "2"), Put("c", "3")])


def test_transaction_stops_growing_at_its_bound() -> None:
    core = KvsCore()
    big = [["put", f"k{i}", ""] for i in range(ROUND_OPS_MAX)]
    (action,) = turn(core, commit(*big), commit(PUT))
    assert len(action.ops) == ROUND_OPS_MAX
    assert turn(core, Stored())[1:] == [StoreOps([Put("a", "1")])]


def test_lookup_after_a_commit_of_its_sender_is_read_after_it() -> None:
    core = KvsCore()
    assert turn(core, commit(PUT), lookup("a")) == [StoreOps([Put("a", "1")]), Fetch(["a"], [])]
    turn(core, Stored())
    assert answers(turn(core, Fetched(["1"], []))) == [(2, 0, {"value": "1"})]


def test_lookup_does_not_see_what_its_sender_commits_after_it() -> None:
    core = KvsCore()
    assert turn(core, lookup("a"), commit(PUT)) == [Fetch(["a"], [])]
    assert turn(core, Fetched([None], []))[1:] == [StoreOps([Put("a", "1")])]


def test_lookups_of_others_do_not_split_a_transaction() -> None:
    core = KvsCore()
    actions = turn(core, commit(PUT), lookup("x", by="bob"), commit(["put", "b", "2"]))
    assert actions == [StoreOps([Put("a", "1"), Put("b", "2")]), Fetch(["x"], [])]


def test_commits_of_different_senders_are_stored_in_the_order_they_came() -> None:
    core = KvsCore()
    late = commit(["put", "a", "2"], by="bob")
    assert turn(core, lookup("a"), commit(PUT), late) == [Fetch(["a"], [])]
    assert turn(core, Fetched(["0"], []))[1:] == [StoreOps([Put("a", "1"), Put("a", "2")])]


def test_lookup_of_an_absent_key_is_enoent() -> None:
    core = KvsCore()
    turn(core, lookup("a.b"))
    assert answers(turn(core, Fetched([None], []))) == [(2, Errno.ENOENT, "a.b: no such key")]


def test_lookup_of_many_keys_has_null_for_an_absent_one() -> None:
    core = KvsCore()
    ask = [asked("kvs.lookup-all", {"keys": ["a", "b"]}), lookup("c"), watch("d")]
    assert turn(core, *ask) == [Fetch(["a", "b", "c", "d"], [], at_least=2)]
    assert answers(turn(core, Fetched(["1", None, "3", "4"], []))) == [
        (1, 0, {"values": ["1", None]}),
        (2, 0, {"value": "3"}),
        (3, 0, {"value": "4"}),
    ]


def test_reads_beyond_what_a_round_reads_are_made_in_the_next_rounds_in_order() -> None:
    core = KvsCore()
    bounded = asked("kvs.lookup-all", {"keys": ["a", "b"], "chars_max": 1_000_000})
    whole = asked("kvs.lookup-all", {"keys": ["c", "d"]}, tag=5)
    ask = [bounded, whole, lookup("e"), watch("f"), commit(["put", "e", "2"])]
    assert turn(core, *ask) == [Fetch(["a", "b", "c", "d", "e", "f"], [])]
    first, *rest = turn(core, Fetched(["1"], []))
    assert answers([first]) == [(1, 0, {"values": ["1"]})], "its reader asks for the rest"
    assert rest == [Fetch(["c", "d", "e", "f"], [], at_least=2)], "the commit is not seen"
    first, *rest = turn(core, Fetched(["3", "4"], []))
    assert answers([first]) == [(5, 0, {"values": ["3", "4"]})]
    assert rest == [Fetch(["e", "f"], [])]
    first, *rest = turn(core, Fetched(["1"], []))
    assert answers([first]) == [(2, 0, {"value": "1"})]
    assert rest == [Fetch(["f"], [])]
    assert turn(core, Fetched([None], [])) == [StoreOps([Put("e", "2")])]


def test_read_of_a_peer_that_has_left_is_not_made_in_a_later_round() -> None:
    core = KvsCore()
    turn(core, lookup("a", by="ann"), lookup("b", by="bob"))
    turn(core, asked("kvs.disconnect", by="bob"))
    assert answers(turn(core, Fetched(["1"], []))) == [(2, 0, {"value": "1"})]


def test_dir_lists_keys() -> None:
    core = KvsCore()
    ask = [asked("kvs.dir", {"prefix": prefix}) for prefix in ("job", "")]
    assert turn(core, *ask) == [Fetch([], ["job", ""])]
    lists: list[list[str]] = [["job.1"], ["a", "job.1"]]
    expected = [(1, 0, {"keys": keys}) for keys in lists]
    assert answers(turn(core, Fetched([], lists))) == expected


@pytest.mark.parametrize(
    "method", ["commit", "lookup", "lookup-all", "dir", "watch", "watch-cancel"]
)
def test_guests_are_refused(method: str) -> None:
    payload = {"ops": [], "key": "a", "keys": [], "prefix": "a", "matchtag": 1}
    refused = asked_by_guest(f"kvs.{method}", payload, streaming=True)
    text = "Request requires owner credentials"
    assert answers(turn(KvsCore(), refused)) == [(1, Errno.EPERM, text)]


def test_unknown_method_is_enosys() -> None:
    expected = [(1, Errno.ENOSYS, "no method frob in service kvs")]
    assert answers(turn(KvsCore(), asked("kvs.frob"))) == expected
    assert answers(turn(KvsCore(), asked_by_guest("kvs.frob"))) == expected


def test_what_was_asked_is_counted() -> None:
    core = KvsCore()
    turn(core, asked("kvs.lookup", {"key": "a"}), asked("kvs.watch", {"key": "a"}, streaming=True))
    ((_, _, stats),) = answers(turn(core, asked_by_guest("kvs.stats-get")))
    others = (
        "commit",
        "lookup-all",
        "dir",
        "page",
        "count",
        "watch-credit",
        "watch-cancel",
        "backup",
        "stats-clear",
        "disconnect",
    )
    counts = {"lookup": 1, "watch": 1} | dict.fromkeys(others, 0)
    held = {"requests": 0, "bytes": 0}
    requests = {f"kvs.{method}": count for method, count in counts.items()} | {"kvs.stats-get": 1}
    expected = {"requests": requests, "waiting": 0, "watches": 1, "damaged": 0, "held": held}
    commits = stats.pop("commit_seconds")
    assert (sum(commits["counts"]), commits["sum"]) == (0, 0.0)
    assert stats == expected


def test_durations_of_transactions_are_counted() -> None:
    core = KvsCore()
    turn(core, commit(PUT))
    turn(core, Stored(seconds=0.002))
    (told,) = answers(turn(core, asked("kvs.stats-get", None, tag=5)))
    commits = told[2]["commit_seconds"]
    assert commits["counts"][commits["bounds"].index(0.0025)] == sum(commits["counts"]) == 1


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        ("kvs.commit", None, "missing required field `ops`"),
        ("kvs.commit", {"ops": [["put", "a"]]}, "$.ops[0]"),
        ("kvs.commit", {"ops": [["put", "a", 1]]}, "Expected `str`, got `int` - at `$.ops[0][2]`"),
        ("kvs.commit", {"ops": [["drop", "a"]]}, "Invalid value 'drop' - at `$.ops[0][0]`"),
        ("kvs.lookup", {"key": 7}, "kvs.lookup: payload: Expected `str`, got `int` - at `$.key`"),
        ("kvs.dir", {}, "prefix"),
        ("kvs.count", {}, "prefix"),
        ("kvs.page", {}, "prefix"),
        ("kvs.page", {"prefix": "a", "limit": 0}, "limit"),
        ("kvs.page", {"prefix": "a", "limit": 10_001}, "limit"),
        ("kvs.watch-cancel", {}, "matchtag"),
        ("kvs.watch", {"key": "a"}, "streaming"),
    ],
)
def test_malformed_request_is_eproto_and_the_others_of_its_turn_go_on(
    topic: str, payload: Any, text: str
) -> None:
    bad, good = turn(KvsCore(), asked(topic, payload), commit(PUT))
    assert bad.errnum == Errno.EPROTO
    assert text in bad.payload
    assert isinstance(good, StoreOps)


@pytest.mark.parametrize(
    "key", ["", ".", "a.", ".a", "a..b", "a\n", "a.\x00", "a\x7f", "\x85", "\ud800", "x" * 1025]
)
def test_what_is_no_key_is_refused(key: str) -> None:
    requests = [lookup(key), commit(["put", key, ""]), commit(["unlink", key]), watch(key)]
    assert [e for _, e, _ in answers(turn(KvsCore(), *requests))] == [Errno.EINVAL] * 4


@pytest.mark.parametrize(
    "key", ["a", "job.0000.0000.0000.0001.eventlog", "ö b.-/", "x" * KEY_CHARS_MAX]
)
def test_keys_are_names_joined_by_periods(key: str) -> None:
    assert turn(KvsCore(), lookup(key)) == [Fetch([key], [])]


def test_values_and_commits_are_bounded() -> None:
    many = commit(*[["unlink", "a"]] * (COMMIT_OPS_MAX + 1))
    keys = asked("kvs.lookup-all", {"keys": ["a"] * (LOOKUP_KEYS_MAX + 1)})
    long = commit(["put", "a", "x" * ((1 << 24) + 1)])
    surrogate = commit(["append", "a", "\udc80"])
    errnums = [e for _, e, _ in answers(turn(KvsCore(), many, keys, long, surrogate))]
    assert errnums == [*[Errno.EMSGSIZE] * 3, Errno.EINVAL]


NAMES: Final = [
    "",
    ".",
    "a",
    "a.b",
    "ö",
    "a b",
    "a\n",
    "a\x7f",
    "\x85",
    "x" * KEY_CHARS_MAX,
    "y" * 1025,
]
TEXTS: Final = ["", "text\n", "\x00", "ö", "\udc80", "x" * (VALUE_BYTES_MAX // 2 + 1)]


@given(
    st.lists(
        st.one_of(
            st.builds(Put, st.sampled_from(NAMES), st.sampled_from(TEXTS)),
            st.builds(Append, st.sampled_from(NAMES), st.sampled_from(TEXTS)),
            st.builds(Unlink, st.sampled_from(NAMES)),
        ),
        max_size=4,
    )
)
def test_commit_is_refused_exactly_if_one_of_its_ops_is(ops: list[Op]) -> None:
    "Ops that are ASCII are checked all at once."

    def outcome(parts: list[list[Op]]) -> int | None:
        try:
            return sum(map(checked_bytes, parts))
        except FluxError:
            return None

    alone = outcome([[op] for op in ops])
    assert outcome([ops]) == alone
    if alone is not None:
        texts = "".join(op.key + getattr(op, "text", "") for op in ops)
        assert alone == len(texts.encode())


def test_failed_store_refuses_its_commits_and_all_later_ones_with_one_text() -> None:
    core = KvsCore()
    turn(core, commit(PUT))
    turn(core, commit(["put", "b", "2"], tag=5))
    actions = turn(core, Stored(Errno.EIO, "f: disk I/O error"))
    text = "kvs store failed, commits are refused: f: disk I/O error"
    assert actions[0] == Log(2, text)
    assert answers(actions[1:]) == [(1, Errno.EIO, text), (5, Errno.EIO, text)]
    assert len(actions) == 3, "nothing more is stored"
    assert answers(turn(core, commit(PUT, tag=6))) == [(6, Errno.EIO, text)]


def test_reads_go_on_after_the_store_failed() -> None:
    core = KvsCore()
    turn(core, commit(PUT), lookup("b"))
    turn(core, Stored(Errno.EIO, "bad"))
    assert answers(turn(core, Fetched(["2"], []))) == [(2, 0, {"value": "2"})]
    assert turn(core, lookup("b")) == [Fetch(["b"], [])]


def test_failed_read_is_answered_and_commits_go_on() -> None:
    core = KvsCore()
    turn(core, lookup("a"), asked("kvs.dir", {"prefix": "a"}), watch("a"))
    actions = turn(core, Fetched([], [], Errno.EIO, "malformed"))
    assert [e for _, e, _ in answers(actions)] == [Errno.EIO] * 3
    assert turn(core, commit(PUT)) == [StoreOps([Put("a", "1")])]


def test_damaged_value_is_an_error_of_its_readers_alone() -> None:
    "It is told of once, in the log and by an event, however often it is read."
    core = KvsCore()
    both = asked("kvs.lookup-all", {"keys": ["a", "bad"]}, tag=4)
    page = asked("kvs.page", {"prefix": "", "limit": 2}, tag=5)
    turn(core, lookup("a", tag=1), lookup("bad", tag=2), watch("bad"), both, page)
    text = f"bad: {'x' * 100}"
    bad = Damaged(text, "bad", "rem")
    actions = turn(core, Fetched(["1", bad, "1", bad, bad], [], pages=[PageRead(["bad"], [bad])]))
    assert sorted(answers(actions), key=lambda answer: answer[0]) == [
        (1, 0, {"value": "1"}),
        (2, Errno.EBADMSG, text),
        (3, Errno.EBADMSG, text),
        (4, Errno.EBADMSG, text),
        (5, 0, {"keys": ["bad"], "values": [None], "damaged": {"bad": [text, "rem"]}}),
    ]
    told = [action for action in actions if not isinstance(action, Response)]
    assert told == [
        Log(Level.CRIT, f"damaged: {text}"),
        Event(topics.KVS_DAMAGED_EVENT, {"key": "bad", "text": text}),
    ]
    assert turn(core, bad) == []  # a sweep has found it too


# Bytes, and credit


def test_text_is_bounded_in_bytes() -> None:
    core = KvsCore()
    text = "é" * (VALUE_BYTES_MAX // 2)
    assert answers(turn(core, commit(["put", "a", text]))) == []
    ((_, errnum, error),) = answers(turn(core, commit(["append", "a", f"{text}x"])))
    assert errnum == Errno.EMSGSIZE
    assert error == f"a: {VALUE_BYTES_MAX + 1} bytes: at most {VALUE_BYTES_MAX} at once"


def test_small_commit_does_not_wait_for_all_that_is_committed_before_it() -> None:
    core = KvsCore()
    turn(core, commit(PUT))
    text = "x" * (ROUND_BYTES_MAX // 2)
    pieces = [commit(["put", f"k{n}", text], by="exec") for n in range(4)]
    turn(core, *pieces, commit(["put", "b", "2"], by="bob"))
    rounds = [
        action for _ in range(3) for action in turn(core, Stored()) if type(action) is StoreOps
    ]
    assert [[op.key for op in each.ops] for each in rounds] == [["k0", "k1"], ["k2", "k3"], ["b"]]


def test_answer_to_a_lookup_of_many_keys_ends_with_the_value_that_is_too_long() -> None:
    core = KvsCore()
    turn(core, asked("kvs.lookup-all", {"keys": ["a", "b", "c", "d"], "chars_max": 5}))
    told = answers(turn(core, Fetched(["123", None, "456", "7"], [])))
    assert told == [(1, 0, {"values": ["123", None, "456"]})]


# Backups


def backup(path: str = "/b", by: str = "alice", tag: int = 7) -> Request:
    return asked("kvs.backup", {"path": path}, by=by, tag=tag)


def test_backup_is_answered_when_it_is_made_and_commits_go_on_meanwhile() -> None:
    core = KvsCore()
    assert turn(core, backup()) == [MakeBackup("/b")]
    assert turn(core, commit(PUT)) == [StoreOps([Put("a", "1")])]
    assert answers(turn(core, Stored())) == [(1, 0, {})]
    assert answers(turn(core, BackedUp())) == [(7, 0, None)]
    assert turn(core, backup(tag=8)) == [MakeBackup("/b")]
    (refused,) = answers(turn(core, BackedUp(Errno.ENOSPC, "full")))
    assert refused[:2] == (8, Errno.ENOSPC)


def test_only_one_backup_is_made_at_a_time() -> None:
    core = KvsCore()
    turn(core, backup())
    assert [each[:2] for each in answers(turn(core, backup(tag=9)))] == [(9, Errno.EBUSY)]
    assert answers(turn(core, BackedUp())) == [(7, 0, None)]


def test_backup_stops_when_its_client_goes() -> None:
    core = KvsCore()
    turn(core, backup())
    assert turn(core, gone("kvs", "bob")) == []
    assert turn(core, gone("kvs", "alice")) == [StopBackup()]
    assert turn(core, BackedUp(Errno.ECANCELED, "gone")) == []  # 6.disconnect.2
    assert turn(core, gone("kvs", "alice")) == []


def test_guest_gets_no_backup() -> None:
    refused = turn(KvsCore(), asked_by_guest("kvs.backup", {"path": "/b"}))
    assert [each[1] for each in answers(refused)] == [Errno.EPERM]


def look_up_many(first: int, count: int, by: str, tag: int) -> Request:
    keys = [f"k{number}" for number in range(first, first + count)]
    return asked("kvs.lookup-all", {"keys": keys}, by=by, tag=tag)


def rounds(core: KvsCore, actions: list[Any]) -> list[list[int]]:
    """The matchtags that each round of the store answers, until it has nothing to do."""
    found = []
    while actions:
        replies: list[Any] = []
        for action in actions:
            match action:
                case StoreOps():
                    replies.append(Stored())
                case Fetch(keys=keys):
                    replies.append(Fetched([None] * len(keys), []))
        actions = turn(core, *replies) if replies else []
        if said := [tag for tag, _, _ in answers(actions)]:
            found.append(said)
    return found


def test_reads_of_one_sender_take_turns_with_those_of_others() -> None:
    core = KvsCore()
    many = [look_up_many(n, KEYS_OF_SENDER_MAX, "alice", 10 + n) for n in range(5)]
    actions = turn(core, *many, lookup("a", by="bob", tag=1), lookup("b", by="bob", tag=2))
    assert rounds(core, actions) == [[10, 1, 2], [11], [12], [13], [14]]


def test_what_a_sender_asks_after_reads_that_wait_waits_with_them() -> None:
    """It must not see its own later commit, and commits stay in order."""
    core = KvsCore()
    many = [look_up_many(n, KEYS_OF_SENDER_MAX, "alice", 10 + n) for n in range(3)]
    actions = turn(
        core,
        *many,
        commit(PUT, tag=20),
        lookup("a", tag=21),
        commit(["put", "b", "2"], by="bob", tag=1),
        lookup("a", by="carol", tag=2),
    )
    assert rounds(core, actions) == [[10, 2], [11], [12], [20, 1, 21]]
