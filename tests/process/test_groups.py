"""How errors come out of exception groups."""

from __future__ import annotations

import pytest
import trio

from flux_trio.process.groups import error_of_block, holds, leaves, sole_error, unwrapping, without

WRONG, MISSING, LOST = ValueError("wrong"), KeyError("missing"), OSError("lost")
NESTED = ExceptionGroup("outer", [WRONG, ExceptionGroup("inner", [MISSING, LOST])])


def test_leaves_are_the_errors_of_all_groups_in_order() -> None:
    assert leaves(NESTED) == [WRONG, MISSING, LOST]
    assert leaves(WRONG) == [WRONG]


def test_group_holds_the_kinds_of_its_leaves() -> None:
    assert holds(NESTED, LookupError)
    assert not holds(NESTED, TypeError)
    assert holds(KeyboardInterrupt(), KeyboardInterrupt)


def test_group_without_a_kind_keeps_the_others() -> None:
    rest = without(NESTED, OSError)
    assert rest is not None
    assert leaves(rest) == [WRONG, MISSING]
    assert without(ExceptionGroup("all", [LOST]), OSError) is None
    assert without(LOST, OSError) is LOST


def test_sole_error_is_the_first_if_all_are_of_the_kinds() -> None:
    assert sole_error(NESTED, (ValueError, LookupError, OSError)) is WRONG
    assert sole_error(NESTED, (ValueError, LookupError)) is None
    assert sole_error(LOST, (OSError,)) is LOST
    assert sole_error(LOST, (ValueError,)) is None


def test_unwrapping_raises_the_error_of_nested_groups_with_its_cause() -> None:
    error = ValueError("caused")
    error.__cause__ = LOST
    with pytest.raises(ValueError, match="caused") as raised, unwrapping(ValueError):
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert raised.value is error
    assert raised.value.__cause__ is LOST


def test_unwrapping_leaves_a_group_with_another_error_as_it_is() -> None:
    with pytest.raises(ExceptionGroup) as raised, unwrapping(ValueError, LookupError):
        raise NESTED
    assert raised.value is NESTED


async def test_error_of_a_block_passes_its_nursery_unchanged() -> None:
    with pytest.raises(ValueError, match="wrong") as raised, error_of_block():
        async with trio.open_nursery():
            raise WRONG from MISSING
    assert raised.value is WRONG
    assert raised.value.__cause__ is MISSING


async def test_group_that_the_block_has_raised_stays_a_group() -> None:
    with pytest.raises(ExceptionGroup) as raised, error_of_block():
        async with trio.open_nursery():
            raise NESTED
    assert raised.value.message == "outer"
    assert leaves(raised.value) == [WRONG, MISSING, LOST]


async def test_error_of_a_task_beside_that_of_the_block_stays_in_the_group() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def fail_with_a_task() -> None:
        with error_of_block():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail, LOST)
                await fail(WRONG)

    with pytest.raises(ExceptionGroup) as raised:
        await fail_with_a_task()
    assert set(leaves(raised.value)) == {WRONG, LOST}
