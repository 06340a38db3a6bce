"""A real instance in a process of its own, as `flux-trio start` runs it, and commands for it.

Everything here is bounded by `DEADLINE_S`: what takes longer fails the test.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click.testing

from flux_trio.cli import main
from flux_trio.judge import judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.lab.properties.world_judge import LONG_TEXT
from flux_trio.trace import read_trace
from flux_trio.views import verdict_text
from tests.planter.planting import SITE
from tests.support.replayed import assert_replayed

DEADLINE_S = 300.0  # only what hangs takes so long, however busy the machine is
FLUX_TRIO = (sys.executable, "-m", "flux_trio")
ROOT = Path(__file__).parents[2]
OWN_VARIABLES = ("FLUX_TRIO_URI", "FLUX_TRIO_TOKEN", "FLUX_TRIO_STATEDIR")

# Two nodes of two cores that are both this machine; quick to kill what does not end.
TWO_NODES = """
[exec]
kill-timeout = "0.2s"
[[resource.config]]
hosts = "node[0-1]"
cores = "0-1"
[[resource.config]]
hosts = "node1"
properties = ["big"]
"""


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would lead to another instance."""
    inherited = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    places = dict.fromkeys([str(ROOT), SITE, *inherited.get("PYTHONPATH", "").split(os.pathsep)])
    path = os.pathsep.join(filter(None, places))
    return inherited | {"PYTHONPATH": path} | more


def flux_trio(
    *args: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `flux-trio args...` as a process to its end."""
    return subprocess.run(
        [*FLUX_TRIO, *map(str, args)],
        env=environment() if env is None else env,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def invoked(
    *args: str | Path, env: Mapping[str, str] | None = None, stdin: str | IO[bytes] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same in this process, which is quicker: no import, no start-up."""
    runner = click.testing.CliRunner(env=dict.fromkeys(OWN_VARIABLES) | dict(env or {}))
    done = runner.invoke(main, [str(arg) for arg in args], stdin, prog_name="flux-trio")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


class RunningInstance:
    """`flux-trio start` without a command, for `statedir`."""

    def __init__(self, statedir: Path, process: subprocess.Popen[str], announcement: str) -> None:
        self.statedir = statedir
        self.process = process
        self.announcement = announcement
        self.env = environment(FLUX_TRIO_STATEDIR=str(statedir))

    def run(self, *args: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `flux-trio args...` against this instance, as a process of its own."""
        return flux_trio(*args, env=self.env, stdin=stdin)

    def call(
        self, *args: str | Path, stdin: str | IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The same in this process."""
        return invoked(*args, env=self.env, stdin=stdin)

    def invoke(self, *args: str | Path) -> click.testing.Result:
        """As `call`, with all that click knows of it."""
        runner = click.testing.CliRunner(env=dict.fromkeys(OWN_VARIABLES) | self.env)
        return runner.invoke(main, [str(arg) for arg in args], prog_name="flux-trio")

    def ok(self, *args: str | Path) -> str:
        """What a command that must succeed prints to standard output."""
        result = self.invoke(*args)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def popen(self, *args: str | Path) -> subprocess.Popen[str]:
        """Start `flux-trio args...` against this instance; the caller ends it."""
        return subprocess.Popen(
            [*FLUX_TRIO, *map(str, args)],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """End the instance with a signal; its exit code. Jobs that run go on."""
        self.process.send_signal(signum)
        return self.process.wait(DEADLINE_S)

    def refused(self, *args: str | Path) -> str:
        """The text of the error of a command that must fail, and must print nothing else."""
        result = self.invoke(*args)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        command, _, text = result.stderr.partition(": ERROR: ")
        assert f"flux-trio {' '.join(map(str, args))} ".startswith(f"{command} ")
        return text.removesuffix("\n")

    def submitted(self, *args: str) -> str:
        """The id of a job that is submitted."""
        return self.ok("submit", *args).strip()

    def simulated(self, seconds: float, *args: str) -> str:
        """The id of a job that only pretends to run, for so long."""
        return self.submitted(*args, f"--setattr=exec.test.run_duration={seconds}", "simulated")

    def started(self, *args: str) -> str:
        """The id of one that runs on."""
        jobid = self.simulated(1000, *args)
        self.ok("job", "wait-event", "-q", jobid, "start")
        return jobid

    def over(self, jobid: str) -> str:
        """The same id, when nothing of the job is left."""
        self.ok("job", "wait-event", "-q", jobid, "clean")
        return jobid

    def cancel_all(self) -> None:
        """Leave no job behind."""
        self.ok("cancel", "--all", "--user", "all")
        for jobid in self.ok("jobs", "-A", "-q", "all", "-n", "-o", "{id.f58plain}").split():
            self.ok("job", "wait-event", "-q", jobid, "clean")


@contextmanager
def running_instance(
    statedir: Path,
    config: str = TWO_NODES,
    stderr: int | IO[Any] | None = None,
    *,
    judged: bool = True,
) -> Iterator[RunningInstance]:
    """An instance that is ready, until the block is left; then none of its jobs is.

    What it said until then is judged by the clauses of the RFCs, if its trace is to be whole.
    """
    statedir.mkdir(parents=True, exist_ok=True)
    config_file = statedir / "config.toml"
    config_file.write_text(config)
    trace = statedir / "trace.jsonl"
    process = subprocess.Popen(
        [*FLUX_TRIO, "start", "--config", config_file, "--statedir", statedir, "--trace", trace],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        instance = RunningInstance(statedir, process, _first_line(process))
        yield instance
        if process.poll() is None:
            instance.cancel_all()
            assert instance.stop() == 0
        if (
            judged and process.returncode >= 0
        ):  # else it was killed, and what it had not written is lost
            assert_kept(trace)
            assert_replayed(trace)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


def until(claim: Callable[[], bool]) -> None:
    """Look again until it holds."""
    given_up = time.monotonic() + DEADLINE_S
    while not claim():
        assert time.monotonic() < given_up
        time.sleep(0.005)


def assert_kept(trace: Path) -> None:
    """No clause is broken in the trace."""
    with trace.open() as lines:
        judgement = judge_trace(read_trace(lines), ALL_RULES, load_clauses())
    found = [each for each in judgement.violations if each.clause != LONG_TEXT]
    assert not found, verdict_text(judgement, {})


def _first_line(process: subprocess.Popen[str]) -> str:
    """What the instance says when it is ready; "" if it never is."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, f"the instance is not ready after {DEADLINE_S} s"
    return process.stdout.readline()
