from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click.testing
import pytest

from flux_trio.cli import main
from tests.support.instance import DEADLINE_S, flux_trio

WORKLOAD = Path(__file__).parents[1] / "data" / "workloads" / "lassen-100.csv"
MACHINE = ("--nodes", "792", "--cores", "40", "--gpus", "4")


def simulate(*args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["simulate", *map(str, args)], prog_name="flux-trio")


def test_a_run_is_told_in_figures() -> None:
    result = simulate(WORKLOAD, *MACHINE, "--limit", 10)
    assert result.exit_code == 0
    names = [line[:22].strip() for line in result.stdout.splitlines()]
    assert names == [
        "jobs",
        "completed",
        "timed out",
        "makespan",
        "mean wait",
        "95th percentile wait",
        "mean bounded slowdown",
        "utilisation",
        "depth",
    ]
    assert result.stderr == ""  # a bar is for terminals


def test_json_has_the_figures_in_seconds_and_repeats() -> None:
    first, second = (simulate(WORKLOAD, *MACHINE, "--limit", 10, "--json") for _ in range(2))
    assert first.stdout == second.stdout
    figures = json.loads(first.stdout)
    assert figures["jobs"] == 10
    assert figures["depth"] == "cores"
    assert sum(figures["outcomes"].values()) == 10
    assert figures["makespan_s"] > 0
    assert 0 < figures["utilisation"] < 1


def test_what_runs_is_told_and_can_be_asked_for(tmp_path: Path) -> None:
    waits = tmp_path / "waits.py"
    waits.write_text(
        "from flux_trio import jobtap\n"
        "class Waits(jobtap.Plugin):\n"
        "    @jobtap.on('job.validate')\n"
        "    async def validate(self, job: jobtap.Job) -> None: ...\n"
    )
    some = (WORKLOAD, *MACHINE, "--limit", 3)
    assert simulate(*some).stdout.splitlines()[-1].split() == ["depth", "cores"]
    assert simulate(*some, "--depth", "stack").stdout.splitlines()[-1].split() == ["depth", "stack"]
    assert simulate(*some, "--plugin", waits).stdout.splitlines()[-1].split() == ["depth", "stack"]
    refused = simulate(*some, "--plugin", waits, "--depth", "cores")
    assert refused.exit_code == 1
    assert refused.stderr == "flux-trio simulate: ERROR: plugin waits may wait\n"


@pytest.mark.breaks("invariant.counters")
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_the_first_warnings_and_errors_of_the_log_are_told(tmp_path: Path, depth: str) -> None:
    workload = tmp_path / "one_a_minute.csv"
    rows = (f"{i},1,4,01:00:00,2020-01-02T00:{i:02}:00,00:30:00" for i in range(30))
    workload.write_text("\n".join(["JobID,NNodes,NCPUS,Timelimit,Submit,Elapsed", *rows]))
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from flux_trio import jobtap\n"
        "class Wrong(jobtap.Plugin):\n"
        "    begun = jobtap.counter(jobtap.State.RUN, key=lambda job: job.start_requested)\n"
    )
    machine = ("--nodes", 4, "--cores", 4, "--depth", depth)
    alone = simulate(workload, *machine, "--plugin", wrong)
    assert alone.exit_code == 0
    told = alone.stderr.splitlines()
    assert len(told) == 11
    assert told[0] == (
        "flux-trio simulate: job-manager.err: plugin wrong: "
        "counter begun of False had 1, there are 0"
    )
    assert re.fullmatch("flux-trio simulate: [0-9]+ more warnings and errors were logged", told[-1])
    compared = simulate(workload, *machine, "--plugin", f"none,{wrong}").stderr.splitlines()
    assert compared == [each.replace("simulate: ", "simulate: wrong: ") for each in told]


def test_a_job_that_does_not_fit_is_counted() -> None:
    result = simulate(WORKLOAD, "--nodes", 1, "--cores", 4, "--limit", 3)
    assert "  denied               3\n" in result.stdout
    assert "mean wait              -\n" in result.stdout


