"""A job manager is driven by our scheduler and our execution service, and judged."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from flux_trio.cli import main
from flux_trio.lab.exercise import MANAGER_ACTS, MANAGER_KIT
from tests.lab.test_exercise import PATIENCE, SCRIPTS
from tests.lab.test_exercise_mistakes import changed, exercised

MANAGER = SCRIPTS / "manager.py"
ASKED = (
    *("27.alloc.1", "27.alloc.3", "27.criteria.3", "27.criteria.4", "27.criteria.5", "27.deny.5"),
    *("27.exceptions.2", "27.free.1", "27.hello.4", "27.impl.8", "27.prioritize.1"),
    *("27.success.6", "32.start.1", "32.start.9", "32.start.30", "33.admin.6", "33.admin.7"),
)


def test_job_manager_of_the_page_keeps_every_clause_in_virtual_time() -> None:
    found = exercised(MANAGER_KIT, changed(MANAGER, "", ""), MANAGER_ACTS)
    assert found.is_clean, found.text()
    verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
    assert {clause: verdicts[clause] for clause in ASKED} == dict.fromkeys(ASKED, "kept")


@pytest.mark.real
def test_job_manager_of_the_page_keeps_every_clause_as_a_process() -> None:
    words = ["exercise", "manager", *PATIENCE, "--", sys.executable, str(MANAGER)]
    done = CliRunner().invoke(main, words, prog_name="flux-trio")
    assert done.exit_code == 0, done.output
    assert "stuck" not in done.output
