"""A search takes up every core at each step anyhow, so it is not tested with reborn cores."""

from __future__ import annotations

import pytest

from tests.support import reborn


@pytest.fixture(autouse=True)
def _cores_of_the_search() -> None:
    if reborn.is_on:
        pytest.skip(reborn.NOT_IN_SEARCHES)
