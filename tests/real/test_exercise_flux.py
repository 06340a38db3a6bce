"""The job manager of a live flux-core is driven by our scheduler and our execution service."""

from __future__ import annotations

from typing import Final

import trio

from flux_trio.lab.exercise import MANAGER_ACTS, Act, Ended, Report
from flux_trio.lab.exercise.live_run import exercise_flux
from tests.support.real_flux import NEEDS_FLUX

pytestmark = NEEDS_FLUX

DEADLINE_S: Final = 20.0
TITLES: Final = ("one job", "three times as many jobs as fit", "waiting jobs are canceled")


def chosen() -> list[Act]:
    return [act for act in MANAGER_ACTS if act.title in TITLES]


def test_job_manager_of_flux_core_keeps_what_the_first_acts_ask() -> None:
    told: list[Ended] = []

    class PrintedReport(Report):
        def ended(self, ended: Ended) -> None:
            told.append(ended)

    async def run() -> None:
        found = await exercise_flux(PrintedReport(), acts=chosen(), deadline_s=DEADLINE_S)
        assert found.is_clean, found.text()
        verdicts = {clause.id: found.verdict(clause) for clause in found.clauses}
        asked = ("27.alloc.1", "27.success.6", "27.exceptions.2", "32.start.1", "27.impl.8")
        assert {clause: verdicts[clause] for clause in asked} == dict.fromkeys(asked, "kept")

    trio.run(run)
    assert [each.act for each in told] == chosen()
