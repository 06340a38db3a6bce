"""SIGKILL of an instance, a few times; `make kill` does it more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kill.run import run_round


@pytest.mark.real
def test_nothing_acknowledged_is_lost_when_the_instance_is_killed(tmp_path: Path) -> None:
    """Start again from the same state directory: no id missing or reused, no job run twice."""
    assert run_round(tmp_path, seed=20) > 0
