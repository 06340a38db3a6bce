"""Enter and leave handlers come in pairs, and counters cannot leak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.formats import Jobspec
from flux_trio.jobtap import Plugin, State
from flux_trio.protocols import JobState, UpdateApplied
from tests.support.job_view import SeenJob
from tests.support.plugin_host import Rig, rig

NEW = SeenJob()
WAYS = (State.DEPEND, State.PRIORITY, State.SCHED, State.RUN, State.CLEANUP)


class Counts(Plugin):
    """Keeps what it is told of every state."""

    name = "counts"

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, State]] = []

    @jobtap.enter(*WAYS, State.INACTIVE)
    def entered(self, job: jobtap.Job) -> None:
        self.heard.append(("enter", job.id, job.state))

    @jobtap.leave(*WAYS)
    def left(self, job: jobtap.Job) -> None:
        self.heard.append(("leave", job.id, job.state))

    busy = jobtap.counter(State.RUN, State.CLEANUP, key=lambda job: job.userid)
    waiting = jobtap.counter(State.SCHED, amount=lambda job: job.urgency / 10)


async def test_each_state_is_entered_and_left_once() -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        job = r.move(NEW, State.DEPEND, State.PRIORITY, State.SCHED)
        r.answer("job.state.sched", job)  # asked again in the same state
        r.move(job, State.INACTIVE)
        r.host.notify("job.destroy", replace(job, state=State.INACTIVE))
    assert plugin.heard == [
        ("enter", 7, State.DEPEND),
        ("leave", 7, State.PRIORITY),
        ("enter", 7, State.PRIORITY),
        ("leave", 7, State.SCHED),
        ("enter", 7, State.SCHED),
        ("leave", 7, State.INACTIVE),
        ("enter", 7, State.INACTIVE),
    ]


class Sees(Plugin):
    """Keeps the amounts that its leave and enter handlers see."""

    name = "sees"
    busy = jobtap.counter(State.RUN)
    waiting = jobtap.counter(State.SCHED)

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, float]] = []

    def see(self, what: str) -> None:
        self.seen.append((what, self.waiting[None], self.busy[None]))

    @jobtap.leave(State.SCHED, State.RUN)
    def left(self, job: jobtap.Job) -> None:
        self.see("leave")

    @jobtap.enter(State.RUN)
    def entered(self, job: jobtap.Job) -> None:
        self.see("enter")

    def removed(self) -> None:
        self.see("removed")


async def test_leave_and_enter_see_the_counters_after_the_move() -> None:
    plugin = Sees()
    async with rig(plugin) as r:
        r.move(NEW, State.SCHED, State.RUN, State.CLEANUP)
    assert plugin.seen[:3] == [("leave", 0, 1), ("enter", 0, 1), ("leave", 0, 0)]


async def test_leave_sees_the_counters_after_the_move_when_the_plugin_goes() -> None:
    plugin = Sees()
    async with rig(plugin) as r:
        jobs = [replace(NEW, id=number, state=State.SCHED) for number in (1, 2)]
        r.jobs(*jobs)
        for job in jobs:
            r.answer("job.state.sched", job)
        await r.host.remove("sees")
    assert plugin.seen == [("leave", 1, 0), ("leave", 0, 0), ("removed", 0, 0)]


async def test_job_that_goes_without_a_word_is_left() -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        job = r.move(NEW, State.RUN)
        assert plugin.busy[1000] == 1
        r.host.notify("job.destroy", job)
        assert plugin.heard[-1] == ("leave", 7, State.RUN)
        assert plugin.busy == plugin.busy
        assert (plugin.busy[1000], len(plugin.busy)) == (0, 0)


async def test_plugin_that_is_loaded_enters_what_jobs_are_in() -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        r.answer("job.new", replace(NEW, state=State.CLEANUP), only="counts")
        r.answer("job.new", replace(NEW, id=8))
        assert plugin.heard == [("enter", 7, State.CLEANUP)]
        assert plugin.busy.total == 1


async def test_plugin_that_is_removed_leaves_what_it_entered() -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        job = r.move(NEW, State.RUN)
        other = r.move(replace(NEW, id=8), State.SCHED)
        r.jobs(job, other)
        await r.host.remove("counts")
        assert plugin.heard[-2:] == [("leave", 7, State.RUN), ("leave", 8, State.SCHED)]
        r.host.notify("job.destroy", job)
        assert r.answer("job.state.cleanup", replace(job, state=State.CLEANUP)) is not None
        assert len(plugin.heard) == 4


async def test_plugin_object_that_is_loaded_again_counts_from_nothing() -> None:
    plugin = Counts()
    for _ in range(2):
        async with rig(plugin) as r:
            r.move(NEW, State.RUN)
            assert plugin.busy.total == 1


async def test_objects_of_one_class_have_counters_of_their_own() -> None:
    one, other = Counts(), Counts()
    other.name = "other"
    async with rig(one, other) as r:
        r.answer("job.state.run", replace(NEW, state=State.RUN), only="other")
        assert (one.busy.total, other.busy.total) == (0, 1)


async def test_counter_counts_by_key_and_amount() -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        for jobid in range(3):
            r.move(replace(NEW, id=jobid, userid=jobid // 2, urgency=1), State.SCHED, State.RUN)
        r.move(replace(NEW, id=9, urgency=3), State.SCHED)
        assert dict(plugin.busy) == {0: 2, 1: 1}
        assert plugin.waiting[None] == 0.3
        assert plugin.waiting["nobody"] == 0
        assert repr(plugin.busy) == "<Counter busy {0: 2, 1: 1}>"


async def test_failure_of_a_state_handler_is_a_failure_of_the_hook_and_pairs_stay_pairs() -> None:
    class Fails(Counts):
        @jobtap.enter(State.RUN)
        def fails(self, job: jobtap.Job) -> None:
            raise KeyError("bank")

        @jobtap.leave(State.RUN)
        def says(self, job: jobtap.Job) -> Any:
            return 3

    plugin = Fails()
    async with rig(plugin) as r:
        job = replace(NEW, state=State.RUN)
        line = Fails.says.__code__.co_firstlineno
        failed = "plugin counts failed in job.state.run for job ƒ8: "
        assert r.answer("job.state.run", job).error == failed + "KeyError: 'bank'"
        answer = r.answer("job.state.cleanup", replace(job, state=State.CLEANUP))
        assert str(answer.error).endswith(
            f"TypeError: leave RUN: expected None, got 3 ({__file__}:{line})"
        )
        assert [what for what, _, _ in plugin.heard] == ["enter", "leave", "enter"]
        assert {note["hook"] for note in r.notes} >= {"enter RUN", "leave RUN", "job.state.run"}


async def test_recount_finds_what_a_key_that_changed_has_left_behind() -> None:
    class ByUrgency(Plugin):
        running = jobtap.counter(State.RUN, key=lambda job: job.urgency)

    plugin = ByUrgency()
    async with rig(plugin) as r:
        job = r.move(NEW, State.RUN)
        assert r.host.recount() == 0
        r.jobs(replace(job, urgency=20))
        assert r.host.recount() == 2
        assert dict(plugin.running) == {20: 1}
        assert r.logged == [
            "plugin by-urgency: counter running of 16 had 1, there are 0",
            "plugin by-urgency: counter running of 20 had 0, there are 1",
        ]
        assert r.recounts[-1] == {
            "plugin": "by-urgency",
            "declared": {"running": {"16": 1}},
            "recounted": {"running": {"20": 1}},
        }
        assert r.host.recount() == 0


IN_DEBUG = msgspec.json.encode(
    Jobspec.from_command(["true"], attributes={"system.queue": "debug"}).to_json()
)


async def test_job_is_counted_anew_when_its_jobspec_has_changed() -> None:
    class ByQueue(Plugin):
        running = jobtap.counter(State.RUN, key=lambda job: job.jobspec.queue)

    plugin = ByQueue()
    async with rig(plugin) as r:
        job = r.move(NEW, State.RUN)
        moved = replace(job, jobspec=IN_DEBUG)
        r.answer("job.update", moved, UpdateApplied({}))
        assert dict(plugin.running) == {"debug": 1}
        r.jobs(moved)
        assert r.host.recount() == 0, r.logged


async def test_plugin_says_that_an_amount_has_changed() -> None:
    class Shares(Plugin):
        share = jobtap.counter(State.NEW, State.RUN, amount=lambda job: job.data.get("share", 1))

        @jobtap.on("job.new")
        def new(self, job: jobtap.Job) -> None:
            job.data["share"] = 7
            self.share.update(job)

    plugin = Shares()
    async with rig(plugin) as r:
        r.answer("job.new", NEW)
        assert dict(plugin.share) == {None: 7}
        r.jobs(NEW)
        assert r.host.recount() == 0, r.logged
        r.host.notify("job.destroy", replace(NEW, state=State.INACTIVE))
        assert dict(plugin.share) == {}


ENDS = st.sampled_from([[], [State.INACTIVE]])
ROADS = st.builds(lambda way, end: way + end, st.lists(st.sampled_from(WAYS), max_size=8), ENDS)


@settings(max_examples=15)
@given(roads=st.lists(ROADS, max_size=4), removed_after=st.integers(0, 20))
def test_whatever_way_jobs_take_pairs_are_pairs_and_a_recount_agrees(
    roads: list[list[JobState]], removed_after: int
) -> None:
    trio.run(_follow, roads, removed_after)


async def _follow(roads: list[list[JobState]], removed_after: int) -> None:
    plugin = Counts()
    async with rig(plugin) as r:
        jobs = {n: replace(NEW, id=n) for n in range(len(roads))}
        steps = [(n, state) for n, road in enumerate(roads) for state in road]
        for n, state in steps[:removed_after]:
            jobs[n] = r.move(jobs[n], state)
        r.jobs(*jobs.values())
        assert r.host.recount() == 0, r.logged
        for each in jobs.values():
            if each.state == State.INACTIVE:
                r.host.notify("job.destroy", each)
        await r.host.remove("counts")
        assert _balanced(r, plugin)


def _balanced(r: Rig, plugin: Counts) -> bool:
    """Nothing is left that was not entered, nor twice; all is left at the end."""
    inside: set[int] = set()
    for what, jobid, state in plugin.heard:
        if what == "leave":
            inside.remove(jobid)
        elif state != State.INACTIVE:
            assert jobid not in inside
            inside.add(jobid)
    return not inside and plugin.busy.total == 0


async def test_counters_are_recounted_at_rest_once_a_minute(autojump_clock: MockClock) -> None:
    class ByUrgency(Plugin):
        running = jobtap.counter(State.RUN, key=lambda job: job.urgency)

        @jobtap.on("job.validate")
        async def think(self, job: jobtap.Job) -> None:
            await trio.sleep(10)

    plugin = ByUrgency()
    async with rig(plugin) as r:
        r.jobs(replace(r.move(NEW, State.RUN), urgency=20))
        r.host.recount_at_rest()
        assert r.logged == []
        await trio.sleep(60)
        r.ask("job.validate", replace(NEW, id=8))
        r.host.recount_at_rest()
        assert r.logged == []
        await trio.sleep(11)
        r.host.recount_at_rest()
        assert dict(plugin.running) == {20: 1}


async def test_amounts_that_are_no_whole_numbers_agree_with_a_recount() -> None:
    class Shares(Plugin):
        share = jobtap.counter(State.RUN, amount=lambda job: job.urgency / 10)

    async with rig(Shares()) as r:
        jobs = [replace(NEW, id=n, urgency=n, state=State.RUN) for n in range(1, 9)]
        for job in jobs:
            r.answer("job.state.run", job)
        r.jobs(*jobs[4:])
        for job in jobs[:4]:
            r.host.notify("job.destroy", job)
        assert r.host.recount() == 0
        assert r.recounts[-1]["declared"] == r.recounts[-1]["recounted"]


async def test_key_that_fails_at_a_recount_is_told() -> None:
    class Fails(Plugin):
        running = jobtap.counter(State.RUN, key=lambda job: job.data["bank"])

        @jobtap.on("job.state.sched")
        def sched(self, job: jobtap.Job) -> None:
            job.data["bank"] = "physics"

    async with rig(Fails()) as r:
        job = r.move(NEW, State.SCHED, State.RUN)
        handle = jobtap.Job(job, None, r.host.find("fails").job_host)
        handle.data.clear()
        assert r.host.recount() == 0
        assert r.logged == ["plugin fails: counter running: KeyError: 'bank'"]
