"""The TOML configuration: its tables, its defaults, its errors."""

from __future__ import annotations

import pytest

from flux_trio.config import (
    BrokerConfig,
    Config,
    ExecConfig,
    KvsConfig,
    ResourceConfig,
    ResourceEntry,
    SchedConfig,
    parse_config,
)
from flux_trio.editions import CLASSIC, CURRENT
from flux_trio.formats import FormatError

EVERYTHING = """
edition = "classic"

[broker]
host = "127.0.0.2"
port = 8515

[resource]
targets = 4
exclude = "node[2-3]"
noverify = true

[[resource.config]]
hosts = "node[0-3]"
cores = "0-7"
gpus = "0-1"
properties = ["fast", "big"]

[[resource.config]]
hosts = "login0"

[sched]
policy = "easy"
mode = "limited"
limit = 16

[exec]
kill-timeout = "1.5m"
simulate = true

[kvs]
synchronous = "full"
"""


def test_every_key_is_taken() -> None:
    assert parse_config(EVERYTHING) == Config(
        edition="classic",
        broker=BrokerConfig(host="127.0.0.2", port=8515),
        resource=ResourceConfig(
            config=[
                ResourceEntry("node[0-3]", "0-7", "0-1", ["fast", "big"]),
                ResourceEntry("login0", None, None, []),
            ],
            targets=4,
            exclude="node[2-3]",
            noverify=True,
        ),
        sched=SchedConfig("easy", "limited", 16),
        exec=ExecConfig("1.5m", simulate=True),
        kvs=KvsConfig("full"),
    )


def test_every_key_has_a_default() -> None:
    config = parse_config("")
    assert config.edition_value is CLASSIC
    assert (config.broker.host, config.broker.port) == ("127.0.0.1", 0)
    resource = config.resource
    assert (resource.config, resource.targets, resource.exclude) == ([], 1, "")
    assert resource.noverify is False
    assert (config.sched.policy, config.sched.mode, config.sched.limit) == ("fifo", "unlimited", 8)
    assert (config.exec.kill_timeout, config.exec.simulate) == ("5s", False)
    assert config.kvs.synchronous == "normal"


