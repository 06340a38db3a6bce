"""What happens when the job manager ends or hangs: all of it comes back from the eventlogs."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.broker import Handle, ModuleNotStarted
from flux_trio.messages import Errno, Flag, Level, Request, topics
from flux_trio.trace import Kind, Record
from tests.support.failing import (
    ENDS,
    HOUR,
    RECOVERY_S,
    WITHOUT,
    Mortal,
    Scene,
    allocated,
    both,
    scene,
    settle,
)
from tests.support.leaks import nothing_left

NAME = "job-manager"


async def replace(s: Scene, manager: Mortal, how: str, away_s: float = 10.0) -> Mortal:
    """The job manager ends, and another comes after a while; the others have found it."""
    await s.end(NAME, how, manager)
    await trio.sleep(away_s)
    after = manager.again()
    await s.load(NAME, after)
    await trio.sleep(RECOVERY_S)
    await settle()
    return after


@pytest.mark.parametrize("end", ENDS)
async def test_jobs_in_every_state_go_on_with_the_next_job_manager(
    autojump_clock: MockClock, end: str
) -> None:
    """16: all state from eventlogs; scheduler and execution service say hello again.

    See readings: Job manager gone.
    """
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        held = await s.submit(urgency=0)
        running = await s.submit(run_s=HOUR, ncores=4)
        ends_meanwhile = await s.submit(run_s=5, urgency=20)
        pending = await s.submit(run_s=1, urgency=10)
        before = await s.events(running)
        await replace(s, manager, end)
        assert await s.events(running) == before
        stats = await s.stats()
        assert stats["sched"]["link"] == "ready"
        assert stats["exec"] == {"service": "job-exec"}
        later = await s.submit(run_s=1)
        await s.urgency(held, 16)
        for jobid in (running, ends_meanwhile, pending, later, held):
            await s.wait(jobid)
            events = await s.events(jobid)
            assert "exception" not in events
            once = ("submit", "alloc", "start", "finish", "release", "free", "clean")
            assert [events.count(name) for name in once] == [1] * len(once)


@pytest.mark.parametrize("end", ENDS)
async def test_job_that_ends_while_the_job_manager_is_away_ends_when_it_is_back(
    autojump_clock: MockClock, end: str
) -> None:
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        jobid = await s.submit(run_s=60)
        await replace(s, manager, end, away_s=100)
        assert (await s.events(jobid))[-1] == "clean"


class _Stillborn:
    """A job manager that has its name and the others' hellos, and then fails to start."""

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register(topics.JOB_MANAGER)
        await trio.sleep(0.5)
        raise ZeroDivisionError("as asked")


HELLOS = (topics.SCHED_HELLO, topics.EXEC_HELLO)


def hellos_in(records: list[Record]) -> Counter[str]:
    """How often each hello was said."""
    said = [record.message for record in records if record.kind == Kind.SEND]
    return Counter(m.topic for m in said if isinstance(m, Request) and m.topic in HELLOS)


async def test_nobody_asks_for_a_job_manager_that_is_never_there(autojump_clock: MockClock) -> None:
    """readings: Job manager gone.

    Scheduler and execution service wait for the name; a day of it is no work.
    """
    records: list[Record] = []
    async with scene(sinks=[records.append]) as s:
        await s.supervisor.remove(NAME)
        await settle()
        records.clear()
        await trio.sleep(24 * HOUR)
        journals = [each for each in records if each.kind == Kind.SEND]
        assert hellos_in(records) == Counter()
        assert len(journals) < 3_000  # the job list looks, once a minute, and is answered


async def test_each_job_manager_that_fails_to_start_is_told_hello_once_and_the_next_one_serves(
    autojump_clock: MockClock,
) -> None:
    "readings: Job manager gone. The name comes and goes; each hello is for one that came."
    records: list[Record] = []
    async with scene(sinks=[records.append]) as s:
        manager = await s.make_mortal(NAME)
        jobid = await s.submit(run_s=HOUR)
        await s.end(NAME, "raises", manager)
        records.clear()
        for _ in range(20):
            with pytest.raises(ModuleNotStarted):
                await s.load(NAME, _Stillborn())
        await trio.sleep(24 * HOUR)
        # one that it hears, one that the broker answers when it is gone
        assert all(count <= 2 * 20 for count in hellos_in(records).values())
        assert set(hellos_in(records)) == set(HELLOS)
        await s.load(NAME, manager.again())
        await trio.sleep(RECOVERY_S)
        assert (await s.events(jobid))[-1] == "clean"


class _Replaying:
    """A job manager that has its name and answers nobody, as long as it replays."""

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register(topics.JOB_MANAGER)
        task_status.started()
        await trio.sleep_forever()


NEEDS_MANAGER = ("sched", "job-exec", "job-ingest", "job-list")


