"""A pytest plugin: runs tests with operators planted, and writes how each ended, for `trying.py`.

The tests are collected once; each `Planted` has a process of its own, forked after that. A line of
JSON says how a phase of a test ended: its name, the phase, whether a failure is an assertion of the
tests, and what it says. An assertion is an AssertionError, or what `pytest.raises` and
`pytest.fail` raise, that comes from a file of the tests or of flux_trio/testing; an `assert` in the
program is a crash as any other.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import pytest

import flux_trio
from flux_trio.testing import ClausesBroken
from tests.planter.clauses.entries import function_of
from tests.planter.operators import NoPlace, Operator
from tests.planter.repeatable import draw_the_same_examples

OUTCOMES: Final = "FLUX_TRIO_OUTCOMES"
"""The environment variable with the path of the file that the outcomes go to."""
PLANTED: Final = "PLANTER_PLANTED_HERE"
"""The environment variable with what is run: a list of `Planted` in JSON."""
PATIENCE_S: Final = 300
"""A test that takes longer does not end."""
_LINE: Final[dict[str, str]] = {}
"""What each line of this process begins with."""
_ROOT: Final = Path.cwd()
_OURS: Final = ("tests/", "conftest.py", "docs/", "flux_trio/testing/")


class Planted(msgspec.Struct, frozen=True):
    """A test, with what is planted while it runs; `key` is in each line about it."""

    key: str
    test: str
    operator: Operator | None = None


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run each test that is asked for in a process of its own, one after the other."""
    for planted in msgspec.json.decode(os.environ[PLANTED], type=list[Planted]):
        child = os.fork()
        if not child:
            _run(planted, session.items)
        os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    return True


def _run(planted: Planted, items: list[pytest.Item]) -> NoReturn:
    """Run the test in this process, and end it."""
    try:
        os.setsid()
        signal.alarm(PATIENCE_S)
        _LINE["key"] = planted.key
        if planted.operator is not None:
            planted.operator.plant()
        asked = [each for each in items if planted.test in (each.nodeid, function_of(each.nodeid))]
        for item, following in zip(asked, [*asked[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        _tell(ended=True)
    except NoPlace as error:
        _tell(no_place=str(error))
    finally:
        os._exit(0)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        text = str(report.longrepr).strip().splitlines()
        _tell(test=report.nodeid, phase="collect", passed=False, text=text[-1][:300])


def _tell(**what: Any) -> None:
    with Path(os.environ[OUTCOMES]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(_LINE | what) + "\n")


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
        if path.is_relative_to(_ROOT) and "site-packages" not in path.parts:
            return path.relative_to(_ROOT).as_posix().startswith(_OURS)
    return False


def _broken(causes: list[BaseException]) -> Iterator[str]:
    for error in causes:
        if isinstance(error, ClausesBroken):
            yield from (violation.clause for violation in error.violations)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
