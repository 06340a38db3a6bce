"""SIGKILL of an instance, a few times; `make kill` does it more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill.run import run_round


@pytest.mark.real
@pytest.mark.parametrize("seed", [pytest.param(20, id="classic"), pytest.param(21, id="current")])
def test_nothing_acknowledged_is_lost_when_the_instance_is_killed(
    tmp_path: Path, seed: int
) -> None:
    """Start again from the same state directory: no id missing or reused, no job run twice."""
    assert run_round(tmp_path, seed, lives_max=5) > 0
