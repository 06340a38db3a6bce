"""A tap between a live flux-core and its scheduler: what it breaks, the judge names."""

from __future__ import annotations

from pathlib import Path

from tests.support import tapped
from tests.support.real_flux import NEEDS_FLUX, played

pytestmark = NEEDS_FLUX


def test_each_planted_fault_is_named_and_nothing_without_one(tmp_path: Path) -> None:
    tap = tapped.executable(tmp_path, "tap")
    said = played("tapped.sh", str(tap), "sched-fifo", str(tmp_path), brokers=1)
    found = {name: tapped.named_in(tmp_path / f"{name}.jsonl") for name in tapped.FAULTS}
    assert found == tapped.FAULTS, said
