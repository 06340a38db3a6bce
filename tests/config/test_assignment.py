"""RFC 33, Initial Assignment of Job to Queue: what a queue adds to a jobspec."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import (
    CONSTRAINTS_KEY,
    DURATION_KEY,
    QUEUE_KEY,
    Config,
    NoQueue,
    add_queue_properties,
    assign,
    parse_config,
    queue_hosts,
)
from flux_trio.formats import FormatError, Idset
from flux_trio.sim import make_machine

TWO = """
[policy.jobspec.defaults.system]
duration = "10m"
queue = "batch"

[queues.batch]
requires = { properties = ["batch"] }

[queues.debug]
requires = { and = [{ properties = ["debug"] }, { not = [{ hostlist = ["node3"] }] }] }
policy.jobspec.defaults.system.duration = "1m"
"""
BATCH = {"properties": ["batch"]}
DEBUG = [{"properties": ["debug"]}, {"not": [{"hostlist": ["node3"]}]}]


@pytest.mark.parametrize(
    ("default", "updates"),
    [('"1m"', {DURATION_KEY: 60.0}), ('"inf"', {DURATION_KEY: 0.0}), (None, None)],
)
def test_job_without_the_key_duration_needs_a_default(
    default: str | None, updates: dict[str, Any] | None
) -> None:
    """25.attributes.2, and readings: The key duration."""
    text = "" if default is None else f"policy.jobspec.defaults.system.duration = {default}"
    if updates is not None:
        assert assign(parse_config(text), {}).updates == updates
        return
    with pytest.raises(FormatError) as refused:
        assign(parse_config(text), {})
    expected = "attributes.system.duration: expected a number of seconds, since there is no default"
    assert str(refused.value) == f"{expected}, got nothing"


@pytest.mark.parametrize(
    ("system", "updates"),
    [
        ({}, {QUEUE_KEY: "batch", DURATION_KEY: 600.0, CONSTRAINTS_KEY: BATCH}),
        ({"duration": 0}, {QUEUE_KEY: "batch", DURATION_KEY: 600.0, CONSTRAINTS_KEY: BATCH}),
        ({"duration": 5, "queue": "batch"}, {CONSTRAINTS_KEY: BATCH}),
        (
            {"duration": 0.0, "queue": "debug"},
            {DURATION_KEY: 60.0, CONSTRAINTS_KEY: {"and": DEBUG}},
        ),
        (
            {"duration": 5, "queue": "batch", "constraints": {"ranks": ["1"]}},
            {CONSTRAINTS_KEY: {"and": [{"ranks": ["1"]}, BATCH]}},
        ),
        (
            {"duration": 5, "queue": "debug", "constraints": {"or": [{"ranks": ["1"]}, BATCH]}},
            {CONSTRAINTS_KEY: {"and": [{"or": [{"ranks": ["1"]}, BATCH]}, *DEBUG]}},
        ),
    ],
)
def test_only_what_the_job_does_not_say_is_filled_in(
    system: dict[str, Any], updates: dict[str, Any]
) -> None:
    """33.defaults.1, 33.defaults.3, 33.assignment.1, 33.assignment.2, 33.queues.4, 33.queues.5."""
    assert assign(parse_config(TWO), system).updates == updates


def assigned(config: Config, system: dict[str, Any]) -> tuple[str | None, dict[str, Any]] | str:
    """The queue and what it adds; or why the job is refused."""
    try:
        assignment = assign(config, system)
    except NoQueue as error:
        return str(error)
    return assignment.queue, assignment.updates


def test_nothing_is_added_where_nothing_is_configured() -> None:
    """33.impl.3, 33.criteria.3"""
    assert assigned(Config(), {"duration": 0, "constraints": BATCH}) == (None, {})


def test_default_duration_holds_for_the_anonymous_queue() -> None:
    """33.policy.1"""
    config = parse_config("[policy.jobspec.defaults.system]\nduration = '1h'")
    assert assign(config, {"duration": 0}).updates == {DURATION_KEY: 3600.0}


@pytest.mark.parametrize(
    ("text", "queue", "complaint"),
    [
        (TWO, "nosuch", "Invalid queue 'nosuch' specified"),
        ("", "batch", "Invalid queue 'batch' specified"),
        ("[queues.one]", None, "a named queue is required"),
    ],
)
def test_queue_that_does_not_exist_is_refused(text: str, queue: str | None, complaint: str) -> None:
    """33.validation.1, 33.impl.4"""
    system = {"duration": 0} if queue is None else {"duration": 0, "queue": queue}
    with pytest.raises(NoQueue) as error:
        assign(parse_config(text), system)
    assert str(error.value) == complaint


HOSTS = """
edition = "current"
[queues.all]
hosts = "all"
[queues.some]
hosts = "node[1-2]"
[queues.virtual]
parent = "some"
[queues.other]
"""


def test_hosts_of_a_queue_have_its_property_and_its_jobs_require_it() -> None:
    """33.hosts.3, 33.virtual.2"""
    config = parse_config(HOSTS)
    inventory = add_queue_properties(queue_hosts(config), make_machine(4, 1))
    assert inventory.ranks_with_property("+all") == Idset.of(range(4))
    assert inventory.ranks_with_property("+some") == Idset.of([1, 2])
    assert set(inventory.properties) == {"+all", "+some"}
    wanted = {queue: assign(config, {"queue": queue, "duration": 1}) for queue in config.queues}
    assert wanted["virtual"].updates[CONSTRAINTS_KEY] == {"properties": ["+some"]}
    assert wanted["other"].updates == {}
    assert add_queue_properties(queue_hosts(Config()), make_machine(4, 1)) == make_machine(4, 1)


@pytest.mark.parametrize(
    ("hosts", "complaint"),
    [
        ("node[3-4]", "queues.some.hosts: expected hosts of this instance, such as node0, got"),
        ("", "queues.some.hosts: expected a hostlist, or 'all', got"),
        ("node[", "queues.some.hosts: expected"),
    ],
)
def test_unknown_or_empty_hosts_are_refused(hosts: str, complaint: str) -> None:
    """33.hosts.1"""
    text = HOSTS.replace("node[1-2]", hosts)
    with pytest.raises(FormatError) as error:
        add_queue_properties(queue_hosts(parse_config(text)), make_machine(4, 1))
    assert complaint in str(error.value)


def test_hosts_are_refused_beside_what_says_otherwise_and_by_name_in_the_classic_edition() -> None:
    """33.hosts.2"""
    for more, key in (("requires = ['x']", "requires"), ("parent = 'all'", "hosts")):
        text = HOSTS.replace('hosts = "node[1-2]"', f'hosts = "node1"\n{more}', 1)
        with pytest.raises(FormatError, match=f"some.{key}: expected no {key}"):
            parse_config(text.replace('[queues.virtual]\nparent = "some"', ""))
    with pytest.raises(FormatError, match=r"queues\.all\.hosts: expected no hosts in the edition"):
        parse_config(HOSTS.replace("current", "classic"))
