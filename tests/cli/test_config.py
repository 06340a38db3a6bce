"""`flux-trio config`: what is in force, and another configuration for a running instance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import RunningInstance, running_instance

QUICK = "--setattr=exec.test.run_duration=0.01"
CONFIG = """
[exec]
simulate = true
[policy.limits]
duration = "8h"
job-size.max.nnodes = 3
[queues.batch]
"""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    with running_instance(tmp_path_factory.mktemp("instance"), CONFIG) as running:
        yield running


@pytest.fixture
def file(instance: RunningInstance) -> Path:
    """Where its configuration came from."""
    return instance.statedir / "config.toml"


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["policy.limits.duration"], "8h"),
        (["policy.limits.duration", "--type=fsd-integer"], "28800"),
        (["policy.limits.duration", "--type=fsd-real"], "28800.0"),
        (["policy.limits.job-size.max", "--type=object"], '{"nnodes":3}'),
        (["sched.policy"], "fifo"),
        (["exec.simulate", "--type=boolean"], "true"),
        (["policy.limits.nosuch", "--default=3"], "3"),
    ],
)
def test_value_is_printed(instance: RunningInstance, arguments: list[str], printed: str) -> None:
    assert instance.invoke("config", "get", *arguments).stdout == f"{printed}\n"


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nosuch"], "flux-trio config get: ERROR: nosuch is not set\n"),
        (["nosuch", "-q"], ""),
        (
            ["exec.simulate.deeper"],
            "flux-trio config get: ERROR: exec.simulate.deeper is not set\n",
        ),
        (
            ["exec.simulate", "--type=integer"],
            "flux-trio config get: ERROR: exec.simulate: expected integer, got true\n",
        ),
    ],
)
def test_what_has_no_value_is_an_error(
    instance: RunningInstance, arguments: list[str], text: str
) -> None:
    result = instance.invoke("config", "get", *arguments)
    assert (result.exit_code, result.stderr) == (1, text)


@pytest.mark.real
def test_new_file_is_in_force_at_once(instance: RunningInstance, file: Path) -> None:
    """And what modules read when they are loaded is named."""
    file.write_text(CONFIG.replace("8h", "2h") + "[queues.batch.policy.access]\nallow-user = []\n")
    assert instance.call("config", "reload").stderr == ""
    assert instance.invoke("config", "get", "policy.limits.duration").stdout == "2h\n"
    refused = instance.call("submit", "-q", "batch", "true")
    assert "has no access to queue batch" in refused.stderr
    file.write_text(CONFIG + "[sched]\npolicy = 'easy'\n")
    assert instance.call("config", "reload").stderr == (
        "flux-trio config reload: in force when their modules are loaded again: sched\n"
    )
    instance.ok("module", "reload", "sched")
    instance.ok("submit", "-q", "batch", "-t1", QUICK, "true")


@pytest.mark.real
def test_invalid_file_names_the_key_and_leaves_the_old_one(
    instance: RunningInstance, file: Path
) -> None:
    before = instance.ok("config", "get")
    file.write_text(CONFIG.replace("8h", "8 h"))
    result = instance.call("config", "reload")
    assert result.returncode == 1
    assert f"{file}.policy.limits.duration: expected a duration such as" in result.stderr
    assert instance.ok("config", "get") == before


@pytest.mark.real
def test_plugin_that_cannot_be_loaded_is_refused_before_the_job_manager_needs_it(
    instance: RunningInstance, file: Path, tmp_path: Path
) -> None:
    before = instance.ok("config", "get")
    broken = tmp_path / "broken.py"
    broken.write_text("def priority(\n")
    file.write_text(f"{CONFIG}[[job-manager.plugins]]\nload = '{broken}'\n")
    result = instance.call("config", "reload")
    assert result.returncode == 1
    assert f"job-manager.plugins[0]: {broken}:1: SyntaxError: " in result.stderr
    assert instance.ok("config", "get") == before
    file.write_text(f"{CONFIG}[[job-manager.plugins]]\nload = 'nosuch'\n")
    assert "job-manager.plugins[0]: no plugin nosuch: " in instance.call("config", "reload").stderr
    file.write_text(CONFIG)
    assert instance.call("config", "reload").returncode == 0


@pytest.mark.real
def test_file_that_is_no_text_is_named(instance: RunningInstance, tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(b"\xce\x00")
    done = instance.invoke("config", "load", noise)
    assert done.stderr.startswith(
        f"flux-trio config load: ERROR: {noise}: expected text in UTF-8: "
    )


@pytest.mark.real
def test_tools_for_jobs_do_without_the_configuration(instance: RunningInstance, file: Path) -> None:
    """33.tools.1"""
    file.unlink()
    jobid = instance.submitted("-q", "batch", "-t1", QUICK, "true")
    assert jobid in instance.ok("jobs", "-a", "-q", "batch")
    assert instance.call("config", "reload").stderr.endswith(
        "config.toml: No such file or directory\n"
    )


@pytest.mark.real
def test_configuration_may_come_from_anywhere(instance: RunningInstance) -> None:
    result = instance.call("config", "load", stdin='{"queues": {"a": {"parent": "b"}}}')
    assert "standard input.queues.a.parent: expected a queue without a parent" in result.stderr
    two = instance.call("config", "load", stdin='{"queues": {"a": {}, "b": {}}, "tbon": {}}')
    assert "standard input: these have no meaning here and are ignored: [tbon] (" in two.stderr
    assert "standard input: no default queue in policy.jobspec" in two.stderr
    assert instance.call("config", "load", stdin='{"queues": {"a": {}}}').returncode == 0
    assert instance.ok("queue", "status", "a").startswith("a: Job submission is enabled")
    assert "nosuch.toml: No such file" in instance.call("config", "load", "nosuch.toml").stderr
