"""Watches of keys with readers that pause, cancel, leave and ask again, in every order.

Meanwhile keys are put, appended to and unlinked, the store answers late, and a transaction may
fail. What a reader has put together is always a value that the key has had, never an older one than
before, and the last one at rest.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Append, Fetch, Fetched, Put, Stored, StoreOps, Unlink
from flux_trio.messages import Errno, Response
from tests.support.asking import asked, gone
from tests.support.kvs_script import commit, turn

SEEDS = 150
ACTS = 80
KEYS = ("log", "log.below", "other")
READERS = 4
TAG = 3
ENDLESS = 10_000  # more credit than there is to tell


class Reader:
    """A peer with at most one watch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = ""
        self.credit = 0
        self.text: str | None = None
        self.at = 0  # the place of `text` in the history of its key
        self.is_open = self.is_canceled = False


class World:
    """The core, its store with the history of each key, and the readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.core = KvsCore()
        self.store: dict[str, str] = {}
        self.history: dict[str, list[str | None]] = {key: [None] for key in KEYS}
        self.asked_of_store: list[Any] = []
        self.readers = [Reader(f"reader-{n}") for n in range(READERS)]
        self.nwritten = self.ncommits = self.nanswered = 0
        self.nanew = self.nended = 0  # values that came again, watches that ended with their key

    def turn(self, *inputs: Any) -> None:
        """Have the core take inputs; its readers take what it says."""
        for action in turn(self.core, *inputs):
            if isinstance(action, Fetch | StoreOps):
                self.asked_of_store.append(action)
            elif isinstance(action, Response):
                self.heard(action)

    def heard(self, response: Response) -> None:
        if response.topic == "kvs.commit":
            self.nanswered += 1
            return
        reader = next(each for each in self.readers if each.name == response.routes[0])
        if response.topic != "kvs.watch":
            return
        assert reader.is_open, f"{response} after the end"
        if response.errnum:
            reader.is_open = False
            self.nended += response.errnum == Errno.ENOENT
            assert reader.is_canceled or response.errnum == Errno.ENOENT
            return
        reader.credit -= 1
        assert reader.credit >= 0, "more than there was credit for"
        payload: Any = response.payload
        self.nanew += "value" in payload and reader.text is not None
        had = "" if reader.text is None or "value" in payload else reader.text
        reader.text = had + payload.get("value", payload.get("append"))
        later = self.history[reader.key][reader.at :]
        assert reader.text in later, f"{reader.text!r} is no value of {reader.key} since"
        reader.at += later.index(reader.text)

    # What can happen

    def change(self) -> None:
        ops = []
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self.nwritten += 1
            key, line = self.rng.choice(KEYS), f"{self.nwritten}\n"
            how = self.rng.choices(["append", "put", "unlink"], [10, 3, 2])[0]
            ops.append([how, key] if how == "unlink" else [how, key, line])
        self.ncommits += 1
        self.turn(commit(*ops, by="writer", tag=1))

    def store_answers(self) -> None:
        if not self.asked_of_store:
            return
        action = self.asked_of_store.pop(0)
        if isinstance(action, Fetch):
            self.turn(Fetched([self.store.get(key) for key in action.keys], []))
        elif self.rng.random() < 0.1:
            self.turn(Stored(Errno.EIO, "the disk is gone"))
        else:
            for op in action.ops:
                self.apply(op)
            self.turn(Stored())

    def apply(self, op: Put | Append | Unlink) -> None:
        gone = [key for key in self.store if key == op.key or key.startswith(f"{op.key}.")]
        if isinstance(op, Unlink):
            for key in gone:
                del self.store[key]
                self.history[key].append(None)
            return
        had = self.store.get(op.key, "") if isinstance(op, Append) else ""
        self.store[op.key] = had + op.text
        self.history[op.key].append(had + op.text)

    def ask(self) -> None:
        """Begin a watch, or ask again with a matchtag that is in use, which changes nothing."""
        reader = self.rng.choice(self.readers)
        key, credit = self.rng.choice(KEYS), self.rng.choice([1, 1, 2, 5])
        request = asked(
            "kvs.watch", {"key": key, "credit": credit}, by=reader.name, tag=TAG, streaming=True
        )
        if reader.is_open:
            (refusal,) = turn(self.core, request)
            assert (refusal.errnum, refusal.routes) == (Errno.EPROTO, (reader.name,))
            return
        reader.__init__(reader.name)  # type: ignore[misc]
        reader.key, reader.credit, reader.is_open = key, credit, True
        reader.at = len(self.history[key]) - 1
        self.turn(request)

    def tell(self, reader: Reader, method: str, **payload: int) -> None:
        told = asked(f"kvs.watch-{method}", {"matchtag": TAG, **payload}, by=reader.name, tag=4)
        self.turn(told)

    def open_one(self) -> Reader | None:
        found = [reader for reader in self.readers if reader.is_open]
        return self.rng.choice(found) if found else None

    def grant(self) -> None:
        if (reader := self.open_one()) is not None:
            more = self.rng.choice([1, 1, 2, 4])
            reader.credit += more
            self.tell(reader, "credit", credit=more)

    def cancel(self) -> None:
        if (reader := self.open_one()) is not None:
            reader.is_canceled = True
            self.tell(reader, "cancel")
            assert not reader.is_open

    def leave(self) -> None:
        if (reader := self.open_one()) is not None:
            reader.is_open = False
            self.turn(gone("kvs", reader.name))

    def act(self) -> None:
        acts = {
            self.change: 16,
            self.store_answers: 30,
            self.ask: 8,
            self.grant: 14,
            self.cancel: 1,
            self.leave: 1,
        }
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        act()

    def rest(self) -> None:
        """The store answers all, and all readers read on."""
        for reader in self.readers:
            if reader.is_open:
                reader.credit += ENDLESS
                self.tell(reader, "credit", credit=ENDLESS)
        while self.asked_of_store:
            self.store_answers()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_reader_has_is_a_value_of_the_key_and_the_last_one_at_rest(seed: int) -> None:
    world = World(seed)
    for _ in range(ACTS):
        world.act()
    world.rest()
    assert world.nanswered == world.ncommits
    for reader in world.readers:
        if reader.is_open:
            assert reader.text == world.store.get(reader.key)


def test_readers_pause_are_told_values_anew_and_end_with_their_key() -> None:
    worlds = [World(seed) for seed in range(20)]
    npaused = 0
    for world in worlds:
        for _ in range(ACTS):
            world.act()
            npaused += sum(each.is_open and not each.credit for each in world.readers)
    assert npaused > 100
    assert sum(world.nanew for world in worlds) > 10
    assert sum(world.nended for world in worlds) > 10
