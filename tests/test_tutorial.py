"""The tutorial's commands, typed in order into one shell: each prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.make_tutorial import PAGE, commands, filled, normal, typed


@pytest.mark.real
@pytest.mark.gate
def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text()
    made = filled(page, typed(commands(page), tmp_path))
    assert normal(made) == normal(page), "run: python -m docs.make_tutorial"


def test_page_shows_jobs_that_ended_in_each_way() -> None:
    page = PAGE.read_text()
    for end in (" CD ", " F ", " CA ", " TO "):
        assert end in page
