"""`watched`: every instance that is opened in its block is judged."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.config import Config
from flux_trio.formats import Jobspec
from flux_trio.instance import more_sinks
from flux_trio.messages import FluxError, topics
from flux_trio.testing import ClausesBroken, simulated_instance, watched
from flux_trio.trace import Kind, Record
from tests.support.breaking import ANY, BREAKING, broken_on_purpose, is_judged

SETTLE_S = 1.0  # of the virtual clock
CLAUSE = "32.hello.4"  # exec-hello has a string as service
DEBT = r"28\.background\.7 broken by resource"


async def break_a_clause() -> None:
    async with simulated_instance() as instance, instance.connect() as client:
        with pytest.raises(FluxError):
            await client.call(topics.EXEC_HELLO, {"service": 7})


async def test_broken_clause_is_raised_at_the_end_with_the_messages(
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(ClausesBroken, match=f"{CLAUSE} broken by client-1") as caught, watched():
        await break_a_clause()
    assert CLAUSE in {each.clause for each in caught.value.violations}
    assert "client-1 -> job-manager: request job-manager.exec-hello service=7" in str(caught.value)


async def test_check_in_the_block_raises_what_is_new(autojump_clock: MockClock) -> None:
    with watched() as broken:
        broken.check()
        await break_a_clause()
        with pytest.raises(ClausesBroken, match=CLAUSE):
            broken.check()
        broken.check()


async def test_check_of_an_instance_at_rest_asks_for_debts(autojump_clock: MockClock) -> None:
    with watched() as broken:
        async with simulated_instance() as instance, instance.connect() as client:
            client.note(Kind.RESOURCE, {"what": "down", "targets": "0"})
            await trio.sleep(SETTLE_S)
            with pytest.raises(ClausesBroken, match=DEBT):
                broken.check()


async def test_instance_is_judged_by_the_clauses_of_its_edition(autojump_clock: MockClock) -> None:
    """28.criteria.5: in the current edition an excluded target is down, and not shrunk."""
    config = Config(edition="current")
    with watched() as broken:
        async with simulated_instance(config=config) as instance, instance.connect() as client:
            await client.call(topics.RESOURCE_EXCLUDE, {"targets": "1"})
            await trio.sleep(SETTLE_S)
            broken.check()
            client.note(Kind.RESOURCE, {"what": "exclude", "targets": "0-1"})
            await trio.sleep(SETTLE_S)
            with pytest.raises(ClausesBroken, match=r"28\.criteria\.5 broken by resource"):
                broken.check()


async def test_check_of_a_busy_instance_asks_for_no_debts(autojump_clock: MockClock) -> None:
    with watched() as broken:
        await leave_a_debt(run_s=1000.0)
        broken.check()


async def test_instances_that_break_nothing_raise_nothing(autojump_clock: MockClock) -> None:
    with watched():
        async with simulated_instance():
            pass
        async with simulated_instance():
            pass


async def test_clauses_that_are_broken_on_purpose_are_named(autojump_clock: MockClock) -> None:
    with watched([CLAUSE]) as broken:
        await break_a_clause()
    assert CLAUSE in broken()
    with pytest.raises(ClausesBroken, match=CLAUSE), watched(["27.alloc.1"]):
        await break_a_clause()


async def test_error_of_the_block_itself_goes_first(autojump_clock: MockClock) -> None:
    async def break_more() -> None:
        with watched():
            await break_a_clause()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_more()


async def leave_a_debt(run_s: float | None = None) -> None:
    """A target goes down and the scheduler is not told; a job may be left running for `run_s`."""
    async with simulated_instance() as instance, instance.connect() as client:
        if run_s is not None:
            await submit(client, run_s)
            await trio.sleep(SETTLE_S)
        client.note(Kind.RESOURCE, {"what": "down", "targets": "0"})
        await trio.sleep(SETTLE_S)


async def submit(client: Handle, run_s: float) -> None:
    attributes = {"system.exec.test": {"run_duration": run_s}}
    jobspec = Jobspec.from_command(["true"], attributes=attributes)
    await client.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()})


@pytest.mark.parametrize("run_s", [None, SETTLE_S / 2])
async def test_debt_is_asked_for_when_an_instance_ends_at_rest(
    autojump_clock: MockClock, run_s: float | None
) -> None:
    with pytest.raises(ClausesBroken, match=DEBT), watched():
        await leave_a_debt(run_s)


async def test_debt_is_not_asked_for_when_an_instance_ends_in_the_middle_of_things(
    autojump_clock: MockClock,
) -> None:
    with watched():
        await leave_a_debt(run_s=1000.0)


async def test_debt_is_not_asked_for_when_an_instance_is_canceled(
    autojump_clock: MockClock,
) -> None:
    """What a module that has gone would have done next is not known."""
    records: list[Record] = []
    token = more_sinks.set((lambda: records.append,))
    await leave_a_debt()
    more_sinks.reset(token)
    (ending,) = (n for n, each in enumerate(records) if each.kind == Kind.INSTANCE)
    goes = (each for each in records[ending:] if each.party == topics.JOB_MANAGER and each.message)
    disconnect = next(each for each in goes if each.kind == Kind.SEND)
    assert disconnect.message is not None
    assert disconnect.message.topic == "kvs.disconnect"
    with watched():
        replay([*records[:ending], disconnect, records[ending]])
    with pytest.raises(ClausesBroken, match=DEBT), watched():
        replay(records[: ending + 1])


def replay(records: list[Record]) -> None:
    """An instance has these records."""
    observe = more_sinks.get()[-1]()
    for record in records:
        observe(record)


async def test_instances_outside_of_the_block_are_not_watched(autojump_clock: MockClock) -> None:
    with watched():
        pass
    await break_a_clause()


def test_this_file_is_among_the_tests_that_break_clauses() -> None:
    assert not is_judged("tests/testing/test_watching.py::test_x")
    assert is_judged("tests/test_instance.py::test_x")
    named = "tests/recordings/test_eventlogs.py::test_x"
    assert is_judged(named)
    assert "27.impl.10" in broken_on_purpose(named)
    assert BREAKING["tests/testing/test_watching.py"] == ANY