def test_a_workload_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    workload = tmp_path / "w.csv"
    workload.write_text("JobID\n1\n")
    result = simulate(workload, *MACHINE)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"flux-trio simulate: ERROR: {workload}, line 1: expected")


PRIORITIES = """
from flux_trio import jobtap


class Favour(jobtap.Plugin):
    name = "NAME"

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        return 2000 - job.userid if self.conf.get("backwards") else job.userid

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, object]:
        return {"shares": {"1001": 3, "1002": 1}}
"""


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(b"\xce\x00")
    result = simulate(noise, *MACHINE)
    assert result.exit_code == 1
    said = f"flux-trio simulate: ERROR: {noise}: expected text, got bytes that are 0\n"
    assert result.stderr == said


def test_a_log_as_it_is_distributed_is_read_and_its_gaps_are_said(tmp_path: Path) -> None:
    """Compressed, in Latin-1, with a job of unknown run time and one without a user."""
    log = tmp_path / "log.swf.gz"
    lines = [
        "; Universit\u00e9",
        "1 0 -1 -1 4 240000 -1 4 345600 -1 -1 7 1 1 1 1 -1 -1",
        "2 0 -1 10 4 -1 -1 4 100 -1 1 -1 1 1 1 1 -1 -1",
    ]
    log.write_bytes(gzip.compress("\r\n".join(lines).encode("latin-1")))
    result = simulate(log, "--nodes", "4", "--cores", "4", "--users", "column", "--json")
    assert (result.exit_code, json.loads(result.stdout)["makespan_s"]) == (0, 345600.0)
    name = f"flux-trio simulate: {log}"
    assert result.stderr.splitlines() == [
        f"{name}: the log is not in UTF-8: it is read as Latin-1",
        f"{name}: unknown run time, so the requested time is taken: "
        "1 of 2 rows, the first in line 2",
        f"{name}: unknown user, named unknown: 1 of 2 jobs",
    ]


def test_plugins_are_compared_in_one_report(tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text(
        f'[[job-manager.plugins]]\nload = "{tmp_path}/two.py"\nconf = {{ backwards = true }}\n'
    )
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(PRIORITIES.replace("NAME", name))
    report = tmp_path / "report.html"
    plugins = ("--plugin", tmp_path / "one.py", "--plugin", tmp_path / "two.py")
    small = ("--nodes", 4, "--cores", 40, "--gpus", 4, "--limit", 60)
    options = ("--users", 2, "--config", config, "--report", report, "--json")
    result = simulate(WORKLOAD, *small, *plugins, *options)
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)) == ["one", "two"]
    page = report.read_text()
    assert list(charts_of(page)["waits-user"]["data"][0]["x"]) == ["user1", "user2"]
    shares = charts_of(page)["shares-user"]["data"]
    assert [each["name"] for each in shares] == ["one", "two", "owed by two"]
    assert shares[-1]["y"] == [75, 25]


