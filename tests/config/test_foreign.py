"""A site's file for flux-core: what means nothing here is named and left out, the rest is read."""

from __future__ import annotations

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.config.foreign import KEYS, TABLES
from flux_trio.formats import FormatError

SITE = """
[tbon]
tcp_user_timeout = "2m"

[bootstrap]
curve_cert = "/etc/flux/system/curve.cert"
hosts = [{ host = "node[0-3]" }]

[systemd]
enable = true

[sched-fluxion-qmanager]
queue-policy = "easy"

[exec]
imp = "/usr/libexec/flux/flux-imp"
kill-timeout = "10s"

[exec.sdexec-properties]
MemoryMax = "90%"

[access]
allow-guest-user = true
"""


def test_tables_of_a_site_are_named_and_left_out() -> None:
    warnings: list[str] = []
    config = parse_config(SITE, "site.toml", warnings.append)
    assert (config.exec.kill_timeout, config.access.allow_guest_user) == ("10s", True)
    assert warnings == [
        "site.toml: these have no meaning here and are ignored: "
        "[tbon], [bootstrap], [systemd], [sched-fluxion-qmanager], "
        "exec.imp, exec.sdexec-properties"
    ]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_such_table_is_accepted(name: str) -> None:
    assert parse_config(f"[{name}]\nkey = 1") == Config()


@pytest.mark.parametrize("name", sorted(f"{table}.{key}" for table in KEYS for key in KEYS[table]))
def test_every_such_key_is_accepted(name: str) -> None:
    assert parse_config(f"{name} = 1") == Config()


def test_without_such_tables_there_is_no_warning() -> None:
    warnings: list[str] = []
    parse_config("[sched]\npolicy = 'easy'", warn=warnings.append)
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tbonn]\nkey = 1", 'got "tbonn"'),
        ("[shed]\npolicy = 'easy'", 'got "shed"; did you mean sched?'),
        ("[exec]\nkill-timeuot = '1s'", 'got "kill-timeuot"; did you mean kill-timeout?'),
        ("[exec]\nimpp = '/x'", 'got "impp"'),
        ("tbon = 1", 'got "tbon"'),
    ],
)
def test_what_flux_does_not_know_either_is_an_error(text: str, says: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_config(text, "site.toml")
    assert says in str(caught.value)