@pytest.mark.parametrize("replaying", [True, False])
async def test_first_hello_waits_while_the_job_manager_is_replaced(
    autojump_clock: MockClock, replaying: bool
) -> None:
    """readings: Job manager gone.

    It is reloaded while it replays, or is not there at all when the others come.
    """
    async with scene(without=(NAME, *NEEDS_MANAGER)) as s:
        real = s.supervisor.specs[NAME]
        if replaying:
            await s.load(NAME, _Replaying())
        for name in NEEDS_MANAGER:
            await s.supervisor.load(name)
        await settle()
        if replaying:
            await s.supervisor.remove(NAME)
        await trio.sleep(HOUR)
        s.supervisor.specs[NAME] = real
        await s.supervisor.load(NAME)
        await trio.sleep(RECOVERY_S)
        assert all(name in s.supervisor for name in NEEDS_MANAGER)
        jobid = await s.submit(run_s=1)
        await s.wait(jobid)
        assert "exception" not in await s.events(jobid)
        assert s.log(Level.ERR) == []


@pytest.mark.parametrize(("end", "level"), [("raises", 1), ("returns", 1), ("removed", 0)])
async def test_end_of_the_job_manager_is_in_the_log_unless_it_was_asked_for(
    autojump_clock: MockClock, end: str, level: int
) -> None:
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        await replace(s, manager, end)
        assert len(s.log(Level.ERR)) == level
        assert all("module job-manager: " in line for line in s.log(Level.ERR))


async def test_who_waits_on_a_job_manager_that_ends_is_answered(autojump_clock: MockClock) -> None:
    "6: ENOSYS; its streams end."
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        s.handle.send(Request(topics.JOB_JOURNAL, {}, 99, int(Flag.STREAMING)))
        await settle()
        await s.end(NAME, "raises", manager)
        first, last = await s.handle.receive()
        assert first.payload == {"events": []}
        assert (last.errnum, last.error_text) == (
            Errno.ENOSYS,
            "job-manager ended: ZeroDivisionError: as asked",
        )


async def test_fakes_hear_of_the_job_managers_end_and_may_say_hello_again(
    autojump_clock: MockClock,
) -> None:
    "readings: Job manager gone. They get its disconnect, even before they were asked for anything."
    async with scene(WITHOUT) as s:
        manager = await s.make_mortal(NAME)
        sched, execution = await both(s)
        jobid = await allocated(s, sched)
        execution.tell(jobid, "start")
        await settle()
        await s.end(NAME, "raises", manager)
        heard = [message.topic for message in (sched.came[-1], execution.came[-1])]  # type: ignore[union-attr]  # requests
        assert heard == ["sched.disconnect", "job-exec.disconnect"]
        await s.load(NAME, manager.again())
        await execution.handle.call(topics.EXEC_HELLO, {"service": "job-exec"})
        await settle()
        assert execution.starts() == [(jobid, False), (jobid, True)]
        async with sched.handle.stream(topics.SCHED_HELLO) as told:
            assert [job["id"] async for job in told] == [jobid]
        assert (await sched.handle.call(topics.SCHED_READY, {"mode": "unlimited"}))["count"] == 0


async def test_lists_tell_what_was_last_known_while_the_job_manager_is_away(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        jobid = await s.submit(run_s=HOUR)
        await s.end(NAME, "raises", manager)
        listed = await s.call(topics.LIST_LIST, {"max_entries": 0})
        assert [job["id"] for job in listed["jobs"]] == [jobid]


async def test_plugins_know_all_jobs_before_one_of_them_goes_on(autojump_clock: MockClock) -> None:
    """A plugin that counts running jobs would let a job run beyond its limit otherwise."""
    asked: list[tuple[str, int]] = []

    class Watches(jobtap.Plugin):
        @jobtap.on("job.new")
        def new(self, job: jobtap.Job) -> None:
            asked.append(("job.new", job.id))

        @jobtap.on("job.state.priority")
        def priority(self, job: jobtap.Job) -> None:
            asked.append(("job.state.priority", job.id))

    async with scene(plugins=[Watches()]) as s:
        manager = await s.make_mortal(NAME)
        held = await s.submit(urgency=0)
        running = await s.submit(run_s=HOUR)
        asked.clear()
        await replace(s, manager, "raises")
        assert asked[:3] == [("job.new", held), ("job.new", running), ("job.state.priority", held)]


async def test_reloads_of_the_job_manager_leave_nothing(autojump_clock: MockClock) -> None:
    async with scene() as s:
        manager = await s.make_mortal(NAME)
        await s.submit(run_s=100 * HOUR, ncores=4)
        await s.submit(run_s=HOUR)
        async with nothing_left(s.instance):
            for end in (*ENDS, *ENDS):
                manager = await replace(s, manager, end)


async def test_job_manager_that_hangs_shows_in_the_module_list(autojump_clock: MockClock) -> None:
    "design, job manager hangs: idle time, with messages waiting."

    class Deaf:
        async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
            handle.register(topics.JOB_MANAGER)
            task_status.started()
            await trio.sleep_forever()

    async with scene() as s:
        await s.supervisor.remove(NAME)
        await s.load(NAME, Deaf())
        await trio.sleep(100)
        modules = (await s.call(topics.MODULE_LIST))["modules"]
        (shown,) = [each for each in modules if each["name"] == NAME]
        assert shown["waiting"] > 0
        assert 100 <= shown["idle"] < 101
        assert all(each["waiting"] == 0 for each in modules if each["name"] != NAME)
