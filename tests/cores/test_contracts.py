"""What a core takes and returns: closed unions of classes, as mypy checks them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from tests.support.reborn import CORES


def members(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from members(each)
    else:
        yield hint


@pytest.mark.parametrize(("module", "name"), CORES.items())
def test_inputs_and_actions_are_unions_of_messages(module: str, name: str) -> None:
    core = getattr(import_module(module), name)
    start, turn = get_type_hints(core.start), get_type_hints(core.turn)
    (actions,) = get_args(turn["return"])
    assert get_args(start["return"]) == (actions,)
    (inputs,) = get_args(turn["inputs"])
    for each in (*members(inputs), *members(actions)):
        assert isinstance(each, type), each
        assert each.__module__.startswith("flux_trio."), each
