"""Operations of flux-core on keys, compared with a tree of dictionaries, as flux-core keeps one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.cores.kvs.ops import Append, Op, Put, TreeAsked, Unlink
from flux_trio.cores.kvs.trees import above, asked_of, normalized, ops_of
from flux_trio.formats.treeobj import bytes_as_text, text_as_bytes
from flux_trio.messages import Errno, FluxError
from flux_trio.store.stores import MemoryStore
from flux_trio.store.trees import read_trees

KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
OPS = st.one_of(
    st.builds(Put, KEYS, st.text("xy", max_size=2)),
    st.builds(Append, KEYS, st.text("xy", max_size=2)),
    st.builds(Unlink, KEYS),
)

Tree = dict[str, Any]


def apply(tree: Tree, op: Op) -> None:
    """What kvstxn.c does. Raises FluxError(EISDIR)."""
    *names, last = op.key.split(".")
    for name in names:
        if not isinstance(tree.get(name), dict):
            if isinstance(op, Unlink):
                return
            tree[name] = {}
        tree = tree[name]
    if isinstance(op, Unlink):
        tree.pop(last, None)
    elif isinstance(op, Put):
        tree[last] = op.text
    elif isinstance(tree.get(last), dict):
        raise FluxError(Errno.EISDIR, op.key)
    else:
        tree[last] = tree.get(last, "") + op.text


def without_empty(tree: Tree) -> Tree:
    left = {k: without_empty(v) if isinstance(v, dict) else v for k, v in tree.items()}
    return {k: v for k, v in left.items() if v != {}}


def all_apply(tree: Tree, ops: list[Op]) -> bool:
    """Apply `ops`; return whether flux-core stores them."""
    try:
        for op in ops:
            apply(tree, op)
    except FluxError:
        return False
    return True


def values_of(tree: Tree, start: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, each in tree.items():
        found |= (
            values_of(each, f"{start}{name}.") if isinstance(each, dict) else {start + name: each}
        )
    return found


@given(st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=6))
def test_commits_leave_the_values_that_flux_core_has(commits: list[list[Op]]) -> None:
    store, tree = MemoryStore(), Tree()
    for ops in commits:
        expected = copy.deepcopy(tree)
        asked = asked_of(ops, "")
        found = dict(zip([each.key for each in asked], read_trees(store, asked), strict=True))
        if all_apply(expected, ops):
            store.commit(ops_of(ops, found))
            tree = without_empty(expected)  # which are not there after a commit
        else:
            with pytest.raises(FluxError, match="is a directory"):
                ops_of(ops, found)
        assert store.put_down() == dict(sorted(values_of(tree).items()))


@given(st.lists(KEYS, max_size=12), st.one_of(KEYS, st.text("abc.", max_size=5)))
def test_a_directory_has_the_names_below_it(keys: list[str], at: str) -> None:
    store = MemoryStore()
    for key in keys:
        places = above(key)
        found = read_trees(store, [TreeAsked(each) for each in places])
        store.commit(ops_of([Put(key, "x")], dict(zip(places, found, strict=True))))
    stored = list(store.put_down())
    key = ".".join(filter(None, at.split(".")))
    start = f"{key}." if key else ""
    names = {
        each.removeprefix(start).partition(".")[0] for each in stored if each.startswith(start)
    }
    (at_key,) = read_trees(store, [TreeAsked(key, entries=True)])
    if key in stored:
        assert at_key.value == "x"
    else:
        assert set(at_key.entries) == names
        assert at_key.is_dir == (bool(names) or not key)


@given(st.lists(st.binary(max_size=6), max_size=4))
def test_bytes_come_back_from_their_text_also_in_pieces(pieces: list[bytes]) -> None:
    text = "".join(map(bytes_as_text, pieces))
    text.encode()  # a store takes it
    assert text_as_bytes(text) == b"".join(pieces)


@given(st.text())
def test_text_whose_characters_stand_for_bytes_is_kept(text: str) -> None:
    data = text.encode(errors="replace") + "\U000fdc80\U000fdcff".encode()
    assert text_as_bytes(bytes_as_text(data)) == data


@pytest.mark.parametrize(
    ("said", "key"), [("a.b", "a.b"), (".", ""), ("..a..b..", "a.b"), ("a", "a")]
)
def test_periods_that_mean_nothing_go(said: str, key: str) -> None:
    assert normalized(said) == key


@pytest.mark.parametrize("bad", ["", "a.\n", "a.\x7f", "x" * 2000])
def test_what_is_no_key_is_refused(bad: str) -> None:
    with pytest.raises(FluxError) as caught:
        normalized(bad)
    assert caught.value.errnum == Errno.EINVAL
