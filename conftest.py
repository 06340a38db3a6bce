"""What every test run knows: how to rewrite snapshots, and that instances keep to the RFCs."""

from collections.abc import Iterator

import pytest

from flux_trio.testing import watched
from tests.support.breaking import broken_on_purpose, is_judged


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the snapshot files that tests compare with, instead of comparing",
    )


@pytest.fixture(autouse=True)
def _watched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every instance that a test opens is judged by the clauses of the RFCs."""
    nodeid = request.node.nodeid
    if not is_judged(nodeid):
        yield
        return
    with watched(broken_on_purpose(nodeid)):
        yield
