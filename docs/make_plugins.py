"""The parts of the plugin reference that are made from the code; see `make_samples`."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import msgspec

from flux_trio import jobtap, testing
from flux_trio.jobtap import CUSTOM, HOOKS, Hook

DECORATORS = (jobtap.on, jobtap.on_many, jobtap.enter, jobtap.leave, jobtap.counter, jobtap.service)
VALUES = (
    jobtap.Dependency,
    jobtap.UpdateAsked,
    jobtap.UpdateAllowed,
    jobtap.ServiceRequest,
    jobtap.Counter,
    jobtap.Reject,
    jobtap.NotAllowed,
    jobtap.PluginError,
)
_PACKAGES = (jobtap.__name__, testing.__name__)
_OF_THE_HOST = ("take", "drop", "clear", "recount", "of")  # methods that are not for authors


def harness_parts() -> dict[str, str]:
    """Return the parts about the harnesses for tests, by the name of the sample."""
    return {
        "plugin-harness": _members(testing.PluginHarness) + _described(testing.HookCall) + "\n",
        "plugin-harness-job": _members(testing.HarnessJob),
        "instance-harness": _members(testing.InstanceHarness),
        "instance-job": _members(testing.InstanceJob),
    }


def parts() -> dict[str, str]:
    """Return each part as Markdown, by the name of its sample."""
    return {
        "hooks": _table(),
        "decorators": _lines(f"- {_signed(each)}: {_prose(each)}" for each in DECORATORS),
        "plugin": _members(jobtap.Plugin),
        "jobs": _members(jobtap.JobLookup),
        "job": _members(jobtap.Job),
        "values": _lines(_described(each) for each in VALUES),
    }


def _table() -> str:
    head = ["| topic | parameters | returns | when | if it fails |", "|---|---|---|---|---|"]
    return _lines([*head, *[_row(hook) for hook in (*HOOKS, CUSTOM)]])


def _row(hook: Hook) -> str:
    topic = hook.topic if hook is CUSTOM else f"`{hook.topic}`"
    returns = f"`{hook.returns.value}`" + (", or raises `Reject`" * hook.rejects)
    parameters = ", ".join(hook.parameters)
    return f"| {topic} | `({parameters})` | {returns} | {hook.when} | {hook.on_failure} |"


def _described(found: type) -> str:
    parts = [f"- `{found.__name__}`: {_prose(found)}"]
    if _is_value(found):
        parts += [f"  - `{name}: {type_}`" for name, type_ in found.__annotations__.items()]
    parts += [f"  {line}" for line in _members(found).splitlines()]
    return "\n".join(parts)


def _is_value(found: type) -> bool:
    """Whether its annotations are the fields of its objects."""
    return is_dataclass(found) or issubclass(found, msgspec.Struct)


def _members(found: type) -> str:
    ours = [each for each in reversed(found.__mro__) if each.__module__.startswith(_PACKAGES)]
    members = [member for each in ours for member in vars(each).items()]
    shown = [_member(name, value) for name, value in members if _is_shown(name, value)]
    attributes = [line for each in ours for line in _attributes(each)]
    return _lines([*attributes, *shown])


def _attributes(found: type) -> Iterator[str]:
    """Yield a line for each attribute that has a docstring below it in the source."""
    if _is_value(found) or not vars(found).get("__module__", "").startswith(_PACKAGES):
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(found)))
    for parent in ast.walk(tree):
        body = getattr(parent, "body", ())
        for each, after in itertools.pairwise(body) if isinstance(body, list) else ():
            if isinstance(each, ast.AnnAssign) and _is_text(after):
                name = ast.unparse(each.target).removeprefix("self.")
                yield f"- `{name}: {ast.unparse(each.annotation)}`: {_text(after)}"


def _is_text(node: ast.stmt) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _text(node: ast.stmt) -> str:
    return " ".join(ast.literal_eval(node.value).split())  # type: ignore[attr-defined]


def _is_shown(name: str, value: Any) -> bool:
    documented = isinstance(value, property) or inspect.isfunction(value)
    shown = not name.startswith("_") and name not in _OF_THE_HOST
    return shown and documented and bool(value.__doc__)


def _member(name: str, value: Any) -> str:
    what = _typed(name, value) if isinstance(value, property) else _signed(value)
    return f"- {what}: {_prose(value)}"


def _typed(name: str, value: property) -> str:
    return f"`{name}: {inspect.signature(value.fget).return_annotation}`"  # type: ignore[arg-type]


def _signed(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    parameters = [each for name, each in found.parameters.items() if name != "self"]
    text = str(found.replace(parameters=parameters))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are text
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    return f"`{prefix}{function.__name__}{text}`"


def _prose(found: Any) -> str:
    """Return the docstring without its examples."""
    paragraphs = (inspect.getdoc(found) or "").split("\n\n")
    return " ".join(" ".join(each for each in paragraphs if ">>>" not in each).split())


def _lines(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
