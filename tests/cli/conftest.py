from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.instance import RunningInstance, running_instance


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """A real instance of two nodes, shared by the tests of a module."""
    with running_instance(tmp_path_factory.mktemp("instance")) as running:
        yield running


@pytest.fixture
def hardly_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that is not about how small a plan becomes, which takes most of the time."""
    monkeypatch.setattr("flux_trio.lab.stories.shrinking.RUNS_MAX", 2)
