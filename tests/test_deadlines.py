"""What a cancel does not end has a deadline: read from the source, so that none is forgotten."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]
LIMITED = ("move_on_after", "move_on_at", "fail_after", "fail_at")
IN_THREAD = ("to_thread.run_sync", "OWN.run", "USERS.run")
DEADLINES = ("deadline", "relative_deadline")

SHIELDS_THAT_ANOTHER_ENDS: Final = {
    ("flux_trio/transports/websocket.py", "open_socket"): "the end of the connection's block, "
    "which takes at most CLOSE_S_MAX to close the connection",
    ("flux_trio/transports/paced.py", "opened"): "as above",
}
THREADS_THAT_ARE_WAITED_FOR: Final = {
    ("flux_trio/instance/running.py", "back_up"): "a backup that has begun is finished, within "
    "the limit of the process's end",
    ("flux_trio/services/kvs.py", "_store_in_order"): "the store is used by one thread at a time; "
    "what waits for a disk that hangs ends with the process",
    ("flux_trio/services/kvs.py", "back_up_between_rounds"): "as above",
    ("flux_trio/services/housekeeping.py", "_run_all"): "it reads /proc and sends signals: no disk "
    "or peer can delay it",
    ("flux_trio/shell/job_cgroups.py", "_move_in_thread"): "the shell host does not end meanwhile",
    ("flux_trio/shell/job_cgroups.py", "kill"): "the shell host does not end meanwhile",
    ("flux_trio/shell/jobs.py", "read_outputs"): "the shell host does not end meanwhile",
    ("flux_trio/shell/jobs.py", "_copy_lines"): "the shell host does not end meanwhile",
    ("flux_trio/shell/jobs.py", "remove_directory"): "the shell host does not end meanwhile",
    ("flux_trio/jobtap/builtins/perilog.py", "_run"): "a task of a plugin is abandoned",
    ("plugins/multifactor.py", "_tend"): "a task of a plugin is abandoned",
}


SOURCES: Final = {
    path: text
    for path in [*(ROOT / "flux_trio").rglob("*.py"), *(ROOT / "plugins").glob("*.py")]
    if "shield" in (text := path.read_text()) or "thread" in text
}


def calls_in(text: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the name of the function in which it is."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            yield function, node
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    return visit(ast.parse(text), "")


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def is_true(call: ast.Call, keyword: str) -> bool:
    return any(
        each.arg == keyword and not (isinstance(each.value, ast.Constant) and not each.value.value)
        for each in call.keywords
    )


def endless_shields(text: str) -> list[tuple[str, int]]:
    """The function and the line of each shield without a deadline."""
    found = []
    for function, call in calls_in(text):
        limited = name_of(call).split(".")[-1] in LIMITED
        dated = any(each.arg in DEADLINES for each in call.keywords)
        if is_true(call, "shield") and not (limited or dated):
            found.append((function, call.lineno))
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        found += [
            ("", node.lineno)
            for each in targets
            if isinstance(each, ast.Attribute) and each.attr == "shield"
        ]
    return found


def endless_threads(text: str) -> list[tuple[str, int]]:
    """The function and the line of each wait for a thread that a cancel does not end."""
    return [
        (function, call.lineno)
        for function, call in calls_in(text)
        if name_of(call).endswith(IN_THREAD) and not is_true(call, "abandon_on_cancel")
    ]


def found_by(look: Callable[[str], list[tuple[str, int]]]) -> set[tuple[str, str]]:
    return {
        (str(path.relative_to(ROOT)), function)
        for path, text in SOURCES.items()
        for function, _ in look(text)
    }


def test_every_shield_has_a_deadline() -> None:
    assert found_by(endless_shields) == set(SHIELDS_THAT_ANOTHER_ENDS)


def test_every_wait_for_a_thread_ends_with_a_cancel_or_is_known() -> None:
    assert found_by(endless_threads) == set(THREADS_THAT_ARE_WAITED_FOR)


def test_the_instance_waits_for_no_thread_behind_those_of_plugins() -> None:
    shared = {
        str(path.relative_to(ROOT))
        for path, text in SOURCES.items()
        for _, call in calls_in(text)
        if name_of(call) == "trio.to_thread.run_sync"
    }
    others = {each for each in shared if not each.startswith(("plugins/", "flux_trio/shell/"))}
    assert others == {"flux_trio/process/threads.py", "flux_trio/jobtap/builtins/perilog.py"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CancelScope(shield=True)", 1),
        ("trio.CancelScope(shield=is_last)", 1),
        ("scope.shield = True", 1),
        ("trio.CancelScope(shield=False)", 0),
        ("trio.CancelScope(deadline=5, shield=True)", 0),
        ("trio.move_on_after(5, shield=True)", 0),
    ],
)
def test_a_shield_without_a_deadline_is_found(text: str, found: int) -> None:
    assert len(endless_shields(text)) == found
