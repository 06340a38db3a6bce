"""A pytest plugin: writes how each test of a run ended, for `trying.py`.

A line of JSON for each failed phase of a test: its name, the phase, whether the failure is an
assertion of the tests, and what it says. An assertion is an AssertionError, or what
`pytest.raises` and `pytest.fail` raise, that comes from a file of the tests or of
flux_trio/testing; an `assert` in the program is a crash as any other.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import flux_trio
from flux_trio.testing import ClausesBroken
from tests.planter.repeatable import draw_the_same_examples

OUTCOMES: Final = "FLUX_TRIO_OUTCOMES"
"""The environment variable with the path of the file that the outcomes go to."""
_ROOT: Final = Path.cwd()
_OURS: Final = ("tests/", "conftest.py", "docs/", "flux_trio/testing/")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    draw_the_same_examples()
    _tell(program=str(Path(flux_trio.__file__).parent.parent))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if call.when == "call" and report.passed:
        _tell(test=item.nodeid, phase="call", passed=True)
    if report.failed and call.excinfo is not None:
        causes = list(_causes(call.excinfo.value))
        _tell(
            test=item.nodeid,
            phase=call.when,
            passed=False,
            asserted=all(map(_is_asserted, causes)),
            broken=sorted(_broken(causes)),
            text=" / ".join(_first_line(each) for each in causes)[:300],
        )
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        text = str(report.longrepr).strip().splitlines()
        _tell(test=report.nodeid, phase="collect", passed=False, text=text[-1][:300])


def pytest_sessionfinish() -> None:
    _tell(ended=True)


def _tell(**what: Any) -> None:
    with Path(os.environ[OUTCOMES]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that are no group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error


def _is_asserted(error: BaseException) -> bool:
    if not isinstance(error, AssertionError | pytest.fail.Exception):
        return False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT):
            return path.relative_to(_ROOT).as_posix().startswith(_OURS)
    return False


def _broken(causes: list[BaseException]) -> Iterator[str]:
    for error in causes:
        if isinstance(error, ClausesBroken):
            yield from (violation.clause for violation in error.violations)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
