"""A core that hears what another one hears, with other job ids, other matchtags, at another time.

It decides what the other one decides, and the fingerprints of both are equal after every turn: what
a search takes for the same state is the same, and nothing depends on a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from typing import Any, Final

import msgspec
import pytest
from msgspec import structs

from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import SetTimer, TimerFired
from flux_trio.formats import Event as LogEvent
from flux_trio.formats import format_eventlog, parse_eventlog
from flux_trio.messages import Event, Request, Response
from flux_trio.protocols import HookAnswered
from flux_trio.shell.protocol import Listing
from tests.support.fingerprint import differences, digest_of, normalised

LATER_S: Final = 4096.0  # a power of two: the sums are exact
_LATER_US: Final = int(LATER_S * 1e6)
BURNT_TAGS: Final = 3  # matchtags that nothing is asked by, in each turn

_ID_NAMES: Final = {"id", "jobid", "max_jobid", "ids"}
_PAIR_NAMES: Final = {"errors", "jobs", "events", "ended"}  # lists of [id, something, …]
_TIME_NAMES: Final = {"expiration", "starttime", "t_submit", "timestamp"}
_DOTHEX: Final = re.compile(r"(?<=job\.)[0-9a-f]{4}(?:\.[0-9a-f]{4}){3}")
_HEX: Final = re.compile(r"(?<=active\.)[0-9a-f]{16}")
_ENDED: Final = re.compile(r"ended\.([0-9a-f]{16})\.([0-9a-f]{16})")

TURNS: Final = ("start", "turn", "plugins_replied", "go_on")
"""Methods of a core; the last two are those of a turn with plugins."""


EVERY: Final = 8
"""States are compared after each eighth turn, which takes longer than the turns; actions always."""


@contextmanager
def beside_other_numbers(*classes: Any) -> Iterator[None]:
    """Let each core of these classes that is made in the block be compared with another one."""
    others: dict[int, tuple[Any, Renumbered]] = {}  # by the id of the core, which is kept

    def let_be_compared(patch: pytest.MonkeyPatch, cls: Any) -> None:
        init = cls.__init__

        @wraps(init)  # with its signature, which a recorded core is checked against
        def remember(self: Any, *args: Any, **kwargs: Any) -> None:
            def make() -> Any:
                made = cls.__new__(cls)
                init(made, *args, **kwargs)
                return made

            init(self, *args, **kwargs)
            others[id(self)] = self, Renumbered(make)

        patch.setattr(cls, "__init__", remember)
        for name in TURNS:
            if hasattr(cls, name):
                patch.setattr(cls, name, compared(name, getattr(cls, name)))

    def compared(name: str, method: Any) -> Any:
        @wraps(method)
        def run(self: Any, *args: Any) -> Any:
            args = tuple(each if isinstance(each, (int, float)) else tuple(each) for each in args)
            actions = method(self, *args)
            if id(self) in others:
                _, other = others[id(self)]
                other.call(name, args, actions)
                if other.nturns % EVERY == 0:
                    assert_same_state(self, other.core)
            return actions

        return run

    with pytest.MonkeyPatch.context() as patch:
        for cls in classes:
            let_be_compared(patch, cls)
        yield


def assert_same_state(core: Any, other: Any) -> None:
    """Of two cores, but for their numbers."""
    state, others = normalised(core), normalised(other)
    found = differences(state, others)
    assert not found, "\n".join(found)
    assert digest_of(state) == digest_of(others)


class Renumbered:
    """Feeds a core of its own with what another core is fed, in other numbers."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.core = make()
        self.nturns = 0
        self._tags: dict[int, int] = {}
        self._keys: dict[Any, Any] = {}
        self._made: dict[int, int] = {}  # ids that the cores have made

    def call(self, method: str, args: tuple[Any, ...], actions: list[Any]) -> None:
        """Call a method; `args`, a time or inputs each, and `actions` are those of the other."""
        self.nturns += 1
        self._burn_tags()
        own = [
            each + LATER_S
            if isinstance(each, (int, float))
            else [self._input(item) for item in each]
            for each in args
        ]
        self._learn(actions, getattr(self.core, method)(*own))

    def _burn_tags(self) -> None:
        outbox = next(part for part in vars(self.core).values() if isinstance(part, Outbox))
        for _ in range(BURNT_TAGS):
            outbox.calls.close(outbox.calls.open(None))

    def _learn(self, actions: list[Any], own: list[Any]) -> None:
        """Which numbers of this core stand for which of the other one."""
        assert [type(each) for each in own] == [type(each) for each in actions]
        for theirs, mine in zip(actions, own, strict=True):
            if isinstance(mine, Request):
                self._tags[theirs.matchtag] = mine.matchtag
                self._learn_ids(theirs.payload, mine.payload)
            elif isinstance(mine, SetTimer):
                self._keys[theirs.key] = mine.key

    def _learn_ids(self, theirs: Any, mine: Any) -> None:
        if isinstance(theirs, dict):
            if isinstance(jobid := theirs.get("id"), int) and jobid > 1 << 24:
                self._made[jobid] = mine["id"]
            for name, value in theirs.items():
                self._learn_ids(value, mine[name])
        elif isinstance(theirs, list):
            for one, other in zip(theirs, mine, strict=True):
                self._learn_ids(one, other)

    # Translation

    def _input(self, item: Any) -> Any:
        match item:
            case Request():
                tag = self._other_tag(item.matchtag)
                return structs.replace(item, matchtag=tag, payload=self._told(item.payload))
            case Response():
                tag = self._tags.get(item.matchtag, 0)
                return structs.replace(item, matchtag=tag, payload=self._told(item.payload))
            case Event():
                return structs.replace(item, payload=self._told(item.payload))
            case TimerFired(key):
                return TimerFired(self._keys.get(key, key))
            case Listing(ended):
                return Listing([self.jobid(each) for each in ended])
            case HookAnswered(answer=answer):
                done = tuple(self._input(each) for each in answer.operations)
                return structs.replace(item, answer=structs.replace(answer, operations=done))
        if hasattr(item, "id"):
            return structs.replace(item, id=self.jobid(item.id))
        return item

    def _other_tag(self, tag: int) -> int:
        return tag * 5 + 2 if tag else 0

    def jobid(self, jobid: int) -> int:
        """What this core knows the job as."""
        return self._made.get(jobid, jobid + 3 if 0 < jobid < 7 else jobid * 3 + (jobid and 1000))

    def _told(self, value: Any, name: str = "") -> Any:
        match value:
            case bool() | Enum() | None:
                return value
            case int() if name in _ID_NAMES:
                return self.jobid(value)
            case int() if name == "matchtag":
                return self._other_tag(value)
            case int() | float() if name in _TIME_NAMES:
                return value + LATER_S if value else value
            case str():
                return self._text(value)
            case dict():
                return {key: self._told(each, key) for key, each in value.items()}
            case [int(jobid), int(usec), *rest] if name == "ended":
                return [self.jobid(jobid), usec + _LATER_US, *rest]
            case [int(jobid), *rest] if name in _PAIR_NAMES:
                return [self.jobid(jobid), *map(self._told, rest)]
            case list():
                return [self._told(each, name) for each in value]
        return value

    def _text(self, text: str) -> str:
        def dothex(found: re.Match[str]) -> str:
            jobid = self.jobid(int(found[0].replace(".", ""), 16))
            return jobid.to_bytes(8).hex(".", 2)

        if text.startswith("{"):
            if '"timestamp"' in text:
                events = [self._event(event) for event in parse_eventlog(text)]
                return format_eventlog(events)
            told = self._told(msgspec.json.decode(text))
            return msgspec.json.encode(told).decode()
        text = _ENDED.sub(self._ended_key, text)
        text = _HEX.sub(lambda found: f"{self.jobid(int(found[0], 16)):016x}", text)
        return _DOTHEX.sub(dothex, text)

    def _ended_key(self, found: re.Match[str]) -> str:
        usec, jobid = int(found[1], 16), int(found[2], 16)
        return f"ended.{usec + _LATER_US:016x}.{self.jobid(jobid):016x}"

    def _event(self, event: LogEvent) -> LogEvent:
        context = event.context and self._told(event.context)
        return structs.replace(event, timestamp=event.timestamp + LATER_S, context=context)
