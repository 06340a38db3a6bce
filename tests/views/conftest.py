"""One browser for all tests of a process: it takes a second to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import WHY_NOT, Browser, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with open_browser() as found:
        yield found
