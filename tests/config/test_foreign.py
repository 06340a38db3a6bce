"""A site's file for flux-core: what means nothing here is named and left out, the rest is read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect

from flux_trio.config import Config, parse_config, read_config
from flux_trio.config.documented import DOCUMENTED, Ignored, Refused, Used
from flux_trio.formats import FormatError

SITE = """
[tbon]
tcp_user_timeout = "2m"

[bootstrap]
curve_cert = "/etc/flux/system/curve.cert"
hosts = [{ host = "node[0-3]" }]

[systemd]
enable = true

[fluxion-qmanager]
queue-policy = "easy"

[exec]
imp = "/usr/libexec/flux/flux-imp"
kill-timeout = "10s"

[exec.sdexec-properties]
MemoryMax = "90%"

[access]
allow-guest-user = true
"""

SAMPLES = {
    "access.allow-guest-user": "true",
    "access.allow-root-owner": "true",
    "access.private-mode": "true",
    "fake-resources.cores-per-node": "2\nfake-resources.nnodes = 1",
    "fake-resources.gpus-per-node": "2\nfake-resources.nnodes = 1",
    "fake-resources.host-prefix": '"n"\nfake-resources.nnodes = 1',
    "fake-resources.nnodes": "1",
    "exec.kill-timeout": '"1m"',
    "ingest.validator.plugins": '["jobspec"]',
    "job-manager.inactive-age-limit": '"1d"',
    "job-manager.inactive-num-limit": "5",
    "job-manager.perilog.log-ignore": '["noise"]',
    "job-manager.plugins": '[{ load = "perilog.so", conf = { key = 1 } }]',
    "job-manager.stop-queues-on-restart": "true",
    "policy.access": '{ allow-user = ["u"], allow-group = ["g"] }',
    "policy.jobspec": '{ defaults.system = { duration = "1m", queue = "q" } }\nqueues.q = {}',
    "policy.limits": '{ duration = "1h", job-size.max.nnodes = 3, job-size.min.ngpus = -1 }',
    "policy.scheduler": "{ key = 1 }",
    "queues.*.parent": '"q"\nqueues.q = {}',
    "queues.*.policy": '{ limits.duration = "1h" }',
    "queues.*.requires": '["debug", "fast"]',
    "resource.config": '[{ hosts = "n[1-4]", cores = "0-1", gpus = "0", properties = ["p"] }]',
    "resource.exclude": '"0"',
    "resource.noverify": "true",
    "resource.path": '"/etc/flux/R"',
    "resource.rediscover": "true",
    "resource.verify": '{ default = "strict", hostname = "ignore", gpu = "allow-missing" }',
    **{
        f"sched-fluxion-{module}": "{ policy-params = { queue-depth = 8 } }"
        for module in ("feasibility", "qmanager", "resource")
    },
    "job-manager.housekeeping.command": '["/bin/true"]',
    "job-manager.housekeeping.release-after": '"1m"\nedition = "current"',
    **{
        f"job-manager.{table}.{key}": value
        for table in ("prolog", "epilog")
        for key, value in {
            "cancel-on-exception": "true",
            "command": '["/bin/true"]',
            "kill-timeout": "5.0",
            "per-rank": "true",
            "timeout": '"5m"',
        }.items()
    },
}
"""A value of each documented key that means the same here."""

OF_MEANING: dict[type, list[str]] = {
    kind: [path for path, meaning in DOCUMENTED.items() if isinstance(meaning, kind)]
    for kind in (Used, Ignored, Refused)
}


def warnings_of(text: str) -> list[str]:
    warnings: list[str] = []
    parse_config(text, "site.toml", warnings.append)
    return warnings


def keys_of(shape: Any, path: str = "") -> set[str]:
    """Return the dotted paths of all keys of a configuration's type."""
    found: set[str] = set()
    for field in inspect.type_info(shape).fields if isinstance(shape, type) else shape.fields:
        name = f"{path}{field.encode_name}"
        found.add(name)
        for each in getattr(field.type, "types", (field.type,)):
            if isinstance(each, inspect.DictType) and isinstance(
                each.value_type, inspect.StructType
            ):
                found |= keys_of(each.value_type, f"{name}.*.")
            elif isinstance(each, inspect.StructType):
                found |= keys_of(each, f"{name}.")
    return found


def test_tables_of_a_site_are_named_with_the_reason_and_left_out() -> None:
    warnings: list[str] = []
    config = parse_config(SITE, "site.toml", warnings.append)
    assert (config.exec.kill_timeout, config.access.allow_guest_user) == ("10s", True)
    assert warnings == [
        "site.toml: these have no meaning here and are ignored: "
        "[tbon], [bootstrap] (the instance is one process, without an overlay network); "
        "[systemd], exec.sdexec-properties "
        "(processes of jobs run below the shell host, not in units of systemd); "
        "[fluxion-qmanager] (fluxion reads [sched-fluxion-resource] and the like); "
        "exec.imp (all jobs run as the owner of the instance, without the IMP)"
    ]


def test_tables_of_fluxion_are_kept_as_they_are() -> None:
    """A module that is loaded later gets them, and config.get has them."""
    table = {"queue-policy": "easy", "policy-params": {"reservation-depth": 64}, "new": [1, True]}
    config = read_config({"sched-fluxion-qmanager": table})
    assert config.to_json()["sched-fluxion-qmanager"] == table
    assert "sched-fluxion-resource" not in config.to_json()
    with pytest.raises(FormatError, match=r"config\.sched-fluxion-qmanager: expected object"):
        read_config({"sched-fluxion-qmanager": "easy"})


