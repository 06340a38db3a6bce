"""The demonstration behind `make demo`: a real instance, used as a first user would.

Every step is a command that could be typed; each is printed with what it said. It ends with a
line of what was checked, and with exit code 1 if any of it was not so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JOBSPECS = Path(__file__).parent / "data" / "jobspecs"
COMMAND = [sys.executable, "-m", "flux_trio"]
PATIENCE_S = 300.0  # a busy machine is slow, not broken: only a command that hangs takes so long

CONFIG = """\
# Four execution targets that this machine poses as, each with 8 cores and 4 gpus.
[[resource.config]]
hosts = "node[0-3]"
cores = "0-7"
gpus = "0-3"
"""

# RFC 25's examples name programs and directories of their authors; these stand in for them.
STAND_IN = ["sh", "-c", "echo task $FLUX_TASK_RANK of $FLUX_JOB_SIZE in job $FLUX_JOB_ID"]
NORMAL_EVENTS = "submit validate depend priority alloc start finish release free clean"
EXAMPLES = ["example1", "use-case-2.1", "use-case-2.2", "use-case-2.3", "use-case-2.4"]


class Demo:
    """Runs commands against one instance and remembers what was checked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = os.environ | {"FLUX_TRIO_STATEDIR": str(directory)}
        self.kept: list[str] = []
        self.broken: list[str] = []

    def run(self, *words: str, show: bool = True) -> subprocess.CompletedProcess[str]:
        """One flux-trio command; what it prints is shown."""
        result = subprocess.run(
            [*COMMAND, *words],
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if show:
            print(f"\n$ flux-trio {' '.join(words)}")
            print((result.stdout + result.stderr).rstrip())
        return result

    def submit(self, *words: str) -> str:
        """Submit a job; its id."""
        return self.run("submit", *words).stdout.strip()

    def check(self, what: str, so: bool) -> None:
        """Remember whether `what` was so."""
        (self.kept if so else self.broken).append(what)

    @contextmanager
    def instance(self) -> Iterator[None]:
        """`flux-trio start` in the background, stopped in good order at the end."""
        words = ["start", "--config", str(self.directory / "demo.toml")]
        words += ["--statedir", str(self.directory)]
        print(f"\n$ flux-trio {' '.join(words)} &")
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL)
        try:
            self._wait_until_up(process)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            self.check("the instance stops in good order", process.wait(timeout=PATIENCE_S) == 0)
            print("\n(the instance has stopped)")

    def _wait_until_up(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.directory / "uri").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the instance did not come up")
            time.sleep(0.02)

    def result(self) -> int:
        """The last line; 0 when everything was so."""
        if self.broken:
            print(f"\nNOT SO: {'; '.join(self.broken)}")
            return 1
        print(f"\nChecked: {'; '.join(self.kept)}.")
        return 0


def example_jobspec(name: str, directory: Path) -> Path:
    """One of RFC 25's example jobspecs, made to run anywhere, as a file."""
    jobspec: dict[str, Any] = json.loads((JOBSPECS / f"rfc25-{name}.json").read_text())
    system = jobspec["attributes"]["system"]
    system["cwd"] = "/"
    system["environment"] = {"PATH": os.environ["PATH"]}
    for task in jobspec["tasks"]:
        if task["command"] != ["hostname"]:
            task["command"] = STAND_IN
    path = directory / f"{name}.json"
    path.write_text(json.dumps(jobspec))
    return path


def wait_clean(demo: Demo, job: str) -> None:
    """Wait until the job is over."""
    demo.run("job", "wait-event", job, "clean", show=False)


def real_work(demo: Demo) -> dict[str, str]:
    """Submit what a first user would; the ids by what they are."""
    jobs = {}
    for name in EXAMPLES:
        jobspec = example_jobspec(name, demo.directory)
        jobs[name] = demo.submit("--jobspec", str(jobspec))
    jobs["multi-node"] = demo.submit("-N", "4", "-n", "8", *STAND_IN)
    jobs["failing"] = demo.submit("sh", "-c", "echo it went wrong >&2; exit 3")
    jobs["cancelled"] = demo.submit("sleep", "300")
    jobs["too long"] = demo.submit("-t", "1s", "sleep", "300")
    demo.run("cancel", "--message", "changed my mind", jobs["cancelled"])
    for job in jobs.values():
        wait_clean(demo, job)
    return jobs


def look_at_work(demo: Demo, jobs: dict[str, str]) -> None:
    """The jobs table, one eventlog, one R, some output."""
    table = demo.run("jobs", "-a").stdout
    demo.check("every job is in the table", all(job in table for job in jobs.values()))
    attached = demo.run("job", "attach", jobs["multi-node"])
    demo.check("8 tasks on 4 nodes wrote output", attached.stdout.count("task ") == 8)
    eventlog = demo.run("job", "eventlog", jobs["multi-node"]).stdout
    names = " ".join(line.split()[1] for line in eventlog.splitlines())
    demo.check("its eventlog is in order", names == NORMAL_EVENTS)
    resources = json.loads(demo.run("job", "info", jobs["multi-node"], "R").stdout)
    demo.check("R names 4 nodes", resources["execution"]["nodelist"] == ["node[0-3]"])
    check_ends(demo, jobs)


def check_ends(demo: Demo, jobs: dict[str, str]) -> None:
    """Each job ended as it should."""
    expected = dict.fromkeys(jobs, "COMPLETED")
    expected |= {"failing": "FAILED", "cancelled": "CANCELED", "too long": "TIMEOUT"}
    told = json.loads(demo.run("jobs", "-a", "--json", show=False).stdout)["jobs"]
    ends = {job["id"]: job["result"] for job in told}
    for name, end in expected.items():
        jobid = int(demo.run("job", "id", "--to=dec", jobs[name], show=False).stdout)
        demo.check(f"{name} ends as {end}", ends.get(jobid) == end)


def reload_scheduler(demo: Demo) -> str:
    """A job runs on while the scheduler is unloaded and loaded again.

    The job ends when it finds a file, which is made after the reload however long that takes.
    """
    go = demo.directory / "go"
    job = demo.submit("sh", "-c", "until test -e $0; do sleep 0.1; done; echo still here", str(go))
    demo.run("job", "wait-event", job, "start", show=False)
    demo.run("module", "reload", "sched")
    running = demo.run("jobs", "-n").stdout
    demo.check("a job runs on while the scheduler is reloaded", job in running)
    go.touch()
    attached = demo.run("job", "attach", job)
    demo.check("and ends well", attached.stdout == "still here\n" and attached.returncode == 0)
    wait_clean(demo, job)
    return job


def main() -> int:
    """The whole of it."""
    with tempfile.TemporaryDirectory(prefix="flux-trio-demo-") as name:
        demo = Demo(Path(name))
        (demo.directory / "demo.toml").write_text(CONFIG)
        with demo.instance():
            demo.run("resource", "list")
            jobs = real_work(demo)
            look_at_work(demo, jobs)
            jobs["reloaded"] = reload_scheduler(demo)
        with demo.instance():
            table = demo.run("jobs", "-a").stdout
            everyone = all(job in table for job in jobs.values())
            demo.check("after a restart every job is still there", everyone)
        return demo.result()


if __name__ == "__main__":
    raise SystemExit(main())
