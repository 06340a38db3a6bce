"""docs/howto/operate.md: its files are in order."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flux_trio.config import parse_config

OPERATE = Path(__file__).parents[1] / "docs" / "howto" / "operate"


def test_site_configuration_is_one() -> None:
    warnings: list[str] = []
    config = parse_config((OPERATE / "site.toml").read_text(), "site.toml", warn=warnings.append)
    assert not warnings
    assert set(config.queues) == {"debug", "batch"}
    assert config.access.allow_guest_user


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_takes_away_what_neither_instance_nor_jobs_need() -> None:
    """The unit itself says what is left to jobs."""
    command = ["systemd-analyze", "security", "--offline=true", str(OPERATE / "flux-trio.service")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    exposure = re.search(r"Overall exposure level for flux-trio.service: ([0-9.]+)", told.stdout)
    assert exposure is not None, told.stderr
    assert float(exposure[1]) <= 4


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Systemd checks that the programs exist, so the unit gets one that does."""
    unit = (OPERATE / "flux-trio.service").read_text()
    assert "Type=notify\n" in unit
    path = tmp_path / "flux-trio.service"
    path.write_text(unit.replace("/opt/flux-trio/bin/flux-trio", str(shutil.which("true"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    mine = [line for line in done.stderr.splitlines() if str(path) in line]
    assert (done.returncode, mine) == (0, [])
