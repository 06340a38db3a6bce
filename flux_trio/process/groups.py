"""Errors out of the exception groups in which a nursery (or a task group of anyio) raises them.

A nursery raises a group even for a single error, and nurseries nest. This module is the only one
that looks into a group; all others ask for what they want to know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors in a group and in the groups in it, in order; [error] for no group."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def holds(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether `error`, or an error in the group, is of `kind`."""
    return any(isinstance(each, kind) for each in leaves(error))


def without(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return a group without its errors of `kind`, None if it has no others.

    An error that is no group is returned as it is.
    """
    return error.split(kind)[1] if isinstance(error, BaseExceptionGroup) else error


def sole_error(
    error: BaseException, kinds: tuple[type[BaseException], ...] = (BaseException,)
) -> BaseException | None:
    """Return the error, or the only one in a group, if it is of `kinds`; otherwise None.

    Where tasks fail together, as at the loss of a connection, the group has several errors, and all
    of them may be of `kinds`: then the first one is returned.
    """
    found = leaves(error)
    return found[0] if all(isinstance(each, kinds) for each in found) else None


@contextmanager
def unwrapping(*kinds: type[BaseException]) -> Iterator[None]:
    """Raise the `sole_error` of `kinds` in place of a group, with its own cause."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = sole_error(group, kinds)
        if error is None:
            raise
        raise error from error.__cause__


@contextmanager
def error_of_block() -> Iterator[None]:
    """Raise the errors of the block of a nursery unchanged: the nursery is opened inside this.

    It is for a nursery whose tasks raise nothing by themselves, so that its users need not know of
    it. A group that the block itself has raised stays a group.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__
