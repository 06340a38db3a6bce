from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.instance import RunningInstance, running_instance


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """A real instance of two nodes: it takes a second to start it, and another to judge it."""
    with running_instance(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(scope="module")
def instance(shared: RunningInstance) -> RunningInstance:
    """The shared one, without active jobs; a module leaves it as it was, but for jobs."""
    shared.cancel_all()
    return shared


@pytest.fixture(scope="module")
def own_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """One for a module that counts its jobs, or changes it."""
    with running_instance(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def hardly_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that is not about how small a plan becomes, which takes most of the time."""
    monkeypatch.setattr("flux_trio.lab.stories.shrinking.RUNS_MAX", 2)
