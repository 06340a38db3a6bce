"""The fingerprint of a core tells states apart, except by how things are numbered.

That the cores themselves have such fingerprints, `tests/lab/test_other_numbers.py` checks.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.config import SchedConfig
from flux_trio.cores.kvs.ops import Append, Op, Put
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.state import CorePart, Part
from flux_trio.editions import CLASSIC
from flux_trio.editions.journal import Ended
from flux_trio.formats import Event, format_eventlog, job_key
from flux_trio.formats.meanings import (
    EventlogText,
    JobId,
    JobIds,
    JournalEntry,
    JsonObject,
    KvsOp,
    Matchtag,
    Meaning,
    Number,
    Peer,
    Stamp,
    Time,
)
from flux_trio.messages import Response
from flux_trio.protocols import LINK, LinkEvent, Rare, Story
from tests.support import reborn
from tests.support.asking import asked
from tests.support.fingerprint import differences, fingerprint, normalised
from tests.support.payload_types import PayloadTypes, payload_types
from tests.support.renumbered import beside_other_numbers
from tests.support.sched_script import alloc

NOW = 1_700_000_000.0
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Call:
    jobid: JobId


class JobAsked(msgspec.Struct):
    id: JobId
    until: Time = 0.0


@dataclass
class Job:
    id: JobId
    t_submit: Stamp = 0.0
    end: Time = math.inf
    note: str = ""
    after: list[JobId] = field(default_factory=list)


class Jobs(Part):
    """A part with one of everything."""

    by_id: dict[JobId, Job]
    known: set[JobId]
    streams: dict[Peer, dict[Matchtag, str]]
    waiting: list[Any]
    ops: list[Op]
    raw_ops: list[KvsOp]
    shown: JsonObject
    grant: Annotated[int, Number("grant")]

    def __init__(self) -> None:
        self.by_id, self.known, self.streams, self.waiting = {}, set(), {}, []
        self.ops, self.raw_ops, self.shown, self.grant = [], [], {}, 0


class Holder:
    """An object with slots, of whose class few have an end."""

    __slots__ = ("id", "place", "rare")

    id: JobId
    place: Annotated[int, Meaning.DERIVED]
    rare: dict[str, Any] | None

    end = Rare[Time | None](None)

    def __init__(self, jobid: int, end: float) -> None:
        self.id, self.place, self.rare = jobid, 1000 - jobid, {"end": end}


class Others(Part):
    """A part with what is seldom held."""

    story: Story[LinkEvent]
    holders: list[Holder]
    ended: list[Ended]
    ids: JobIds | None
    entries: list[JournalEntry]
    told: list[Response]
    held: EventlogText

    def __init__(self) -> None:
        self.story = Story()
        self.holders, self.ended, self.entries, self.told = [], [], [], []
        self.ids, self.held = None, ""


class OtherCore(CorePart):
    def __init__(self, jobid: int, now: float) -> None:
        self.outbox = Outbox[Call, Any, str](CLASSIC)
        self.outbox.now = now
        self.others = others = Others()
        others.holders = [Holder(jobid, now + 5), Holder(jobid + 1, now + 9)]
        others.ended = [Ended(jobid, int(now * 1e6) - 7, 1000, 1, 0, 0)]
        others.ids = array("Q", [jobid + 1, jobid])
        others.entries = [[jobid, 0, {"timestamp": now, "name": "submit"}]]
        others.told = [Response("ask", {"id": jobid, "until": now + 1}, routes=("alice",))]
        others.held = format_eventlog([Event(now, "start")]) + '{"times'


class Core(CorePart):
    def __init__(self) -> None:
        self.outbox = Outbox[Call, Any, tuple[str, JobId]](CLASSIC)
        self.outbox.now = NOW
        self.jobs = Jobs()


@payload_types.register
def _of_other(_core: OtherCore) -> PayloadTypes:
    return {(Response, "ask"): JobAsked}


@payload_types.register
def _of_core(_core: Core) -> PayloadTypes:
    return {"ask": JobAsked}


def core_with(ids: list[int], shift: float = 0.0, tags: int = 0) -> Core:
    """A core that knows jobs of three `ids`; its clock and its matchtags are ahead by so much."""
    core = Core()
    now = core.outbox.now = NOW + shift
    core.outbox.calls._last = tags
    first, second, third = ids
    for n, jobid in enumerate(ids):
        core.jobs.by_id[jobid] = Job(jobid, now - 30 + n, now + 0.1)
        core.outbox.ask("ask", None, Call(jobid))
        core.outbox.set_timer(("kill", jobid), now + 30)
    core.outbox.pop_actions()
    core.jobs.by_id[first].after = [third, second]
    core.jobs.known = set(ids)
    core.jobs.streams = {"alice": {tags + 1: "a", tags + 9: "b"}, "bob": {2 * tags + 1: "c"}}
    payload = {"id": second, "until": now + 5}
    core.jobs.waiting = [asked("ask", payload, by="alice", tag=tags + 9)]
    log = format_eventlog([Event(now, "submit", {"userid": 5}), Event(now + 1, "free")])
    r = f'{{"version":1,"execution":{{"starttime":{now},"expiration":{now + 60}}}}}'
    core.jobs.ops = [Append(job_key(first, "eventlog"), log), Put(job_key(second, "R"), r)]
    usec = int((now + 2) * 1e6)
    core.jobs.raw_ops = [["unlink", f"active.{third:016x}"]]
    core.jobs.raw_ops.append(["put", f"ended.{usec:016x}.{third:016x}", "[1,2]"])
    core.jobs.raw_ops.append(["put", "job-manager.max-jobid", str(third)])
    core.jobs.shown = {"same": [1]}
    return core


@pytest.mark.parametrize(
    "change",
    [
        "others.holders[1].end = others.holders[0].end",
        "others.ended = [msgspec.structs.replace(others.ended[0], usec=1000)]",
        "others.ids.reverse()",
        "others.entries[0][0] += 1",
        "others.told[0].payload['id'] = others.holders[1].id",
        "others.held = others.held.replace('start', 'other')",
    ],
)
def test_rare_attributes_arrays_responses_and_logs_count_without_their_numbers(change: str) -> None:
    one, other = OtherCore(5, NOW), OtherCore(7, NOW + 4096)
    assert differences(normalised(one), normalised(other)) == []
    exec(change, globals(), {"others": other.others})
    assert fingerprint(one) != fingerprint(other)


def test_story_and_what_is_derived_do_not_count() -> None:
    one, other = OtherCore(5, NOW), OtherCore(5, NOW)
    other.others.story.step(LINK, 5, LINK.initial, LinkEvent.HELLO)
    other.others.holders[0].place = 3
    assert fingerprint(one) == fingerprint(other)


class TestEqual:
    """States that differ in nothing but how things are numbered."""

    @given(
        st.lists(st.integers(1, 2**64 - 1), min_size=3, max_size=3, unique=True),
        st.integers(-1_000_000_000_000, 2_000_000_000_000).map(lambda ms: ms / 1000),
        st.integers(0, 1000),
    )
    def test_shifted_clock_other_ids_burnt_tags(
        self, ids: list[int], shift: float, tags: int
    ) -> None:
        one, other = core_with([1, 2, 3]), core_with(sorted(ids), shift, tags)
        assert differences(normalised(one), normalised(other)) == []
        assert fingerprint(one) == fingerprint(other)

    def test_order_of_a_set(self) -> None:
        one, other = core_with([1, 8, 9]), core_with([1, 8, 9])
        other.jobs.known = {9, 8, 1}
        assert fingerprint(one) == fingerprint(other)

    def test_equal_json_once_or_twice(self) -> None:
        one, other = core_with([1, 2, 3]), core_with([1, 2, 3])
        value = [1]
        one.jobs.shown = {"a": value, "b": value}
        other.jobs.shown = {"a": [1], "b": [1]}
        assert fingerprint(one) == fingerprint(other)

    def test_numbers_of_any_kind_have_ranks_and_0_stays(self) -> None:
        one, other = core_with([1, 2, 3]), core_with([1, 2, 3])
        one.jobs.grant, other.jobs.grant = 1, 7
        assert fingerprint(one) == fingerprint(other)
        one.jobs.grant = 0
        assert fingerprint(one) != fingerprint(other)

    def test_state_is_readable(self) -> None:
        core = Core()
        core.outbox.ask("ask", None, Call(77))
        core.outbox.pop_actions()
        core.outbox.set_timer(("kill", 78), NOW + 0.1)
        core.outbox.pop_actions()
        assert normalised(core)["core.outbox"] == {
            "calls": [
                "Calls",
                {"_open": ["dict", [["matchtag", 1], ["Call", {"jobid": ["job", 1]}]]]},
            ],
            "timers": ["dict", [["tuple", "kill", ["job", 2]], ["time", 0.1]]],
            "actions": ["list"],
        }


CHANGES = [
    "jobs.by_id = dict(reversed(jobs.by_id.items()))",
    "jobs.by_id[1].after = [2, 3]",
    "jobs.by_id[1].end += 0.5",
    "jobs.by_id[1].end = math.inf",
    "jobs.by_id[1].end += 1e-6  # another order",
    "jobs.by_id[3].t_submit = NOW + 10",
    "jobs.by_id[1].note = 'note'",
    "jobs.by_id[2].after = jobs.by_id[3].after  # one list twice",
    "outbox.calls._open[1] = Call(2)",
    "outbox.calls.close(2)",
    "outbox.timers['kill', 4] = outbox.timers.pop(('kill', 3))",
    "jobs.waiting = [msgspec.structs.replace(jobs.waiting[0], matchtag=1)]",
    "jobs.waiting[0].payload['id'] = 1",
    "jobs.waiting[0].payload['until'] += 1",
    "jobs.ops[0] = Append(job_key(2, 'eventlog'), jobs.ops[0].text)",
    "jobs.ops[0] = Append(job_key(1, 'eventlog'), format_eventlog([Event(NOW, 'start')]))",
    "jobs.ops[1] = Put(job_key(2, 'R'), jobs.ops[1].text.replace(f'{NOW + 60}', f'{NOW + 61}'))",
]


@pytest.mark.parametrize("change", CHANGES)
def test_states_that_differ_in_more_have_different_fingerprints(change: str) -> None:
    one, other = core_with([1, 2, 3]), core_with([1, 2, 3])
    exec(change, globals(), {"jobs": other.jobs, "outbox": other.outbox})
    assert fingerprint(one) != fingerprint(other)
    assert differences(normalised(one), normalised(other))


def test_number_that_may_mean_two_things_is_refused() -> None:
    class Unclear(CorePart):
        number: JobId | Annotated[int, Meaning.LAST]

        def __init__(self) -> None:
            self.number = 1

    with pytest.raises(TypeError, match="expected one meaning of a int, got 2"):
        fingerprint(Unclear())


@pytest.mark.skipif(reborn.is_on, reason="a core that is made here has no shell to be replaced in")
def test_job_id_that_is_not_typed_as_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted violation: worlds with other numbers would find it."""

    class Unmarked(SchedCore):
        _last: int

        def __init__(self) -> None:
            super().__init__(SchedConfig())
            self._last = 0

        def turn(self, now: float, inputs: Any) -> Any:
            for each in inputs:
                self._last = each.payload["id"]
            return super().turn(now, inputs)

    monkeypatch.setattr("tests.support.renumbered.EVERY", 1)
    with beside_other_numbers(Unmarked):
        core = Unmarked()
        core.start(1.0)
        with pytest.raises(AssertionError, match=r"core\._last: 1 != 4"):
            core.turn(1.0, [alloc(1)])
