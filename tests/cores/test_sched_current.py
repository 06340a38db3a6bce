"""What the scheduler does otherwise in the current edition: properties in R, nodes that leave."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.editions import CLASSIC, CURRENT, Edition
from flux_trio.formats import Idset, ResourceSet
from tests.support.sched_script import SchedScript, alloc, jobspec, sent
from tests.support.scheduling import machine


def with_properties() -> ResourceSet:
    """Two nodes of a queue, one of which has a gpu."""
    written: dict[str, Any] = machine(2, 2).to_json()
    written["execution"]["properties"] = {"+batch": "0-1", "gpu": "0"}
    return ResourceSet.parse(written)


@pytest.mark.parametrize(
    ("edition", "granted"),
    [
        (CLASSIC, {"+batch": Idset.parse("0-1"), "gpu": Idset.parse("0")}),
        (CURRENT, {"gpu": Idset.parse("0")}),
    ],
)
def test_properties_of_this_instance_alone_are_in_no_r_of_a_job(
    edition: Edition, granted: dict[str, Idset]
) -> None:
    """RFC 20: a job that is an instance itself has none of the queues around it."""
    script = SchedScript(edition=edition)
    script.attach(with_properties())
    script.turn(alloc(1, jobspec(4)))
    assert script.r(1).properties == granted


@pytest.mark.parametrize("news", [{"down": "0"}, {"down": "0", "shrink": "0"}])
def test_no_exception_is_raised_on_a_job_whose_node_goes(news: dict[str, str]) -> None:
    """28.shrink.4: the execution service ends the job, if its tasks are lost."""
    script = SchedScript(edition=CURRENT)
    script.attach(machine(2, 2))
    script.turn(alloc(1, jobspec(4)))
    assert sent(script.acquired(**news)) == []
