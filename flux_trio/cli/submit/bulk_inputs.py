"""The inputs of `bulksubmit`: lists after `:::` and `::::`, or standard input (flux-bulksubmit(1)).

Each combination of the lists is one job. A list after `:::+` or `::::+` makes no combinations: its
values are taken in step with the other lists, and it starts again when it is too short.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

DELIMITERS: Final = (":::", ":::+", "::::", "::::+")

ReadLines = Callable[[str], list[str]]  # reads the inputs in a file; `-` is standard input


def split_inputs(
    words: Sequence[str], read: ReadLines
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the command, `{}` by default, and the inputs of each job. Raises ValueError."""
    command, groups = _groups(words)
    lists = [(mark, _values(mark, values, read)) for mark, values in groups]
    if all(mark.endswith("+") for mark, _ in lists):
        lists.insert(0, (":::", read("-")))
    combined = itertools.product(*[values for mark, values in lists if not mark.endswith("+")])
    linked = {
        place: itertools.cycle(values)
        for place, (mark, values) in enumerate(lists)
        if mark.endswith("+") and values
    }
    jobs = []
    for inputs in map(list, combined):
        for place, values in linked.items():
            inputs.insert(place, next(values))
        jobs.append(tuple(inputs))
    return command or ("{}",), jobs


def split_text(text: str, separator: str) -> list[str]:
    r"""Split a text into inputs; `separator` may have escapes (\t), `none` is any white space."""
    if separator.lower() == "none":
        return text.split()
    return [each for each in text.split(_unescaped(separator)) if each]


def _groups(words: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, list[str]]]]:
    command: list[str] = []
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if word in DELIMITERS:
            groups.append((word, []))
        elif groups:
            groups[-1][1].append(word)
        else:
            command.append(word)
    return tuple(command), groups


def _values(mark: str, values: list[str], read: ReadLines) -> list[str]:
    if not mark.startswith("::::"):
        return values
    if len(values) != 1:
        raise ValueError(f"expected one file after {mark}, got {len(values)}")
    return read(values[0])


def _unescaped(separator: str) -> str:
    try:
        return separator.encode().decode("unicode_escape")
    except UnicodeDecodeError:
        raise ValueError(f"--sep: expected a separator, got {separator!r}") from None
