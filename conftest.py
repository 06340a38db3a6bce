"""What every test run knows: how to rewrite snapshots."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the snapshot files that tests compare with, instead of comparing",
    )
