"""Compares what Flux's programs say to flux-core and to flux-trio, without chance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_FLUID = re.compile(r"ƒ[1-9A-HJ-NP-Za-km-z]+")
_CHANCE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b1[5-9]\d{8}\.\d+"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
    (re.compile(r"\[(?:[A-Z][a-z]{2}\d\d \d\d:\d\d|\+ *\d+\.\d+)\]"), "[TIME]"),
    (re.compile(r"\b[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d(?:\.\d+)? UTC \d{4}"), "TIME"),
    (re.compile(r"time=\d+\.\d+"), "time=TIME"),
    (re.compile(r"\b\d+\.\d+(?:e-?\d+)?s?\b"), "NUMBER"),
    (re.compile(r"\b\d{9,}\b"), "NUMBER"),
    (re.compile(r"local://\S+"), "URI"),
    (re.compile(r"\([\w!-]+![\w-]+\)"), "(ROUTE)"),
    (re.compile(r"pid[ =]\d+"), "pid"),
)


class CommandResult(NamedTuple):
    """What one command has said: its exit code, and its texts without chance."""

    rc: Any
    out: str
    err: str


def read(lines: Iterator[str]) -> list[tuple[str, CommandResult]]:
    """Return the commands of a story that was played, and what each has said."""

    def settled(text: str) -> str:
        text = _FLUID.sub("JOB", text)
        for pattern, word in _CHANCE:
            text = pattern.sub(word, text)
        return text

    told = [json.loads(line) for line in lines]
    return [
        (each["line"], CommandResult(each["rc"], settled(each["out"]), settled(each["err"])))
        for each in told
    ]


def differences(
    core: list[tuple[str, CommandResult]], ours: list[tuple[str, CommandResult]]
) -> dict[str, list[str]]:
    """Return what differs, by command with its number: of `rc`, `out` and `err`."""
    found = {}
    for place, ((line, expected), (_, got)) in enumerate(zip(core, ours, strict=True), 1):
        keys = [key for key in CommandResult._fields if getattr(expected, key) != getattr(got, key)]
        if keys:
            found[f"{place} {line}"] = keys
    return found
