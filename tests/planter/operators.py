"""Operators: what a proof makes wrong in the running program, at a place named by meaning.

Places are

- `sent KIND TOPIC`, `heard KIND TOPIC`: a message among what a core sends, or takes in; KIND is
  request, response (no error), error or event. `sent SetTimer` is an action that is no message,
  `heard TimerFired` such an input; for both, `*` in TOPIC stands for anything.
- `logged NAME`: an event in the eventlog of a job, where the job manager logs it.
- `written CODEC`, `read CODEC`: a payload, where a codec of the editions, as `rfc27.HELD_JOB`,
  writes or reads it; `edition QUESTION`: what every edition answers.
- `row TABLE STATE EVENT`: a row of a state table.
- `refusal FUNCTION: TEXT`: the error that this function raises with TEXT in it; all with no TEXT.
- `call FUNCTION`: a call of this function of the program, whose keys are its arguments; one that is
  withheld returns `value`. `returned FUNCTION`: what it returns. Both are named below `flux_trio`.

What is there is withheld, repeated, changed or delayed to the next turn; `add` leaves it, and adds
a changed one behind it. With a `key`, a path as those of the lies of `flux_trio.lab`, only what is
there is withheld or changed; with a `field`, it is this field of the message itself, as errnum.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from flux_trio.editions import CLASSIC, CURRENT, Codec
from flux_trio.formats import Event as Logged
from flux_trio.lab.catalogue.lies import REMOVED, changed
from flux_trio.messages import Event, Request, Response
from tests.planter.coding import functions_now, plant_code
from tests.planter.findings import ROOT
from tests.planter.planting import CORES
from tests.planter.tables import TABLES, set_row

HOOKS: Final = "__operators__"
"""The builtin that has what stands in place of functions, by number."""

Change = Callable[[Any], list[Any]]
"""What there is in place of a value: nothing, it, another one, or more."""


class NoPlace(ValueError):
    """The program has no such place."""


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is made wrong: see the module. `when` limits it to payloads with these keys."""

    does: Literal["withhold", "repeat", "delay", "change", "add"]
    place: str
    key: str = ""
    field: str = ""
    value: Any = UNSET
    when: dict[str, Any] = {}

    def plant(self) -> None:
        """Make it wrong from now on. Raises NoPlace."""
        where, _, name = self.place.partition(" ")
        PLACES[where](self, name)

    def fault(self) -> str:
        """Return what is wrong with the place, as far as that is seen without planting."""
        where, _, name = self.place.partition(" ")
        if where not in PLACES:
            return f"{self.place}: expected a place that begins with {', '.join(PLACES)}"
        try:
            if where in ("refusal", "call", "returned"):
                function_at(name.partition(": ")[0])
        except NoPlace as error:
            return str(error)
        return ""

    def change(self, value: Any, delayed: list[Any]) -> list[Any]:
        """Return what there is in place of `value`; `delayed` is for the next turn."""
        if any(_at(value, key) != wanted for key, wanted in self.when.items()):
            return [value]
        if self.does == "add":
            return [value, *msgspec.structs.replace(self, does="change").change(value, delayed)]
        if self.does == "repeat":
            return [value, value]
        if self.does == "delay":
            delayed.append(value)
            return []
        if self.field:
            return [msgspec.structs.replace(value, **{self.field: self.value})]
        if self.key:
            return [_with(value, self.key.split("."), self._new(value))]
        return [] if self.does == "withhold" else [self.value]

    def _new(self, value: Any) -> Any:
        if self.does == "withhold":
            return REMOVED
        return another(_at(value, self.key)) if self.value is UNSET else self.value


def another(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
    return None


def _object_of(value: Any) -> Any:
    """Return the object in which keys are looked up."""
    match value:
        case Request() | Response() | Event():
            return value.payload
        case Logged():
            return value.context
    return value


def _at(value: Any, key: str) -> Any:
    found = _object_of(value)
    for each in key.split("."):
        if isinstance(found, list | tuple):
            found = found[int(each)] if each.isdecimal() and int(each) < len(found) else None
        else:
            found = found.get(each) if isinstance(found, dict) else getattr(found, each, None)
    return found


def _with(value: Any, path: Sequence[str], new: Any) -> Any:
    match value:
        case Request() | Response() | Event():
            payload = {} if value.payload is None and new is not REMOVED else value.payload
            return msgspec.structs.replace(value, payload=changed(payload, path, new))
        case Logged():
            context = changed(dict(value.context or {}), path, new)
            return Logged(value.timestamp, value.name, context or None)
        case msgspec.Struct():
            old = getattr(value, path[0], None)
            inner = changed(old, path[1:], new) if path[1:] else (None if new is REMOVED else new)
            return msgspec.structs.replace(value, **{path[0]: inner})
        case None:
            return None if new is REMOVED else changed({}, path, new)
    return changed(value, path, new)


def kind_of(value: Any) -> str:
    """Return the name of a message, action or input, as places have it."""
    match value:
        case Request():
            return f"request {value.topic}"
        case Response():
            return f"{'error' if value.errnum else 'response'} {value.topic}"
        case Event():
            return f"event {value.topic}"
    return type(value).__name__


# --- functions


def function_at(path: str) -> FunctionType:
    """Return the function of a dotted name, below `flux_trio`. Raises NoPlace."""
    parts = path.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["flux_trio", *parts[:n]]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            found = inspect.getattr_static(found, name, None)
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        found = inspect.unwrap(found) if found is not None else None
        if isinstance(found, FunctionType) and not found.__code__.co_freevars:
            return found
        break
    raise NoPlace(f"there is no function flux_trio.{path}")


def wrap(function: FunctionType, wrapper: Callable[..., Any]) -> None:
    """Call `wrapper` with the original function and its arguments, wherever it is called."""
    hooks = vars(builtins).setdefault(HOOKS, [])
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    hooks.append(lambda *args, **named: wrapper(original, *args, **named))
    source = f"def {function.__name__}(*a, **k): return {HOOKS}[{len(hooks) - 1}](*a, **k)"
    made: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), made)
    function.__code__ = made[function.__name__].__code__
    function.__defaults__ = function.__kwdefaults__ = None


