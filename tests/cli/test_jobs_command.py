"""Which jobs `flux-trio jobs` lists, in which order and form, on a real instance."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def listed(instance: RunningInstance, *args: str) -> list[str]:
    return instance.ok("jobs", "-n", "-o", "{id}", *args).split()


def test_jobs_can_be_sorted(instance: RunningInstance) -> None:
    jobs = [
        instance.simulated(1, "--urgency=hold", f"--job-name={name}", f"-n{n}")
        for name, n in (("sorted-b", 1), ("sorted-a", 2), ("sorted-b", 3))
    ]
    assert listed(instance, "--sort=name,-ntasks") == [jobs[1], jobs[2], jobs[0]]
    by_format = instance.ok("jobs", "-no", "sort:-ntasks {id}").split()
    assert by_format == [jobs[2], jobs[1], jobs[0]]
    over_format = instance.ok("jobs", "-no", "sort:-ntasks {id}", "--sort=ntasks").split()
    assert over_format == jobs
    assert instance.refused("jobs", "--sort=nosuch") == "Invalid sort key: nosuch"
    instance.cancel_all()


def test_instance_is_asked_once_who_the_user_is(instance: RunningInstance) -> None:
    def asked() -> int:
        requests = json.loads(instance.ok("module", "stats", "broker"))["requests"]
        return int(requests.get("broker.info", 0))

    for args, times in (([], 1), (["-R"], 1), (["-A"], 0), (["-A", "-R"], 1), (["-q", "all"], 1)):
        before = asked()
        instance.ok("jobs", *args)
        assert (args, asked() - before) == (args, times)


def test_since_lists_what_ended_since(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    assert jobid in listed(instance, "--since=-1h")
    assert jobid not in listed(instance, "--since=now")
    assert jobid in listed(instance, "--since=yesterday", "-f", "completed")
    assert jobid not in listed(instance, "--since=yesterday", "-f", "running")
    assert instance.refused("jobs", "--since=+1h") == "--since=+1h appears to be in the future"


def test_jobs_are_chosen_by_where_they_run(instance: RunningInstance) -> None:
    on_one = instance.over(
        instance.simulated(0.01, "-N1", "--requires=host:node1", "--job-name=there")
    )
    for there in ("1", "node1", "0-1", "node[1-5]"):
        assert on_one in listed(instance, "-a", "--name=there", "-i", there)
    for elsewhere in ("0", "node0", "node[2-9]"):
        assert on_one not in listed(instance, "-a", "--name=there", "-i", elsewhere)


def test_named_formats_are_listed_and_can_be_added(
    instance: RunningInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flux").mkdir()
    path = tmp_path / "flux" / "flux-jobs.toml"
    path.write_text('[formats.mine]\nformat = "{name} {id}"\ndescription = "Mine"\n')
    jobid = instance.over(instance.simulated(0.01, "--job-name=called"))
    assert instance.ok("jobs", "-n", "-o", "mine", jobid) == f"called {jobid}\n"
    told = instance.ok("jobs", "-o", "help")
    assert re.search(r"(?m)^  mine +Mine$", told)
    assert re.search(r"(?m)^  endreason +Why each job ended$", told)
    config = instance.ok("jobs", "-o", "get-config=mine")
    assert 'format = "{name} {id}"' in config
    monkeypatch.setenv("FLUX_JOBS_FORMAT_DEFAULT", "{state}")
    assert instance.ok("jobs", "-n", jobid) == "INACTIVE\n"
    path.write_text("[formats.mine]\n")
    wrong = instance.invoke("jobs", "-o", "mine")
    assert (wrong.exit_code, str(path) in wrong.stderr) == (1, True)
    assert instance.invoke("jobs", "-o", "get-config=nosuch").exit_code == 1


@pytest.mark.parametrize("form", ["default", "long", "deps", "endreason"])
def test_every_named_format_can_be_shown(instance: RunningInstance, form: str) -> None:
    jobid = instance.over(instance.simulated(0.01))
    header, line = instance.ok("jobs", "-o", form, jobid).splitlines()
    assert header.split()[0] == "JOBID"
    assert line.split()[0] == jobid


def test_lines_can_be_cut(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    assert instance.ok("jobs", "-n", "-w", "4", "-o", "{id.dec:>20}", jobid) == "    \n"


def test_colours_are_for_terminals_or_on_demand(instance: RunningInstance) -> None:
    jobid = instance.over(instance.simulated(0.01))
    assert "\x1b" not in instance.ok("jobs", jobid)
    assert "\x1b[32m\x1b[1m" in instance.ok("jobs", "--color=always", jobid)
    assert "\x1b" not in instance.ok("jobs", "--color=never", jobid)


def test_stats_come_before_the_list_or_alone(instance: RunningInstance) -> None:
    instance.cancel_all()
    text = r"\d+ running, \d+ completed, \d+ failed, \d+ pending, \d+ inactive purged\n"
    alone = instance.invoke("jobs", "--stats-only")
    assert (alone.exit_code, bool(re.fullmatch(text, alone.stdout))) == (1, True)
    held = instance.simulated(1, "--urgency=hold")
    told = instance.ok("jobs", "--stats", "-o", "{id}").splitlines()
    assert re.match(r"0 running, \d+ completed, \d+ failed, 1 pending", told[0])
    assert told[1:] == ["JOBID", held]
    assert instance.invoke("jobs", "--stats-only").exit_code == 0
    assert (
        instance.refused("jobs", "--stats", "--json")
        == "--json incompatible with --stats or --stats-only"
    )
    instance.cancel_all()


def test_why_a_job_waits_is_shown(instance: RunningInstance) -> None:
    """The scheduler's annotations (27.annotate), and what the job itself says."""
    instance.cancel_all()
    running = instance.simulated(1000, "-N2", "-t", "1h")
    instance.ok("job", "wait-event", "-q", running, "start")
    held = instance.simulated(1, "--urgency=hold")
    resources = instance.ok("jobs", "-n", "-o", "{sched.resource_summary}", running)
    assert resources.strip()
    assert json.loads(instance.ok("jobs", "--json", running))["annotations"]["sched"]
    assert instance.ok("jobs", "-n", "-o", "{contextual_info}", held) == "held\n"
    instance.cancel_all()


def test_a_state_and_all_states_at_once_is_remarked(tmp_path: Path) -> None:
    runner = click.testing.CliRunner(env={"FLUX_TRIO_STATEDIR": str(tmp_path)})
    done = runner.invoke(main, ["jobs", "-a", "-f", "running"], prog_name="flux-trio")
    assert done.stderr.startswith("flux-trio jobs: Both -a and --filter specified, ignoring -a\n")
