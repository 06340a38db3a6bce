"""The end of an instance, whatever its plugins and jobs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent

import pytest

from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, read_trace
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    TWO_NODES,
    RunningInstance,
    environment,
    running_instance,
    until,
)

pytestmark = pytest.mark.real

# Each key of `conf` is a way to hold up the instance, in the hook of a job of this name.
HOLDS = """
    import atexit, threading, time
    import trio
    from flux_trio import jobtap
    from flux_trio.cli.instance import ending
    from flux_trio.jobtap import tasks

    tasks.END_S = $END_S
    ending.LEFT_S = 0.5  # what is waited for does not come, however long the wait

    class Holds(jobtap.Plugin):
        deadline = 0.1

        @jobtap.on("job.validate")
        async def validate(self, job):
            name = job.raw_jobspec["attributes"]["system"]["job"]["name"]
            if name in WAYS:
                await WAYS[name]()

    async def thread():
        await trio.to_thread.run_sync(time.sleep, 1000)

    async def shield():
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async def spins():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(swallow)

    async def swallow():
        while True:
            try:
                await trio.sleep(1)
            except BaseException:
                pass

    async def generator():
        async for _ in generate():
            return

    async def generate():
        try:
            yield
        finally:
            await swallow()

    async def own_thread():
        threading.Thread(target=time.sleep, args=[1000], name="mine").start()

    async def at_exit():
        atexit.register(time.sleep, 1000)

    WAYS = {each.__name__: each for each in
            (thread, shield, spins, generator, own_thread, at_exit)}
    """


class Held:
    """An instance with the plugin, and what it writes to standard error."""

    def __init__(self, instance: RunningInstance, errors: Path) -> None:
        self.instance = instance
        self._errors = errors

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def hold(self, way: str) -> str:
        """Submit a job whose hook holds the instance up; the name of its task, if there is one."""
        done = self.instance.invoke("submit", "--job-name", way, "true")
        if not done.exit_code:
            return ""
        assert "no answer in 0.1 s" in done.stderr
        jobid = done.stderr.split("for job ")[1].split(":")[0]
        return f"plugin holds: job.validate for job {jobid}"


@contextmanager
def held_instance(tmp_path: Path, *, end_s: float = 0.5, judged: bool = True) -> Iterator[Held]:
    """It waits `end_s` for the end of a task, and half a second at its own end."""
    plugin, errors = tmp_path / "holds.py", tmp_path / "errors"
    plugin.write_text(dedent(HOLDS).replace("$END_S", str(end_s)))
    with (
        errors.open("w") as stderr,
        running_instance(tmp_path / "state", TWO_NODES, stderr, judged=judged) as instance,
    ):
        instance.ok("jobtap", "load", plugin)
        yield Held(instance, errors)


def test_plugin_and_its_module_are_removed_without_the_task_that_goes_on(tmp_path: Path) -> None:
    ways = ("thread", "shield", "spins")
    with held_instance(tmp_path) as held:
        names = [held.hold(way) for way in ways]
        removed = held.instance.invoke("jobtap", "remove", "holds")
        assert removed.exit_code == 0
        assert sorted(removed.stderr.splitlines()) == sorted(
            f"flux-trio jobtap remove: {name} goes on, and was abandoned" for name in names
        )
        held.instance.ok("jobtap", "load", tmp_path / "holds.py")
        name = held.hold("spins")
        reloaded = held.instance.invoke("module", "reload", "job-manager")
        assert (reloaded.exit_code, reloaded.stderr) == (
            0,
            f"flux-trio module reload: {name} goes on, and was abandoned\n",
        )
        jobid = held.instance.submitted("true")
        held.instance.over(jobid)
        held.instance.ok("jobtap", "load", tmp_path / "holds.py")
        last = held.hold("shield")
        assert held.instance.stop() == 0
        said = held.errors.splitlines()[-1]
        assert said.startswith("flux-trio: has ended; left behind: ")
        assert all(each in said for each in (*names, name, last))
    with running_instance(tmp_path / "state") as again:
        assert again.ok("jobs", "-a", "-n", "-o", "{id} {status}") == f"{jobid} COMPLETED\n"


@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("generator", 0, "ended after 0.5 s: it waited for tasks and generators of plugins"),
        ("own_thread", 0, "has ended; left behind: thread mine"),
        ("at_exit", 1, "Timeout (0:00:00.500000)!"),
    ],
)
def test_what_a_plugin_leaves_to_python_does_not_hold_the_process(
    tmp_path: Path, way: str, code: int, said: str
) -> None:
    with held_instance(tmp_path, judged=False) as held:
        held.hold(way)
        held.instance.process.send_signal(signal.SIGTERM)
        assert held.instance.process.wait(DEADLINE_S) == code
        assert said in held.errors


def test_second_signal_ends_the_process_at_once_and_names_who_was_in_the_way(
    tmp_path: Path,
) -> None:
    with held_instance(tmp_path, end_s=DEADLINE_S, judged=False) as held:
        name = held.hold("shield")
        held.instance.process.send_signal(signal.SIGTERM)
        until(lambda: "another signal ends it at once" in held.errors)
        assert held.instance.stop() == 1
        said = held.errors.splitlines()[-1]
        assert said.startswith("flux-trio: ended at once by a second signal; it waited for the ")
        assert said.endswith(f"job-manager; {name}")


def test_second_signal_ends_a_process_whose_loop_is_held(tmp_path: Path) -> None:
    plugin = tmp_path / "loops.py"
    plugin.write_text(
        "from flux_trio import jobtap\n"
        "@jobtap.on('job.validate')\n"
        "def validate(job):\n"
        "    while True: pass\n"
    )
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        running_instance(tmp_path / "state", TWO_NODES, stderr, judged=False) as instance,
    ):
        instance.ok("jobtap", "load", plugin)
        with instance.popen("submit", "true"):
            until(lambda: "holds the instance" in errors.read_text())
            instance.process.send_signal(signal.SIGTERM)
            until(lambda: "another signal ends it at once" in errors.read_text())
            assert instance.stop() == 1
    said = errors.read_text().splitlines()[-1]
    assert said.startswith("flux-trio: ended at once by a second signal; it waited for the ")
    assert f"({plugin}:4)" in said


def test_temporary_instance_waits_for_its_jobs_on_an_event_and_without_a_scheduler(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace.jsonl"
    script = (
        'id=$("$@" submit sleep 1000) && "$@" job wait-event -q $id start && '
        '"$@" module remove sched; exit 3'
    )
    done = subprocess.run(
        [*FLUX_TRIO, "start", "--trace", trace, "sh", "-c", script, "sh", *FLUX_TRIO],
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 3
    with trace.open() as lines:
        sent = [each.message for each in read_trace(lines).records if each.kind == Kind.SEND]
    asked = [type(each) for each in sent if each is not None and each.topic == topics.JOB_RAISEALL]
    waited = [type(each) for each in sent if each is not None and each.topic == topics.JOB_DRAIN]
    assert asked == [Request, Response]
    assert waited == [Request, Response]


def test_instance_says_that_it_waits_for_jobs_and_a_second_signal_ends_it(tmp_path: Path) -> None:
    pid, config = tmp_path / "pid", tmp_path / "config.toml"
    config.write_text('[exec]\nkill-timeout = "1000s"\n')
    job = f"trap '' TERM; echo $$ >{pid}.new; mv {pid}.new {pid}; while :; do sleep 1; done"
    script = f""""$@" submit sh -c "$JOB" && until [ -e {pid} ]; do sleep 0.1; done"""
    places = environment(TMPDIR=str(tmp_path), JOB=job)
    process = subprocess.Popen(
        [*FLUX_TRIO, "start", "--config", config, "sh", "-c", script, "sh", *FLUX_TRIO],
        env=places,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "flux-trio: waits for the end of 1 jobs, which were canceled, at most 35 s; "
            "a second signal ends it at once\n"
        )
        process.terminate()
        assert "another signal ends it at once" in process.stderr.readline()
        process.terminate()
        assert process.stderr.readline().startswith("flux-trio: ended at once by a second signal; ")
        assert process.wait(DEADLINE_S) == 1
        assert list(tmp_path.glob("flux-trio-*")) == []
    finally:
        process.kill()
        process.communicate()
        with suppress(ProcessLookupError, FileNotFoundError):
            os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)


ENDS = """
    import signal, sys, time
    from flux_trio.cli.instance.ending import Ending

    ending = Ending(lambda: print("cleaned up"))
    with ending.taking([signal.SIGTERM]):
        ending.step(lambda: "godot", float(sys.argv[1]), 7)
        while True:
            time.sleep(1000)
    """


def test_step_that_does_not_end_is_named_and_ends_the_process_at_its_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", dedent(ENDS), "1.1"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "cleaned up\n")
    assert done.stderr.splitlines() == [
        "flux-trio: waits for godot, at most 1.1 s; a second signal ends it at once",
        "flux-trio: ended after 1.1 s: it waited for godot",
    ]


SIGNALS_TO_EACH_THREAD = """
    import os, signal, threading, time
    import trio
    from flux_trio.cli.instance.ending import Ending

    def call(depth):
        return depth and 1 + call(depth - 1)

    def run():
        for depth in range(30):
            call(depth)
        exec("def made(): yield 1\\nlist(made())", {})  # code that is gone afterwards

    def send():
        for _ in range(500):
            os.kill(os.getpid(), signal.SIGHUP)
            for _ in range(20):
                run()
        time.sleep(0.2)  # the main thread waits now
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    async def main():
        signals = ending.signals()
        threading.Thread(target=send).start()
        while await anext(signals) != signal.SIGUSR1:
            pass

    ending = Ending()
    ending.forwards = True
    with ending.taking([signal.SIGHUP, signal.SIGUSR1]):
        trio.run(main)
    """


def test_signals_are_taken_whichever_thread_runs_and_whichever_is_given_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", dedent(SIGNALS_TO_EACH_THREAD)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