def _plant_sent(operator: Operator, name: str) -> None:
    delayed: dict[int, list[Any]] = {}

    def wrapper(function: FunctionType, outbox: Any) -> list[Any]:
        later = delayed.setdefault(id(outbox), [])
        return _changed_all(operator, name, function(outbox), later)

    wrap(function_at("cores.outbox.Outbox.pop_actions"), wrapper)


def _plant_heard(operator: Operator, name: str) -> None:
    delayed: dict[int, list[Any]] = {}

    def wrapper(function: FunctionType, core: Any, now: float, inputs: Sequence[Any]) -> Any:
        later = delayed.setdefault(id(core), [])
        return function(core, now, _changed_all(operator, name, inputs, later))

    for module, core in CORES.items():
        wrap(vars(getattr(importlib.import_module(module), core))["turn"], wrapper)


def _changed_all(
    operator: Operator, name: str, values: Sequence[Any], delayed: list[Any]
) -> list[Any]:
    found, later = [*delayed], list[Any]()
    delayed.clear()
    for each in values:
        is_meant = fnmatchcase(kind_of(each), name)
        found += operator.change(each, later) if is_meant else [each]
    delayed += later
    return found


def _plant_logged(operator: Operator, name: str) -> None:
    def wrapper(
        function: FunctionType, ledger: Any, job: Any, named: str, context: Any = None
    ) -> None:
        values = [Logged(0.0, named, context)]
        for each in operator.change(values[0], []) if named == name else values:
            function(ledger, job, each.name, each.context)

    wrap(function_at("cores.job_manager.jobs.ledger.Ledger.log_now"), wrapper)


def _plant_codec(operator: Operator, name: str) -> None:
    module, _, constant = name.partition(".")
    codec = getattr(importlib.import_module(f"flux_trio.editions.{module}"), constant, None)
    if not isinstance(codec, Codec):
        raise NoPlace(f"the editions have no codec {name}")
    way = "write" if operator.place.startswith("written") else "read"
    msgspec.structs.force_setattr(codec, way, _one(operator, getattr(codec, way)))


def _plant_edition(operator: Operator, name: str) -> None:
    for edition in (CLASSIC, CURRENT):
        if not isinstance(getattr(edition, name, None), bool):
            raise NoPlace(f"editions have no question {name}")
        msgspec.structs.force_setattr(edition, name, operator.value)


def _one(operator: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        found = operator.change(function(*args, **named), [])
        return found[0] if found else None

    return call


def _plant_returned(operator: Operator, name: str) -> None:
    wrap(
        function_at(name), lambda function, *args, **named: _one(operator, function)(*args, **named)
    )


def _plant_call(operator: Operator, name: str) -> None:
    function = function_at(name)
    signature = inspect.signature(function)

    def wrapper(original: FunctionType, *args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        names = list(bound.arguments)
        result = None if operator.value is UNSET or operator.key else operator.value
        for each in operator.change(dict(bound.arguments), []):
            bound.arguments = {name: each.get(name) for name in names}
            result = original(*bound.args, **bound.kwargs)
        return result

    wrap(function, wrapper)


def _plant_row(operator: Operator, name: str) -> None:
    named, state, event = name.split(" ")
    table = TABLES[named]
    states, (first, *_) = type(table.initial), [each for row in table.rows.values() for each in row]
    try:
        after = states[operator.value] if operator.does == "change" else None
        set_row(table, states[state], type(first)[event], after)
    except KeyError as error:
        raise NoPlace(f"{named} has no state or event {error}") from None


def _plant_refusal(operator: Operator, name: str) -> None:
    path, _, text = name.partition(": ")
    function = function_at(path)
    file = Path(function.__code__.co_filename)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    _Unrefused(function.__qualname__, text).visit(tree)
    plant_code({str(file.relative_to(ROOT)): ast.unparse(tree)}, functions_now())


class _Unrefused(ast.NodeTransformer):
    """Takes away what a function raises."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name.split("."), text
        self._inside: list[str] = []

    def visit_FunctionDef(self, node: Any) -> Any:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815 - names of ast

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if self._inside == self._name and self._text in raised_text(node):
            return ast.copy_location(ast.Pass(), node)
        return node


def raised_text(node: ast.Raise) -> str:
    """Return the texts of what a statement raises, with `*` for what is put in."""
    texts = [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return "*".join(texts)


PLACES: Final[dict[str, Callable[[Operator, str], None]]] = {
    "sent": _plant_sent,
    "heard": _plant_heard,
    "logged": _plant_logged,
    "written": _plant_codec,
    "read": _plant_codec,
    "edition": _plant_edition,
    "call": _plant_call,
    "returned": _plant_returned,
    "row": _plant_row,
    "refusal": _plant_refusal,
}
