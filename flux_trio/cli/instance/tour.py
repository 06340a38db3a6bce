"""The demonstration `flux-trio demo`: an instance, used as a first user would.

Each step is a command that could be typed, and is printed with its output. Assumes nothing of the
instance but that it may run jobs; each job uses at most one core of a node.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.client import STATEDIR_VARIABLE, TOKEN_VARIABLE, URI_FILE, URI_VARIABLE
from flux_trio.process.console import own_command

COMMAND: Final = own_command("flux_trio")
PATIENCE_S: Final = 300.0  # a busy machine is slow: only a command that hangs takes so long
POLL_S: Final = 0.02
NODES: Final = 4  # of an instance of the demonstration's own

TASK: Final = ("sh", "-c", "echo task $FLUX_TASK_RANK of $FLUX_JOB_SIZE in job $FLUX_JOB_ID")
NORMAL_EVENTS: Final = "submit validate depend priority alloc start finish release free clean"


class Tour:
    """Runs commands against the instance that `environment` names; remembers what was checked."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._kept: list[str] = []
        self._broken: list[str] = []

    def run(self, *words: str, show: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one flux-trio command, and print it with its output."""
        result = subprocess.run(
            [*COMMAND, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if show:
            click.echo(f"\n$ flux-trio {shlex.join(words)}")
            click.echo((result.stdout + result.stderr).rstrip())
        return result

    def submit(self, *words: str) -> str:
        """Submit a job, and return its id. Raises CommandError if it is refused."""
        result = self.run("submit", *words)
        if result.returncode:
            raise CommandError(f"the instance refuses a job: {result.stderr.strip()}")
        return result.stdout.strip()

    def await_event(self, job: str, event: str) -> None:
        self.run("job", "wait-event", job, event, show=False)

    def check(self, what: str, holds: bool) -> None:
        (self._kept if holds else self._broken).append(what)

    def report(self) -> int:
        """Print what was checked; return 0 if all of it holds."""
        if self._broken:
            click.echo(f"\nNOT SO: {'; '.join(self._broken)}")
            return 1
        click.echo(f"\nChecked: {'; '.join(self._kept)}.")
        return 0


def tour_of(environment: Mapping[str, str]) -> int:
    """Show the instance that `environment` names; return 0 if all went as it should."""
    tour = Tour(environment)
    _show(tour)
    return tour.report()


def tour_of_own_instance(environment: Mapping[str, str]) -> int:
    """Start an instance, show it, restart it; return 0 if all went as it should."""
    with tempfile.TemporaryDirectory(
        prefix="flux-trio-demo-", ignore_cleanup_errors=True
    ) as directory:
        inside = {**environment, STATEDIR_VARIABLE: directory}
        for name in (URI_VARIABLE, TOKEN_VARIABLE):
            inside.pop(name, None)
        tour = Tour(inside)
        with _instance(tour, Path(directory), inside):
            jobs = _show(tour)
        with _instance(tour, Path(directory), inside):
            table = tour.run("jobs", "-a", "-q", "all").stdout
            tour.check(
                "after a restart every job is still there", all(job in table for job in jobs)
            )
        return tour.report()


@contextmanager
def _instance(tour: Tour, statedir: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run `flux-trio start` in the background during the block."""
    words = ["start", "-s", str(NODES), "--statedir", str(statedir)]
    click.echo(f"\n$ flux-trio {' '.join(words)} &")
    process = subprocess.Popen(
        [*COMMAND, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # ctrl-C is for this command, which then ends the instance
    )
    try:
        ends = time.monotonic() + PATIENCE_S
        while not (statedir / URI_FILE).exists():
            if process.poll() is not None or time.monotonic() > ends:
                raise CommandError("the instance did not start")
            time.sleep(POLL_S)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        tour.check("the instance stops in good order", process.wait(timeout=PATIENCE_S) == 0)
        click.echo("\n(the instance has stopped)")


def _show(tour: Tour) -> list[str]:
    """Run jobs of each kind, look at them, and reload the scheduler; return the jobs."""
    tour.run("resource", "list")
    nnodes = tour.run("resource", "list", "-n", "-s", "all", "-o", "{nnodes}", show=False)
    nodes = nnodes.stdout.strip() or "1"
    jobs = {
        "hostname": tour.submit("hostname"),
        "multi-node": tour.submit("-N", nodes, "-n", nodes, *TASK),
        "failing": tour.submit("sh", "-c", "echo it went wrong >&2; exit 3"),
        "canceled": tour.submit("sleep", "300"),
        "too long": tour.submit("-t", "1s", "sleep", "300"),
    }
    tour.run("cancel", "--message", "changed my mind", jobs["canceled"])
    for job in jobs.values():
        tour.await_event(job, "clean")
    _look_at(tour, jobs, int(nodes))
    return [*jobs.values(), _reload_scheduler(tour)]


def _look_at(tour: Tour, jobs: dict[str, str], nodes: int) -> None:
    table = tour.run("jobs", "-a").stdout
    tour.check("every job is in the table", all(job in table for job in jobs.values()))
    output = tour.run("job", "attach", jobs["multi-node"]).stdout
    tour.check(f"{nodes} tasks on {nodes} nodes wrote output", output.count("task ") == nodes)
    eventlog = tour.run("job", "eventlog", jobs["multi-node"]).stdout
    names = " ".join(line.split()[1] for line in eventlog.splitlines())
    tour.check("its eventlog is in order", names == NORMAL_EVENTS)
    tour.run("job", "info", jobs["multi-node"], "R")
    expected = dict.fromkeys(jobs, "COMPLETED")
    expected |= {"failing": "FAILED", "canceled": "CANCELED", "too long": "TIMEOUT"}
    listed = json.loads(tour.run("jobs", "--json", *jobs.values(), show=False).stdout)["jobs"]
    ends = [job["result"] for job in listed]
    tour.check("each job ended as it should", sorted(ends) == sorted(expected.values()))


def _reload_scheduler(tour: Tour) -> str:
    """Reload the scheduler while a job runs; return the job, which ends when a file appears."""
    with tempfile.TemporaryDirectory(prefix="flux-trio-demo-") as directory:
        go = Path(directory, "go")
        waits = "until test -e $0; do sleep 0.1; done; echo still here"
        job = tour.submit("sh", "-c", waits, str(go))
        tour.await_event(job, "start")
        tour.run("module", "reload", "sched")
        running = tour.run("jobs", "-n").stdout
        tour.check("a job runs on while the scheduler is reloaded", job in running)
        go.touch()
        attached = tour.run("job", "attach", job)
        tour.check("and ends well", (attached.stdout, attached.returncode) == ("still here\n", 0))
        tour.await_event(job, "clean")
    return job
