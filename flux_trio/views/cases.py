"""Test cases as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flux_trio.views.svg import element, escape


class Case(NamedTuple):
    """A test case; `failure` is its text, empty if the case has passed."""

    name: str
    failure: str


def cases_junit(name: str, cases: Sequence[Case]) -> str:
    """Return a test suite `name`; the message of a failure is its first line."""
    suite = element(
        "testsuite",
        *(_case(name, case) for case in cases),
        name=name,
        tests=str(len(cases)),
        failures=str(sum(bool(case.failure) for case in cases)),
        skipped="0",
        errors="0",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{element("testsuites", suite, name=name)}\n'


def _case(suite: str, case: Case) -> str:
    failures = []
    if case.failure:
        message = case.failure.partition("\n")[0]
        failures = [element("failure", escape(case.failure), message=message)]
    return element("testcase", *failures, classname=suite, name=case.name)