def charts_of(page: str) -> dict[str, Any]:
    """The charts in the JSON of a report."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


def test_policies_and_plugins_are_compared_with_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(PRIORITIES.replace("NAME", "one"))
    report = tmp_path / "report.html"
    result = simulate(
        *(WORKLOAD, "--nodes", 4, "--cores", 40, "--gpus", 4, "--limit", 40, "--users", 2),
        *("--policy", "fifo,easy", "--plugin", f"none,{tmp_path}/one.py", "--json"),
        *("--baseline", "easy, no plugin", "--report", report, "--seed", 5),
    )
    assert result.exit_code == 0, result.output
    others = ["fifo, no plugin", "fifo, one", "easy, one"]
    assert list(json.loads(result.stdout)) == ["easy, no plugin", *others]
    page = report.read_text()
    changes = charts_of(page)["changes-user"]
    assert [each["name"] for each in changes["data"]] == others
    assert changes["layout"]["yaxis"]["title"]["text"] == "mean wait against easy, no plugin [%]"
    for option in ("--seed", "--nodes", "--policy", "fifo, easy"):
        assert f"<td>{option}</td>" in page
    assert "src=" not in page.replace(".src=", "")  # nothing is loaded from elsewhere


def test_other_runs_are_kept_when_one_fails(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    (tmp_path / "bad.py").write_text("this is no Python\n")
    plugins = f"none,{tmp_path}/bad.py"
    result = simulate(
        WORKLOAD, *MACHINE, "--limit", 3, "--plugin", plugins, "--report", report, "--json"
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["no plugin"]["jobs"] == 3
    assert "ERROR: bad: " in result.stderr
    assert "Runs that failed" in report.read_text()


def test_trace_of_a_run_is_judged(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = simulate(WORKLOAD, *MACHINE, "--limit", 5, "--trace", trace)
    assert result.exit_code == 0, result.output
    judged = click.testing.CliRunner().invoke(main, ["check", str(trace)])
    assert judged.exit_code == 0, judged.output
    assert "RFC 27     kept" in judged.output


def test_trace_is_of_one_run_and_must_be_writable(tmp_path: Path) -> None:
    result = simulate(WORKLOAD, *MACHINE, "--policy", "fifo,easy", "--trace", tmp_path / "t")
    assert result.exit_code == 2
    assert "--trace: expected one run, got fifo, easy" in result.stderr
    result = simulate(WORKLOAD, *MACHINE, "--limit", 1, "--trace", tmp_path)
    assert result.stderr == f"flux-trio simulate: ERROR: {tmp_path}: Is a directory\n"


def test_trace_that_is_not_complete_fails_the_command_after_the_figures() -> None:
    result = simulate(WORKLOAD, *MACHINE, "--limit", 1, "--trace", "/dev/full")
    assert result.exit_code == 1
    assert result.stdout.startswith("jobs                   1\n")
    assert result.stderr == (
        "flux-trio simulate: ERROR: /dev/full: the trace is incomplete: No space left on device\n"
    )


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ((1_000_000, 40, 0), "'--nodes': expected at most 262144: got 1000000"),
        ((1, 10**11, 0), "'--cores': expected at most 4194304: got 100000000000"),
        ((1, 1, 10**11), "'--gpus': expected at most 4194304: got 100000000000"),
        ((2**18, 2**12, 1), "expected at most 1073741824 cores and GPUs of all nodes: got 10740"),
    ],
)
def test_machine_that_is_too_large_is_wrong_usage(machine: tuple[int, int, int], said: str) -> None:
    nodes, cores, gpus = machine
    result = simulate(WORKLOAD, "--nodes", nodes, "--cores", cores, "--gpus", gpus, "--limit", 1)
    assert result.exit_code == 2
    assert said in result.stderr


def test_baseline_and_policies_that_are_unknown_are_wrong_usage() -> None:
    result = simulate(WORKLOAD, *MACHINE, "--baseline", "best")
    assert result.exit_code == 2
    assert "--baseline: expected one of builtin plugins: got best" in result.stderr
    result = simulate(WORKLOAD, *MACHINE, "--policy", "fifo,lifo")
    assert result.exit_code == 2
    assert 'expected one of fifo, easy, conservative, or FILE.py:Class, got "lifo"' in result.stderr


def test_users_are_a_number_or_the_logs(tmp_path: Path) -> None:
    assert simulate(WORKLOAD, *MACHINE, "--users", "many").exit_code == 2
    result = simulate(WORKLOAD, *MACHINE, "--users", "column")
    assert result.exit_code == 1
    assert "expected a column User, or an SWF log" in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"\xce\x00", "expected text in UTF-8"),
        (b"[queue.debug]\n", "expected"),
    ],
)
def test_a_configuration_that_cannot_be_read_or_is_wrong_is_wrong_usage(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    config = tmp_path / "site.toml"
    if content is not None:
        config.write_bytes(content)
    result = simulate(WORKLOAD, *MACHINE, "--config", config)
    assert result.exit_code == 2
    assert f"'--config': {config}: {said}" in result.stderr


def test_plugin_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    result = simulate(WORKLOAD, *MACHINE, "--limit", 1, "--plugin", tmp_path / "none.py")
    assert result.exit_code == 1
    assert "none.py: there is no such file" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("waits", ["", "async "])
def test_ctrl_c_while_a_plugin_loops_ends_the_process_by_sigint(tmp_path: Path, waits: str) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    plugin = tmp_path / "loops.py"
    plugin.write_text(
        "from flux_trio import jobtap\n"
        "class Loops(jobtap.Plugin):\n"
        "    @jobtap.on('job.validate')\n"
        f"    {waits}def validate(self, job):\n"
        f"        open({str(told)!r}, 'w').close()\n"
        "        while True: pass\n"
    )
    command = [sys.executable, "-m", "flux_trio", "simulate", WORKLOAD, *MACHINE, "--limit", "1"]
    with subprocess.Popen(
        [*command, "--plugin", plugin], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        told.read_text()  # waits until the plugin has opened it
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGINT
    assert stdout == ""
    assert "Traceback" not in stderr


def test_two_versions_of_a_file_are_compared_and_odd_shares_are_none(tmp_path: Path) -> None:
    odd = PRIORITIES.replace('"1001": 3', '"1001": "a"')
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(odd.replace("NAME", "one"))
    plugins = [part for name in ("old", "new") for part in ("--plugin", tmp_path / name / "one.py")]
    options = ("--limit", 3, "--users", 1, "--json")
    result = simulate(WORKLOAD, *MACHINE, *options, *plugins)
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)) == [
        str(tmp_path / each / "one.py") for each in ("old", "new")
    ]


def test_report_without_plotly_is_refused_before_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    result = simulate("/nonexistent.csv", *MACHINE, "--report", "x.html")
    assert result.exit_code == 1
    assert result.stderr == (
        "flux-trio simulate: ERROR: --report needs the package plotly: "
        "pip install 'flux-trio[report]'\n"
    )


@pytest.mark.gate
@pytest.mark.real
def test_plugin_that_loops_ends_the_command_with_the_other_figures(tmp_path: Path) -> None:
    endless, config = tmp_path / "endless.py", tmp_path / "config.toml"
    endless.write_text(
        "from flux_trio import jobtap\n\n"
        "@jobtap.on('job.state.run')\n"
        "def run(job):\n"
        "    while True:\n"
        "        pass\n"
    )
    config.write_text('[job-manager]\nplugin-loop-limit = "1s"\n')
    done = flux_trio(
        *("simulate", WORKLOAD, *MACHINE, "--limit", "5"),
        *("--plugin", f"none,{endless}", "--config", config),
    )
    assert done.returncode == 1
    assert done.stdout.startswith("no plugin:\njobs ")
    assert "plugin endless: job.state.run for job " in done.stderr
    assert "has used 1 s of CPU time in one call, which ends the process" in done.stderr


RAISES = """
from flux_trio.policies import Decisions

class Bad:
    def __init__(self, state): self.state = state
    def arrived(self, job): ...
    def left(self, job): ...
    def freed(self, grant): ...
    def reshaped(self): ...
    def decide(self, now):
        for job in self.state.queue:
            job.nope
        return Decisions()
"""


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_policy_that_raises_fails_its_run_alone(tmp_path: Path, depth: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(RAISES)
    policies = f"{bad}:Bad,fifo"
    result = simulate(*(WORKLOAD, *MACHINE, "--limit", 5, "--policy", policies, "--depth", depth))
    assert result.exit_code == 1
    assert result.stdout.startswith("fifo:\njobs  ")
    if depth == "cores":
        assert f'File "{bad}", line 12, in decide' in result.stderr
    assert "AttributeError: 'Job' object has no attribute 'nope'" in result.stderr
    assert len(result.stderr.splitlines()) < 12
