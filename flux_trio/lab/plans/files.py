"""Plans as TOML, which is how they are kept; and the checks of a plan that was made by hand."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from flux_trio._version import __version__
from flux_trio.formats import FormatError
from flux_trio.formats.errors import OUT_OF_RANGE, Words
from flux_trio.lab.catalogue import Crash, When
from flux_trio.lab.plans.checks import check_names
from flux_trio.lab.plans.plan import VERSION, Plan
from flux_trio.lab.world.plugin_files import plugin_file

PROGRAM: Final = "program"
"""The key of the version of the program that wrote the plan. It is a note about the file: a plan
that was read does not have it."""


def plan_to_toml(plan: Plan) -> str:
    """Return the plan as TOML, with the version of this program."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    tables = {key: fields.pop(key) for key in ("jobs", "actions", "faults")}
    filled = {key: each for key, each in tables.items() if each}
    return msgspec.toml.encode({PROGRAM: __version__} | fields | filled).decode()


def plan_from_toml(text: str) -> Plan:
    """Parse a plan; FormatError says what was expected, what came and where."""
    try:
        raw = msgspec.toml.decode(text)
        version = raw.get("version", VERSION)
        if version != VERSION:  # another version may have other keys
            raise FormatError(f"version {VERSION} of a plan", version, "version")
    except msgspec.MsgspecError as error:
        raise FormatError("a plan as TOML", Words(str(error))) from None
    program = raw.pop(PROGRAM, "")
    if not isinstance(program, str):
        raise FormatError("the version of flux-trio as text", program, PROGRAM)
    return _plan_of(raw)


def program_of(text: str) -> str:
    """Return the version of the program that wrote a plan; "" if the plan does not say it."""
    try:
        program = msgspec.toml.decode(text).get(PROGRAM, "")
    except msgspec.MsgspecError:
        return ""
    return program if isinstance(program, str) else ""


def plan_of_file(path: str | os.PathLike[str]) -> Plan:
    """Return the plan of a TOML file; files of plugins and policies are looked for
    from its directory.

    Raises OSError, UnicodeError or FormatError.
    """
    file = Path(path)
    plan = plan_from_toml(file.read_text(encoding="utf-8"))
    here = file.parent.absolute()
    return with_files(plan, lambda files: [str(here / each) for each in files])


def with_files(plan: Plan, renamed: Callable[[list[str]], Iterable[str]]) -> Plan:
    """Return the plan with the paths that `renamed` gives to its files: plugins, and a policy."""
    policy, _, cls = plan.policy.rpartition(":")
    files = [*(plugin_file(each).load for each in plan.plugins), *([policy] if policy else [])]
    paths = list(renamed(files))
    plugins = tuple(
        path if isinstance(each, str) else msgspec.structs.replace(each, load=path)
        for each, path in zip(plan.plugins, paths, strict=False)
    )
    named = f"{paths[-1]}:{cls}" if policy else plan.policy
    return msgspec.structs.replace(plan, plugins=plugins, policy=named)


def check_plan(plan: Plan) -> None:
    """Raise FormatError if a plan that was made in Python has a value that none can have."""
    _plan_of(msgspec.to_builtins(plan))


def check_when(when: When) -> None:
    """Raise FormatError if a moment that was made in Python has a value that none can have."""
    try:
        check_plan(Plan(seed=0, faults=(Crash("sched", when),)))
    except FormatError as error:
        where = error.where.removeprefix("faults[0].")
        raise FormatError(error.expected, error.got, where) from None


def can_be_played(plan: Plan) -> bool:
    """Return whether `check_plan` accepts the plan."""
    try:
        check_plan(plan)
    except FormatError:
        return False
    return True


def _plan_of(raw: Any) -> Plan:
    try:
        plan = msgspec.convert(raw, Plan)
    except msgspec.ValidationError as error:
        raise _with_names(FormatError.of_msgspec(error), raw) from None
    check_names(plan)
    return plan


# a key or an index of a path such as faults[0].module
_STEP: Final = re.compile(r"[^.\[\]]+")


def _with_names(error: FormatError, raw: Any) -> FormatError:
    """Return the error with the value that is out of range, or the names that were expected."""
    shapes: list[inspect.Type] = [inspect.type_info(Plan)]
    value = raw
    for step in _STEP.findall(error.where):
        if isinstance(value, list | tuple):
            shapes = [each.item_type for each in shapes if isinstance(each, inspect.VarTupleType)]
            value = value[int(step)]
        else:
            structs = [each for each in shapes if isinstance(each, inspect.StructType)]
            if step == "type" and any(each.tag for each in structs):
                names = [str(each.tag) for each in structs]
                return _unknown(error, "the type of a fault", names, value[step])
            tag = value.get("type")
            structs = [each for each in structs if not each.tag or each.tag == tag]
            fields = [field for each in structs for field in each.fields]
            shapes = [field.type for field in fields if field.name == step]
            value = value[step]
        unions = [each for each in shapes if isinstance(each, inspect.UnionType)]
        shapes += [each for union in unions for each in union.types]
    for shape in shapes:
        if isinstance(shape, inspect.LiteralType):
            names = [str(each) for each in shape.values]
            return _unknown(error, f"one of {', '.join(names)}", names, value)
        if isinstance(shape, inspect.StructType) and isinstance(value, dict):
            names = [field.name for field in shape.fields]
            names += [PROGRAM] if shape.cls is Plan else []
            wrong = [key for key in value if key not in names and key != "type"]
            if wrong and value.get("type") == shape.tag:
                return _unknown(error, f"one of the keys {', '.join(names)}", names, wrong[0])
    if error.got == OUT_OF_RANGE:
        return FormatError(error.expected, value, error.where)
    return error


def _unknown(error: FormatError, expected: str, names: list[str], value: object) -> FormatError:
    close = difflib.get_close_matches(str(value), names, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return FormatError(f"{expected}{meant}", value, error.where)
