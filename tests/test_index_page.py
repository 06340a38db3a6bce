"""The first runs of the home page, typed by somebody who has the checkout beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.make_tutorial import ROOT, commands, typed

PAGE = ROOT / "docs" / "index.md"


@pytest.mark.real
@pytest.mark.gate
def test_first_runs_of_the_home_page_work(tmp_path: Path) -> None:
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    run, tested, simulated, judged = typed(commands(PAGE.read_text()), tmp_path, tmp_path)
    assert len(run.splitlines()) == 4
    assert "passed" in tested
    assert "mean wait" in simulated
    assert judged in PAGE.read_text()
