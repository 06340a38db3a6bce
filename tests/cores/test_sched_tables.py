"""What the scheduler reads of RFC 33's scheduler policy."""

from __future__ import annotations

import pytest

from flux_trio.config import parse_config
from flux_trio.cores.sched.tables import policies_by_queue
from flux_trio.formats import FormatError

TABLES = """
[sched]
policy = "conservative"

[policy.scheduler]
whatever = "is nobody else's business"

[queues.batch]
policy.scheduler.policy = "easy"
[queues.debug]

[policy.jobspec.defaults.system]
queue = "batch"
"""


def test_each_queue_may_name_a_policy() -> None:
    """33.background.4, 33.schedpolicy.1, 33.schedpolicy.2: other keys are let be."""
    sched, queues = policies_by_queue(parse_config(TABLES))
    assert sched.policy == "conservative"
    assert queues == {"batch": "easy", "debug": "conservative"}


def test_general_table_names_it_for_all() -> None:
    """33.policy.1"""
    sched, queues = policies_by_queue(parse_config("[policy.scheduler]\npolicy = 'easy'"))
    assert (sched.policy, queues) == ("easy", {})


def test_scheduler_that_is_one_policy_is_that_for_every_queue() -> None:
    sched, queues = policies_by_queue(parse_config(TABLES), "fifo")
    assert (sched.policy, queues) == ("fifo", {"batch": "fifo", "debug": "fifo"})


def test_policy_that_there_is_not_is_refused_by_the_scheduler_alone() -> None:
    """33.schedpolicy.2"""
    config = parse_config("[queues.a]\npolicy.scheduler.policy = 'best'")
    with pytest.raises(FormatError) as error:
        policies_by_queue(config)
    assert str(error.value) == (
        "queues.a.policy.scheduler.policy: expected one of fifo, easy, conservative, "
        'or FILE.py:Class, got "best"'
    )
