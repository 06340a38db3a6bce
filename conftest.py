"""What every test run knows: how to rewrite snapshots, and that instances keep to the RFCs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flux_trio.testing import watched
from tests.support.breaking import broken_on_purpose, is_judged

# A slow machine fails no test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the snapshot files that tests compare with, instead of comparing",
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many planted violations the judge's rules were tried against, when they were."""
    passed = terminalreporter.stats.get("passed", [])
    if any("test_the_matrix_is_up_to_date" in report.nodeid for report in passed):
        matrix = Path(__file__).parent / "tests" / "judge" / "planted_matrix.txt"
        terminalreporter.write_line(f"judge: {matrix.read_text().splitlines()[-1]}")
