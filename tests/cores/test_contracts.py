"""What a core takes and returns: closed unions of frozen classes, as mypy checks them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from enum import Enum
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import pytest

from flux_trio.config import Config
from flux_trio.cores.turns import SetTimer
from flux_trio.protocols import JobView, Unavailable
from tests.support.reborn import CORES

JSON: Final = {
    "messages.types:Request.payload",
    "messages.types:Response.payload",
    "messages.types:Event.payload",
    "formats.eventlog:Event.context",
    "cores.turns:Note.data",
    "cores.turns:NoteAll.notes",
    "protocols.hooks:PostEvent.context",
    "protocols.hooks:Annotate.annotations",
    "protocols.hooks:DependencyAsked.entry",
    "protocols.hooks:UpdateAsked.value",
    "protocols.hooks:UpdateApplied.updates",
    "protocols.hooks:HookAnswer.resource_set",
    "protocols.hooks:HookAnswer.updates",
    "config.tables:PluginDirective.conf",
    "config.parsing:Config.fluxion_feasibility",
    "config.parsing:Config.fluxion_qmanager",
    "config.parsing:Config.fluxion_resource",
    "config.policy:PolicyTable.scheduler",
    "config.policy:QueueTable.requires",
}
"""The fields that hold plain data of JSON or TOML, of which the core knows no more."""

VALUES: Final = {JobView, Unavailable}
"""Classes without fields: values that nobody changes."""

OPEN: Final = (Any, object, Hashable)
"""What says nothing about a value."""


def members(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from members(each)
    else:
        yield hint


def unions_of(module: str, name: str) -> tuple[Any, Any]:
    """Return the inputs and the actions of a core."""
    core = getattr(import_module(module), name)
    start, turn = get_type_hints(core.start), get_type_hints(core.turn)
    (actions,) = get_args(turn["return"])
    assert get_args(start["return"]) == (actions,)
    (inputs,) = get_args(turn["inputs"])
    return inputs, actions


class Walk:
    """Looks into a type, and into the fields of each class of flux_trio that it meets."""

    def __init__(self) -> None:
        self.open: set[str] = set()  # fields whose type says nothing
        self.changing: set[str] = set()  # fields whose class is not frozen
        self._seen: set[Any] = set()

    def type(self, hint: Any, place: str) -> None:
        """Look into `hint`, the type of the field `place`."""
        origin = get_origin(hint)
        if hint in OPEN or isinstance(hint, TypeVar):
            self.open.add(place)
        elif origin is Literal or hint in (NoneType, Ellipsis):
            return
        elif origin is Annotated:
            self.type(hint.__origin__, place)
        elif is_ours(kind := origin or hint):
            self._class(kind, hint, place)
        else:
            for each in get_args(hint):
                self.type(each, place)

    def _class(self, cls: type, hint: Any, place: str) -> None:
        if hint in self._seen or issubclass(cls, Enum):
            return
        self._seen.add(hint)
        if cls in VALUES:
            return
        for name, each in hints_of(cls, hint).items():
            field = f"{cls.__module__.removeprefix('flux_trio.')}:{cls.__qualname__}.{name}"
            self.type(each, field)
        if not is_frozen(cls):
            self.changing.add(place)


def is_ours(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__.split(".")[0] in ("flux_trio", "tests")


def hints_of(cls: type, hint: Any) -> dict[str, Any]:
    """Return the types of the fields, with those that `hint` gives to the class's parameters."""
    parameters = getattr(cls, "__parameters__", ())
    given = dict(zip(parameters, get_args(hint), strict=False))
    # The protocols name it for type checkers alone.
    hints = get_type_hints(cls, include_extras=True, localns={"Config": Config})
    return {name: given.get(each, each) for name, each in hints.items()}


def is_frozen(cls: Any) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    if dataclasses.is_dataclass(cls):
        return bool(cls.__dataclass_params__.frozen)
    return issubclass(cls, tuple)


def walked(hint: Any) -> Walk:
    walk = Walk()
    for each in members(hint):
        walk.type(each, "the union")
    return walk


@pytest.mark.parametrize(("module", "name"), CORES.items())
def test_inputs_and_actions_are_unions_of_messages(module: str, name: str) -> None:
    for union in unions_of(module, name):
        for each in members(union):
            kind = get_origin(each) or each
            assert isinstance(kind, type), each
            assert kind.__module__.startswith("flux_trio."), each


@pytest.mark.parametrize(("module", "name"), CORES.items())
def test_fields_of_inputs_and_actions_have_closed_types(module: str, name: str) -> None:
    for union in unions_of(module, name):
        walk = walked(union)
        assert walk.open - JSON == set()
        assert walk.changing == set()


def test_each_field_for_json_is_one() -> None:
    walks = [walked(union) for core in CORES.items() for union in unions_of(*core)]
    assert set().union(*(walk.open for walk in walks)) == JSON


# --- the walk finds what a field may not be


class Inner(msgspec.Struct, frozen=True):
    value: Any


class Held(msgspec.Struct, frozen=True):
    each: tuple[Inner, ...]


class Keyed(msgspec.Struct, frozen=True):
    key: Hashable


class Loose(msgspec.Struct, frozen=True):
    context: dict[str, object] | None


class Bare(msgspec.Struct, frozen=True):
    timer: SetTimer  # type: ignore[type-arg]  # mypy would say so


@dataclasses.dataclass
class Growing:
    count: int


class Live(msgspec.Struct, frozen=True):
    growing: Annotated[Growing, "a mark"] | None


@pytest.mark.parametrize(
    ("planted", "field"),
    [
        (Inner, "Inner.value"),
        (str | Held, "Inner.value"),
        (Keyed, "Keyed.key"),
        (Loose, "Loose.context"),
        (SetTimer[Hashable], "SetTimer.key"),
        (Bare, "SetTimer.key"),
    ],
)
def test_open_field_is_found(planted: Any, field: str) -> None:
    (found,) = walked(planted).open
    assert found.endswith(f":{field}")


@pytest.mark.parametrize("planted", [Literal["a", "b"], SetTimer[Literal["a"]], Live])
def test_closed_field_is_not_found(planted: Any) -> None:
    assert walked(planted).open == set()


def test_field_that_may_change_is_found() -> None:
    (found,) = walked(Live).changing
    assert found.endswith(":Live.growing")
    assert walked(Held).changing == set()
