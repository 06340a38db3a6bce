"""A live flux-core is judged: with each of its schedulers it breaks nothing that is not known."""

from __future__ import annotations

import pytest

from flux_trio.judge import Verdict
from flux_trio.trace import read_trace
from tests.support import recorded
from tests.support.real_flux import NEEDS_FLUX, played

pytestmark = NEEDS_FLUX


@pytest.mark.parametrize("scheduler", ["sched-simple", "sched-fifo", "sched-backfill"])
def test_live_flux_core_breaks_nothing_that_is_not_known(scheduler: str) -> None:
    trace = played("story.sh", scheduler).splitlines(keepends=True)
    judgement = recorded.judged_source(read_trace(trace), at_rest=True)
    assert [f"{each.clause}: {each.text}" for each in judgement.violations] == []
    assert [each.text for each in judgement.unexplained] == []
    kept = {clause for clause, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT}
    assert len(kept) >= 245