def test_keys_that_mean_the_same_here_are_those_of_the_types() -> None:
    """No key is both used and ignored, and no row names a key that there is not."""
    keys = keys_of(Config)
    assert set(OF_MEANING[Used]) <= keys
    assert not keys & {*OF_MEANING[Ignored], *OF_MEANING[Refused]}
    assert set(SAMPLES) == set(OF_MEANING[Used])


@pytest.mark.parametrize("path", sorted(SAMPLES))
def test_a_key_that_means_the_same_here_is_taken_without_a_warning(path: str) -> None:
    text = f"{path.replace('*', 'v')} = {SAMPLES[path]}"
    if path.startswith(("job-manager.prolog", "job-manager.epilog")) and "command" not in path:
        text += f'\n{path.rpartition(".")[0]}.command = ["/bin/true"]'
    if path.startswith("queues.*.parent"):
        text += '\npolicy.jobspec.defaults.system.queue = "q"'
    assert warnings_of(text) == []
    assert parse_config(text) != Config()


@pytest.mark.parametrize("path", OF_MEANING[Ignored])
def test_a_key_without_a_meaning_here_is_ignored_with_its_reason(path: str) -> None:
    meaning = DOCUMENTED[path]
    assert isinstance(meaning, Ignored)
    is_table = "." not in path
    key = (meaning.keys or ("key",))[0]
    text = f"{path}.{key} = 1" if is_table or meaning.keys else f"{path} = 1"
    name = f"[{path}]" if is_table else path
    first, *rest = warnings_of(text)
    assert f"ignored: {name} ({meaning.why})" in first
    assert rest == []


@pytest.mark.parametrize("path", OF_MEANING[Refused])
def test_a_key_that_would_mean_something_else_is_refused_with_the_reason(path: str) -> None:
    meaning = DOCUMENTED[path]
    assert isinstance(meaning, Refused)
    with pytest.raises(FormatError) as caught:
        parse_config(f'{path} = "x"', "site.toml")
    assert str(caught.value) == f'site.toml.{path}: expected {meaning.why}, got "x"'


def test_the_plugins_of_hardware_are_left_out_with_its_tables() -> None:
    """As flux-config-rabbit(5) and flux-config-slingshot(5) of flux-coral2 show them."""
    warnings: list[str] = []
    text = """
    [job-manager]
    plugins = [
      { load = "dws-jobtap.so", conf = { epilog-timeout = 5400.0 } },
      { load = "perilog.so" },
      { load = "cray-slingshot.so" },
    ]
    [rabbit.policy.maximums]
    xfs = 1024
    [cray-slingshot]
    cxi-enable = true
    """
    config = parse_config(text, "site.toml", warnings.append)
    assert [each.load for each in config.job_manager.plugins] == ["perilog.so"]
    assert warnings == [
        "site.toml: these have no meaning here and are ignored: "
        "[rabbit], [cray-slingshot], dws-jobtap.so, cray-slingshot.so "
        "(only flux-coral2 can serve this hardware)"
    ]


def test_without_such_tables_there_is_no_warning() -> None:
    assert warnings_of("[sched]\npolicy = 'easy'") == []


@pytest.mark.parametrize("table", ["prolog", "epilog"])
def test_a_procedure_without_a_command_runs_nothing_and_says_so(table: str) -> None:
    """In flux-core the command is then one of the IMP."""
    text = f"[job-manager.{table}]\nper-rank = true\nexit-on-first-error = true"
    (warning,) = warnings_of(text)
    assert f"job-manager.{table}.exit-on-first-error (" in warning
    assert f"job-manager.{table} (without command there is nothing to run" in warning
    assert getattr(parse_config(text).job_manager, table).command is None


def test_several_queues_without_a_default_are_taken_with_a_warning() -> None:
    """RFC 33 asks for a default; without one a job that names no queue is refused."""
    assert warnings_of("[queues.a]\n[queues.b]") == [
        "site.toml: no default queue in policy.jobspec.defaults.system.queue: "
        "a job that names no queue is refused"
    ]
    assert warnings_of("[queues.a]") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tbonn]\nkey = 1", 'got "tbonn"'),
        ("[shed]\npolicy = 'easy'", 'got "shed"; did you mean sched?'),
        ("[exec]\nkill-timeuot = '1s'", 'got "kill-timeuot"; did you mean kill-timeout?'),
        ("[exec]\nimpp = '/x'", 'got "impp"'),
        ("tbon = 1", 'got "tbon"'),
        ("'exec.imp' = 1", 'got "exec.imp"'),
        ("[tbon]\ntorpid_mni = 1", "site.toml.tbon: expected the keys child_rcvhwm,"),
        ("[tbon]\ntorpid_mni = 1", 'got "torpid_mni"; did you mean torpid_min?'),
        ("[job-manager.housekeeping]\ncomand = []", 'got "comand"; did you mean command?'),
        ("[resource.verify]\ncores = 'strict'", 'got "cores"; did you mean core?'),
        ("resource.verify = 'strict'", "config.resource.verify: expected"),
        ("fake-resources.host-prefix = 'n'", "fake-resources: expected the key nnodes"),
        ("fake-resources.nnodes = 1_000_000_000", "nnodes: expected int <= 1000000"),
    ],
)
def test_what_flux_does_not_know_either_is_an_error(text: str, says: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_config(text, "site.toml" if "site" in says else "config")
    assert says in str(caught.value)


def test_a_configuration_in_force_is_read_again_as_it_is() -> None:
    """config.get shows it, and services get it so."""
    text = "\n".join(
        ["queues.v.requires = ['debug']", "resource.verify = true", "fake-resources.nnodes = 2"]
    )
    config = parse_config(text)
    assert read_config(config.to_json()) == config
