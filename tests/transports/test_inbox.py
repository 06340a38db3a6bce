import pytest
import trio
import trio.testing

from flux_trio.transports import Inbox


async def test_everything_that_waits_comes_in_one_batch_in_order() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.put_many([2, 3])
    assert len(inbox) == 3
    assert await inbox.get_batch() == [1, 2, 3]
    assert len(inbox) == 0


async def test_a_batch_has_no_more_than_its_limit_and_the_rest_waits() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put_many(range(5))
    assert await inbox.get_batch(2) == [0, 1]
    inbox.put(5)
    assert await inbox.get_batch_until(0.0, 3) == [2, 3, 4]
    assert await inbox.get_batch(3) == [5]
    assert len(inbox) == 0


async def test_a_parked_reader_gets_all_that_was_put_before_it_ran() -> None:
    inbox: Inbox[int] = Inbox()
    got: list[list[int]] = []

    async def read() -> None:
        got.append(await inbox.get_batch())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        inbox.put(1)
        inbox.put(2)
        inbox.put_many([])
    assert got == [[1, 2]]


@pytest.mark.parametrize("waiting", [[], [1]])
async def test_reading_is_a_checkpoint_and_a_cancelled_read_takes_nothing(
    waiting: list[int],
) -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put_many(waiting)
    with trio.CancelScope() as scope:
        scope.cancel()
        await inbox.get_batch()
    assert scope.cancelled_caught
    inbox.put(2)
    assert await inbox.get_batch() == [*waiting, 2]


async def test_an_item_put_before_a_cancel_still_reaches_the_reader() -> None:
    inbox: Inbox[int] = Inbox()
    got: list[int] = []
    scope = trio.CancelScope()

    async def read() -> None:
        with scope:
            got.extend(await inbox.get_batch())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        inbox.put(1)
        scope.cancel()
    assert got == [1]


async def test_close_hands_over_what_waits_and_then_ends() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.close()
    inbox.put(2)
    inbox.put_many([3])
    assert inbox.closed
    assert await inbox.get_batch() == [1]
    with pytest.raises(trio.EndOfChannel):
        await inbox.get_batch()


async def test_close_wakes_a_parked_reader() -> None:
    inbox: Inbox[int] = Inbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_end, inbox)
        await trio.testing.wait_all_tasks_blocked()
        inbox.close()


async def _expect_end(inbox: Inbox[int]) -> None:
    with pytest.raises(trio.EndOfChannel):
        await inbox.get_batch()


async def test_a_deadline_ends_an_empty_wait_and_not_a_full_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    inbox: Inbox[int] = Inbox()
    assert await inbox.get_batch_until(trio.current_time() + 5) == []
    assert trio.current_time() == 5
    inbox.put(1)
    assert await inbox.get_batch_until(trio.current_time() - 1) == [1]
    assert await inbox.get_batch_until(trio.current_time() - 1) == []


async def test_an_item_that_comes_before_the_deadline_is_returned_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    inbox: Inbox[int] = Inbox()

    async def put_later() -> None:
        await trio.sleep(2)
        inbox.put(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put_later)
        assert await inbox.get_batch_until(trio.current_time() + 5) == [1]
    assert trio.current_time() == 2


async def test_a_second_reader_is_refused() -> None:
    inbox: Inbox[int] = Inbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.get_batch)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await inbox.get_batch()
        inbox.put(1)


def test_drain_takes_what_waits_without_waiting() -> None:
    inbox: Inbox[int] = Inbox()
    assert inbox.drain() == []
    inbox.put_many([1, 2])
    assert inbox.drain() == [1, 2]
    assert len(inbox) == 0
