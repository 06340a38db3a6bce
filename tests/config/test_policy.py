"""RFC 33, policy and queue tables: what is refused, and what holds for a queue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.config import Access, Config, JobSize, Policy, parse_config, read_config
from flux_trio.config.policy import PolicyTable, override
from tests.support.configured import refusal_of

EVERYTHING = """
[policy]
jobspec.defaults.system = { duration = "1h", queue = "batch" }
limits.duration = "8h"
limits.job-size.max = { nnodes = 16, ncores = 512, ngpus = 8 }
limits.job-size.min = { nnodes = 1, ncores = 2, ngpus = 0 }
access.allow-user = ["alice"]
access.allow-group = ["physics"]
scheduler = { depth = 10, anything = { deep = [1, "two"] } }

[queues.batch]

[queues.debug]
requires = { properties = ["debug"] }
started = false
policy.jobspec.defaults.system.duration = "5m"
policy.limits.duration = "30m"
policy.limits.job-size.max.nnodes = 2
policy.limits.job-size.min.ncores = -1
policy.access.allow-group = []
policy.scheduler.anything.deep = []
"""


def test_what_is_configured_holds_for_every_queue_that_says_nothing_else() -> None:
    """33.policy.1, 33.limits.1, 33.defaults.4, 33.schedpolicy.2: durations are seconds."""
    assert refusal_of(EVERYTHING) is None
    config = parse_config(EVERYTHING)
    expected = Policy(
        duration=3600.0,
        limits=config.policy_for(None).limits,
        access=Access(frozenset({"alice"}), frozenset({"physics"})),
        scheduler={"depth": 10, "anything": {"deep": [1, "two"]}},
    )
    assert config.policy_for(None) == config.policy_for("batch") == expected
    assert expected.limits.duration == 8 * 3600.0
    assert expected.limits.max == JobSize(16, 512, 8)
    assert expected.limits.min == JobSize(1, 2, 0)


def test_queue_overrides_leaf_by_leaf_and_only_for_itself() -> None:
    """33.policy.4, 33.queues.6, 33.queues.7, 33.impl.6: what it does not say stays."""
    config = parse_config(EVERYTHING)
    debug = config.policy_for("debug")
    assert debug.duration == 300.0
    assert debug.limits.duration == 1800.0
    assert debug.limits.max == JobSize(2, 512, 8)
    assert debug.limits.min == JobSize(1, 0, 0)
    assert debug.access == Access(frozenset({"alice"}), frozenset())
    assert debug.scheduler == {"depth": 10, "anything": {"deep": []}}
    assert config.policy_for("batch").limits.max == JobSize(16, 512, 8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[policy]",
        "[policy.limits]",
        "[policy.limits.job-size.max]\nnnodes = 3",
        "[policy.access]",
        "[policy.jobspec.defaults.system]\nduration = '1h'",
        "[queues.one]",
        "[queues.one]\npolicy.limits.duration = '1h'",
        "[policy.jobspec.defaults.system]\nqueue = 'one'\n[queues.one]\n[queues.two]",
    ],
)
def test_every_table_and_key_is_optional(text: str) -> None:
    """33.impl.2, 33.policy.2, 33.policy.3, 33.defaults.2, 33.limits.1, 33.queues.1, 33.queues.2."""
    assert refusal_of(text) is None
    config = parse_config(text)
    assert read_config(config.to_json()) == config


def test_nothing_configured_limits_nothing() -> None:
    """33.access.4: without either key everybody may submit."""
    policy = Config().policy_for(None)
    assert policy == Policy()
    assert policy.access.is_open
    assert policy.limits.duration == policy.limits.max.nnodes == math.inf


@pytest.mark.parametrize("text", ["0", "inf"])
def test_unlimited_duration_in_a_queue_overrides_a_general_limit(text: str) -> None:
    """33.background.6: an exception for one queue."""
    config = parse_config(
        f"[policy.limits]\nduration = '1h'\n[queues.long]\npolicy.limits.duration = '{text}'"
    )
    assert config.policy_for("long").limits.duration == math.inf


def test_no_such_queue_has_no_policy() -> None:
    with pytest.raises(KeyError):
        Config().policy_for("nosuch")


@pytest.mark.parametrize(
    ("user", "groups", "allowed"),
    [
        ("alice", set(), True),
        ("bob", {"physics"}, True),
        ("bob", {"staff"}, False),
        (None, set(), False),
    ],
)
def test_either_list_grants_access(user: str | None, groups: set[str], allowed: bool) -> None:
    """33.access.2, 33.access.3"""
    access = Access(frozenset({"alice"}), frozenset({"physics"}))
    assert access.allows(user, frozenset(groups)) is allowed


def test_an_empty_list_grants_access_to_nobody() -> None:
    """33.access.4"""
    assert not Access(users=frozenset()).allows("alice", frozenset({"physics"}))


TWO = "[queues.a]\n[queues.b]\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            f"{TWO}[policy.jobspec.defaults.system]\nqueue = 'c'",
            'policy.jobspec.defaults.system.queue: expected one of the queues a, b, got "c"',
        ),
        (
            "[policy.jobspec.defaults.system]\nqueue = 'c'",
            'policy.jobspec.defaults.system.queue: expected no default queue, got "c"',
        ),
        (
            "[policy.jobspec.defaults.system]\nqueue = 1",
            "policy.jobspec.defaults.system.queue: expected str | null, got 1",
        ),
        (
            "[queues.a.policy.jobspec.defaults.system]\nqueue = 'a'",
            "queues.a.policy.jobspec.defaults.system.queue: "
            'expected a default queue only in the general policy, got "a"',
        ),
        (
            "[policy.jobspec.defaults.system]\nduration = 3600",
            "policy.jobspec.defaults.system.duration: expected str | null, got 3600",
        ),
        (
            "[policy.jobspec.defaults.system]\nduration = '1 hour'",
            "policy.jobspec.defaults.system.duration: expected a duration such as "
            '"30", "1.5h" or "inf" (units: ms, s, m, h, d), got "1 hour"',
        ),
        (
            "[queues.a.policy.limits]\nduration = '1 hour'",
            "queues.a.policy.limits.duration: expected a duration such as "
            '"30", "1.5h" or "inf" (units: ms, s, m, h, d), got "1 hour"',
        ),
        (
            "[policy.limit]\nduration = '1h'",
            "policy: expected the keys jobspec, limits, access, scheduler, "
            'got "limit"; did you mean limits?',
        ),
        (
            "[policy.priority]\nfactor = 1",
            'policy: expected the keys jobspec, limits, access, scheduler, got "priority"',
        ),
        (
            "[queues.a.policy.limits]\njob-size.max.nodes = 3",
            "queues.a.policy.limits.job-size.max: expected the keys nnodes, ncores, ngpus, "
            'got "nodes"; did you mean nnodes?',
        ),
        (
            "[policy.limits]\njob-size.max.nnodes = -2",
            "policy.limits.job-size.max.nnodes: expected int >= -1, got -2",
        ),
        (
            "[policy.access]\nallow-user = 'alice'",
            'policy.access.allow-user: expected array | null, got "alice"',
        ),
        ('[queues.""]', 'queues: expected a name of a queue, got ""'),
        ("queues.a = 'string'", 'queues.a: expected object, got "string"'),
        (
            "[queues.b]\n[queues.a]\nrequire = {}",
            "queues.a: expected the keys hosts, requires, parent, policy, started, "
            'got "require"; did you mean requires?',
        ),
        (
            "[queues.a]\nrequires = 'debug'",
            'queues.a.requires: expected object | array | null, got "debug"',
        ),
        ("[queues.a]\nrequires = ['debug', 1]", "queues.a.requires[1]: expected str, got 1"),
        (
            "[queues.a]\nrequires = ['debug', 'a|b']",
            "queues.a.requires.properties[1]: "
            """expected a property name in UTF-8 without any of ! & ' " ^ ` | ( ), got "a|b\"""",
        ),
        (
            "[queues.a]\nrequires = { property = ['debug'] }",
            "queues.a.requires: expected one of the operators properties, hostlist, ranks, "
            'not, and, or, got "property"',
        ),
    ],
)
def test_what_is_wrong_is_refused_and_named(text: str, complaint: str) -> None:
    """33.impl.5, 33.policy.2, 33.prioritypolicy.1, 33.defaults.4, 33.defaults.5, 33.queues.2-3."""
    assert refusal_of(text) == f"config.{complaint}"


TABLES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from("abc"), st.one_of(st.integers(0, 2), inner), max_size=3
    ),
    max_leaves=12,
)


def leaves(
    table: dict[str, Any], at: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The paths in a table, with the value of each; an empty table has none."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*at, name))
        else:
            yield (*at, name), value


@given(TABLES, TABLES)
def test_scheduler_tables_are_merged_leaf_by_leaf_however_deep(
    general: dict[str, Any], own: dict[str, Any]
) -> None:
    """33.schedpolicy.1, 33.queues.6."""
    expected = deepcopy(general)
    for (*above, name), value in leaves(own):
        table = expected
        for step in above:
            if not isinstance(table.get(step), dict):
                table[step] = {}
            table = table[step]
        if value != {} or not isinstance(table.get(name), dict):
            table[name] = value
    merged = override(PolicyTable(scheduler=general), PolicyTable(scheduler=own))
    assert merged.scheduler == expected