def test_table_that_is_there_and_empty_is_the_default() -> None:
    tables = "\n".join(f"[{name}]" for name in ("broker", "resource", "sched", "exec", "kvs"))
    assert parse_config(tables) == Config()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            'editon = "classic"',
            "site.toml: expected the keys edition, access, broker, resource, fake-resources, "
            "sched, exec, ingest, kvs, job-manager, policy, queues, sched-fluxion-feasibility, "
            "sched-fluxion-qmanager, sched-fluxion-resource, "
            'got "editon"; did you mean edition?',
        ),
        (
            "[sched]\npolcy = 1",
            "site.toml.sched: expected the keys policy, mode, limit, "
            'got "polcy"; did you mean policy?',
        ),
        (
            '[[resource.config]]\nhosts = "a"\n[[resource.config]]\nhost = "b"',
            "site.toml.resource.config[1]: expected the keys hosts, cores, gpus, properties, "
            'got "host"; did you mean hosts?',
        ),
        (
            '[[resource.config]]\ncores = "0"',
            "site.toml.resource.config[0]: expected the key hosts, got nothing",
        ),
        ("edition = 1", "site.toml.edition: expected str, got 1"),
        ("sched = 1", "site.toml.sched: expected object, got 1"),
        (
            '[resource.config]\nhosts = "a"',
            "site.toml.resource.config: expected array, got {'hosts': 'a'}",
        ),
        ('[exec]\nsimulate = "yes"', 'site.toml.exec.simulate: expected bool, got "yes"'),
        ("[exec]\nkill-timeout = 5", "site.toml.exec.kill-timeout: expected str, got 5"),
        (
            '[[resource.config]]\nhosts = "a"\nproperties = ["x", 1]',
            "site.toml.resource.config[0].properties[1]: expected str, got 1",
        ),
        (
            '[[resource.config]]\nhosts = "a"\ncores = 8',
            "site.toml.resource.config[0].cores: expected str | null, got 8",
        ),
        ("[broker]\nport = 65536", "site.toml.broker.port: expected int <= 65535, got 65536"),
        ("[broker]\nport = -1", "site.toml.broker.port: expected int >= 0, got -1"),
        (
            "[job-manager.prolog]\ncommand = []",
            "site.toml.job-manager.prolog.command: expected array of length >= 1, got []",
        ),
        (
            '[job-manager.epilog]\ncmd = "x"',
            "site.toml.job-manager.epilog: expected the keys command, timeout, kill-timeout, "
            'per-rank, cancel-on-exception, got "cmd"; did you mean command?',
        ),
        ("[resource]\ntargets = 0", "site.toml.resource.targets: expected int >= 1, got 0"),
        ("[sched]\nlimit = 0", "site.toml.sched.limit: expected int >= 1, got 0"),
        (
            "[sched]\nlimit = 2147483648",
            "site.toml.sched.limit: expected int <= 2147483647, got 2147483648",
        ),
        (
            '[sched]\npolicy = "fast"',
            "site.toml.sched.policy: expected one of fifo, easy, conservative, or FILE.py:Class, "
            'got "fast"',
        ),
        ('[sched]\nmode = ""', 'site.toml.sched.mode: expected one of limited, unlimited, got ""'),
        (
            '[kvs]\nsynchronous = "off"',
            'site.toml.kvs.synchronous: expected one of full, normal, got "off"',
        ),
        ('edition = "next"', 'site.toml.edition: expected one of classic, current, got "next"'),
        (
            '[exec]\nkill-timeout = "5 s"',
            'site.toml.exec.kill-timeout: expected a duration such as "30", "1.5h" or "inf" '
            '(units: ms, s, m, h, d), got "5 s"',
        ),
        (
            '[exec]\nkill-timeout = "-1s"',
            'site.toml.exec.kill-timeout: expected a duration from 0 to infinity, got "-1s"',
        ),
        (
            'edition = "classic"\nport = = 1',
            "site.toml: expected TOML, got broken TOML: Invalid value (at line 2, column 8)",
        ),
    ],
)
def test_error_says_where_what_was_expected_and_what_came(text: str, complaint: str) -> None:
    with pytest.raises(FormatError) as error:
        parse_config(text, "site.toml")
    assert str(error.value) == complaint


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("policy.scheduler = {a = inf}", "policy.scheduler.a"),
        ("policy.scheduler = {a = 1979-05-27}", "policy.scheduler.a"),
        ("policy.limits.job-size.max.nnodes = 99999999999999999999", "job-size.max.nnodes"),
        ("job-manager.plugins = [{load = 'x', conf = {a = nan}}]", "plugins[0].conf.a"),
    ],
)
def test_value_that_no_message_can_have_is_refused_when_it_is_read(text: str, key: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_config(text)
    assert key in str(refused.value)


def test_a_native_door_is_open_where_the_edition_is_that_of_fluxs_programs() -> None:
    assert parse_config('edition = "current"').has_native_door
    assert not parse_config('edition = "current"\n[broker]\nnative = false').has_native_door
    assert not parse_config("").has_native_door
    with pytest.raises(FormatError, match="false in the edition classic, which Flux's programs do"):
        parse_config("[broker]\nnative = true")


RELEASE_AFTER = '[job-manager.housekeeping]\ncommand = ["true"]\nrelease-after = "5s"\n'


def test_the_edition_that_is_given_is_the_one_that_a_configuration_is_checked_for():
    """That of the file is another one, or the default."""
    for text in (RELEASE_AFTER, f'edition = "classic"\n{RELEASE_AFTER}'):
        assert parse_config(text, edition="current").edition_value is CURRENT
        with pytest.raises(FormatError, match="expected no release-after in the edition classic"):
            parse_config(text)
    with pytest.raises(FormatError, match="expected no release-after in the edition classic"):
        parse_config(f'edition = "current"\n{RELEASE_AFTER}', edition="classic")
