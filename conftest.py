"""What every test run knows: rewriting snapshots; instances keep to the RFCs and to the tables."""

import gc
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from flux_trio.testing import watched
from tests.support.breaking import broken_on_purpose, is_judged
from tests.support.refusals import none_but_expected, watch_processes
from tests.support.surroundings import set_surroundings

# A slow machine fails no test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

set_surroundings()
watch_processes()
gc.disable()  # until all tests are read: nothing goes then, and looking takes a fifth of the time


# Tests of what tests the program: they say nothing about it themselves.
TESTS_OF_TESTS = ("tests/benchmarks/", "tests/explore/", "tests/kill/", "tests/planter/")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file of which `make test` runs nothing."""
    place = f"{collection_path.relative_to(config.rootpath)}/"
    is_left_out = "not gate" in config.option.markexpr and place in TESTS_OF_TESTS
    return is_left_out or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(TESTS_OF_TESTS):
            item.add_marker("gate")
    leave_to_the_gate(items)


def leave_to_the_gate(items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked `in_part`, mark all but each nth."""
    places: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("in_part")) is not None:
            test = item.nodeid.partition("[")[0]
            if places[test] % mark.args[0]:
                item.add_marker("gate")
            places[test] += 1


def pytest_collection_finish() -> None:
    gc.enable()
    freeze_what_is_there()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        freeze_what_is_there()
    return result


def freeze_what_is_there() -> None:
    """Let no later collection look through what was imported, the tests, and what they left.

    A plugin that is removed is collected at once, and many tests remove some.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the snapshot files that tests compare with, instead of comparing",
    )
    parser.addoption(
        "--edition",
        default="classic",
        choices=["classic", "current"],
        help="the edition of the hours of random administration",
    )
    parser.addoption(
        "--innocent",
        type=int,
        default=1,
        help="the seed of the innocent stories on a live flux-core",
    )
    parser.addoption(
        "--administration",
        default="0:3",
        metavar="FIRST:LAST",
        help="the seeds of the hours of random administration",
    )


@pytest.fixture(autouse=True)
def _watched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every instance that a test opens is judged by the clauses of the RFCs.

    `pytest.mark.breaks(CLAUSE, ...)` names those that whoever the test plays breaks, all of them.
    """
    nodeid = request.node.nodeid
    if not is_judged(nodeid):
        yield
        return
    marked = {clause for mark in request.node.iter_markers("breaks") for clause in mark.args}
    with watched(broken_on_purpose(nodeid) | marked) as broken:
        yield
    assert marked <= broken(), f"named as broken, and kept: {', '.join(marked - broken())}"


@pytest.fixture(autouse=True)
def _no_pair_without_a_row(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every event of a conversation is in its table, or listed as an error that a test makes."""
    if request.node.nodeid.startswith("tests/protocols/"):  # they try what tables do not have
        yield
        return
    with none_but_expected():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many planted violations the judge's rules were tried against, when they were."""
    passed = terminalreporter.stats.get("passed", [])
    if any("test_the_matrix_is_up_to_date" in report.nodeid for report in passed):
        matrix = Path(__file__).parent / "tests" / "judge" / "planted_matrix.txt"
        terminalreporter.write_line(f"judge: {matrix.read_text().splitlines()[-1]}")
