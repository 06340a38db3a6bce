"""Tests with a live flux-core: `pytestmark = NEEDS_FLUX`, and stories that its instances play."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

REAL: Final = Path(__file__).parents[1] / "real"
STORY_S_MAX: Final = 240.0

NEEDS_FLUX: Final = [
    pytest.mark.real_flux,
    pytest.mark.skipif(shutil.which("flux") is None, reason="flux-core's `flux` is not on PATH"),
]


def played(story: str, *args: str, brokers: int = 2, config: Path | None = None) -> str:
    """Play a script of tests/real in an instance of its own; return what it prints."""
    return told([str(REAL / story), *args], brokers=brokers, config=config)


def told(command: list[str], *, brokers: int, config: Path | None = None) -> str:
    """Run a program in an instance of its own; return what it prints."""
    hosts = f"--test-hosts=node[0-{brokers - 1}]"
    options = [] if config is None else [f"--config-path={config}"]
    done = subprocess.run(
        ["flux", "start", "-s", str(brokers), hosts, *options, *command],
        cwd=REAL.parents[1],
        capture_output=True,
        timeout=STORY_S_MAX,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
