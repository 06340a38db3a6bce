"""`flux-trio jobtap`: plugins of a real instance, as their author works on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flux_trio.cli.admin.plugin_skeleton import skeleton
from tests.support.instance import RunningInstance, running_instance

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def instance(own_instance: RunningInstance) -> RunningInstance:
    return own_instance


HOLD = """
from flux_trio import jobtap

@jobtap.on("job.validate")
def validate(job):
    job.jobspec.tasks[0].count["per_slot"]
    if job.raw_jobspec["attributes"]["system"].get("note"):
        raise jobtap.Reject("not today")

@jobtap.on("job.state.priority")
def priority(job):
    return PRIORITY

running = jobtap.counter(jobtap.State.RUN)

@jobtap.service("greet", owner_only=False)
async def greet(request):
    return {"hello": request.payload["name"]}
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """An instance that has a plugin in its state directory, and removes one at start."""
    statedir = tmp_path_factory.mktemp("jobtap")
    (statedir / "jobtap").mkdir()
    (statedir / "jobtap" / "from_config.py").write_text(HOLD.replace("PRIORITY", "None"))
    config = (
        "[exec]\nsimulate = true\n[job-manager]\nplugins = [\n"
        '  {remove = ".begin-time"},\n  {load = "from-config", conf = {x = 1}},\n]\n'
    )
    with running_instance(statedir, config) as running:
        yield running


def error(instance: RunningInstance, *args: str | Path) -> str:
    done = instance.invoke("jobtap", *args)
    assert done.exit_code == 1, done.output
    return done.stderr


def test_configured_plugins_are_there_and_builtins_are_hidden_unless_asked(
    given: RunningInstance,
) -> None:
    assert given.ok("jobtap", "list") == "from-config\n"
    names = given.ok("jobtap", "list", "-a").split()
    assert names[0] == ".priority-default"
    assert ".begin-time" not in names
    assert names[-1] == "from-config"
    told = json.loads(given.ok("jobtap", "query", "from-config"))
    assert told["path"].endswith("/jobtap/from_config.py")
    assert told["counters"] == {"running": {}}


def test_plugin_is_loaded_asked_broken_mended_and_removed(
    given: RunningInstance, tmp_path: Path
) -> None:
    path = tmp_path / "site_rules.py"
    path.write_text(HOLD.replace("PRIORITY", '"high"'))
    given.ok("jobtap", "load", path, "limit=3", "word=x", 'more={"a": [1]}')
    assert "already loaded" in error(given, "load", path)
    broken = given.submitted("--flags=waitable", "true")
    rejected = given.invoke("submit", "--setattr=system.note=1", "true")
    assert "not today" in rejected.stderr
    reason = given.ok("jobs", "-no", "{state} {annotations.waiting}")
    log = given.ok("dmesg")
    assert f"plugin site-rules failed in job.state.priority for job {broken}" in log
    assert "expected a priority from 0 to 4294967295 or UNAVAILABLE, got 'high'" in log
    assert reason.startswith("PRIORITY")

    path.write_text(HOLD.replace("PRIORITY", "77"))
    given.ok("jobtap", "load", "--remove", "site-rules", path)
    given.ok("job", "attach", broken)
    assert '"priority":77' in given.ok("job", "eventlog", "-f", "json", broken)
    told = json.loads(given.ok("jobtap", "query", "site-rules"))
    assert told["hooks"]["job.state.priority"]["count"] >= 1

    given.ok("jobtap", "remove", "site-*")
    assert given.ok("jobtap", "list") == "from-config\n"
    assert "site-rules is not loaded" in error(given, "query", "site-rules")
    assert "no plugin matches site-rules" in error(given, "remove", "site-rules")


def test_what_cannot_be_loaded_is_said_with_the_rule(
    given: RunningInstance, tmp_path: Path
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "from flux_trio import jobtap\n@jobtap.on('job.state.running')\ndef f(job): pass\n"
    )
    assert "plugin bad: no hook is called job.state.running" in error(given, "load", path)
    unknown = error(given, "load", "nothing")
    assert "no plugin nothing: looked for nothing.py in" in unknown
    assert f"{given.statedir}/jobtap" in unknown  # also where a response is too short for all of it
    assert "expected KEY=VALUE, got 'x'" in error(given, "load", path, "x")


def test_plugin_that_is_configured_wrongly_keeps_the_instance_from_starting(tmp_path: Path) -> None:
    config = tmp_path / "flux.toml"
    config.write_text('[job-manager]\nplugins = [{load = "nothing"}]\n')
    command = [
        sys.executable,
        "-m",
        "flux_trio",
        "start",
        "--config",
        config,
        "--statedir",
        tmp_path,
    ]
    done = subprocess.run([*map(str, command), "true"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "job-manager.plugins[0]: no plugin nothing: looked for" in done.stderr
    assert "Traceback" not in done.stderr


# --- new


def test_what_new_writes_works_as_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flux_trio", "jobtap", "new", "my-site-rules"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == "my_site_rules.py\ntest_my_site_rules.py\n"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_new_overwrites_nothing_and_wants_a_name(given: RunningInstance, tmp_path: Path) -> None:
    given.ok("jobtap", "new", "a-plugin", "--dir", tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(skeleton("a-plugin"))
    assert "a_plugin.py exists" in error(given, "new", "a-plugin", "--dir", tmp_path)
    assert "expected a name of small letters" in error(given, "new", "A/b")
