"""Test cases as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flux_trio.views.svg import element, escape


class Case(NamedTuple):
    """A test case. It has failed if there is a text of its `failure`, and is skipped if there is a
    reason for it.
    """

    name: str
    failure: str = ""
    message: str = ""
    """What a failure is in short; by default the first line of its text."""
    kind: str = ""
    """The type of a failure, if it has one."""
    skipped: str = ""


def junit_text(name: str, suites: Iterable[tuple[str, Sequence[Case]]]) -> str:
    """Return test suites, each with its name and its cases."""
    body = element("testsuites", *(_suite(*each) for each in suites), name=name)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(name: str, cases: Sequence[Case]) -> str:
    return element(
        "testsuite",
        *(_case(name, case) for case in cases),
        name=name,
        tests=str(len(cases)),
        failures=str(sum(bool(case.failure) for case in cases)),
        skipped=str(sum(bool(case.skipped) for case in cases)),
        errors="0",
    )


def _case(suite: str, case: Case) -> str:
    results: list[str] = []
    if case.skipped:
        results = [element("skipped", message=_printable(case.skipped))]
    elif case.failure:
        message = _printable(case.message or case.failure.partition("\n")[0])
        kind = {"type": case.kind} if case.kind else {}
        text = escape(_printable(case.failure))
        results = [element("failure", text, message=message, **kind)]
    return element("testcase", *results, classname=suite, name=case.name)


def _printable(text: str) -> str:
    """Replace the characters that XML does not allow."""
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
