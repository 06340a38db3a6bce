"""Record which tests reach which places: a pytest plugin.

`pytest -p tests.planter.recording --record FAMILY`, in as many processes as xdist starts.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pytest

from tests.planter import planting
from tests.planter.findings import records_of
from tests.planter.reach import Writer


class Recording:
    """How each test ends, in a process that runs tests."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._passed = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._passed = True
        begin = time.perf_counter()
        result = yield
        self._writer.ended(item.nodeid, time.perf_counter() - begin, self._passed)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.skipped and report.when != "teardown"):
            self._passed = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FAMILY", help="record which tests reach which mutants")


def pytest_configure(config: pytest.Config) -> None:
    family = config.getoption("--record")
    directory = records_of(family)
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        shutil.rmtree(directory, ignore_errors=True)
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recording(planting.record(family, directory)))
