"""`flux-trio start`, in processes of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import click.testing
import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from flux_trio.cli import main
from flux_trio.cli.instance import foreground
from flux_trio.cli.lab.simulating import read_config_file
from flux_trio.client import SOCKET_FILE, TOKEN_VARIABLE, URI_VARIABLE, find_instance, open_client
from flux_trio.messages import topics
from flux_trio.store.living import NOTE_FILE
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    OWN_VARIABLES,
    environment,
    flux_trio,
    invoked,
    running_instance,
)

pytestmark = pytest.mark.real

SLOW_END = "flux-trio: waits for "  # begins a line on a machine that needs a second for an end
SIMULATED = "[exec]\nsimulate = true\n"


@pytest.mark.parametrize(
    ("command", "code", "stderr"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "exit 7"], 7, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["no-such-command"], 127, "flux-trio start: ERROR: no-such-command: command not found\n"),
        (["/"], 126, "flux-trio start: ERROR: /: Permission denied\n"),
    ],
)
def test_an_instance_ends_with_its_command_and_as_it_did(
    command: list[str], code: int, stderr: str
) -> None:
    done = in_this_process("start", *command)
    lines = done.stderr.splitlines(keepends=True)
    said = "".join(line for line in lines if not line.startswith(SLOW_END))
    assert (done.exit_code, done.stdout, said) == (code, "", stderr)


def in_this_process(*args: str | Path) -> click.testing.Result:
    """Quicker than a process; what a command of `start` prints is not seen."""
    runner = click.testing.CliRunner(env=dict.fromkeys(OWN_VARIABLES))
    return runner.invoke(main, [str(arg) for arg in args], prog_name="flux-trio")


def test_the_command_finds_its_instance_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    script = '"$@" run echo hello && "$@" submit sleep 100 >&2 && echo "$FLUX_TRIO_STATEDIR"'
    env = environment(
        TMPDIR=str(tmp_path), FLUX_TRIO_URI="ws://127.0.0.1:1", FLUX_TRIO_TOKEN="another's"
    )
    done = flux_trio("start", "sh", "-c", script, "sh", *FLUX_TRIO, env=env)
    assert done.returncode == 0, done.stderr
    hello, statedir = done.stdout.splitlines()
    assert hello == "hello"
    assert Path(statedir).parent == tmp_path
    assert not Path(statedir).exists()


@contextmanager
def started_with(signum: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """What is started in this block takes or ignores a signal, whatever these tests do."""
    before = signal.signal(signum, handler)
    try:
        yield
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_without_a_command_it_says_where_it_is_and_a_signal_ends_it(
    tmp_path: Path, signum: signal.Signals
) -> None:
    statedir = tmp_path / "its state"
    with (
        started_with(signal.SIGHUP, signal.SIG_DFL),
        running_instance(statedir, SIMULATED) as instance,
    ):
        uri = (statedir / "uri").read_text()
        assert instance.announcement == (
            f"flux-trio: instance at {uri} is ready; to reach it from elsewhere: "
            f"export FLUX_TRIO_STATEDIR='{statedir}'\n"
        )
        assert instance.stop(signum) == 0
    assert not (statedir / "uri").exists()
    assert not (statedir / "token").exists()


def test_the_default_directory_is_where_commands_look(tmp_path: Path) -> None:
    env = environment(XDG_RUNTIME_DIR=str(tmp_path))
    process = subprocess.Popen(
        [*FLUX_TRIO, "start"], env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert str(tmp_path / "flux-trio") in process.stdout.readline()
        assert invoked("jobs", "-n", env=env).returncode == 0
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "flux-trio").stat().st_mode & 0o777 == 0o700


def test_a_signal_goes_to_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"trap 'exit 5' TERM; echo >{ready}; while :; do sleep 0.01; done"
    process = subprocess.Popen(
        [*FLUX_TRIO, "start", "sh", "-c", script], env=environment(), stdin=subprocess.DEVNULL
    )
    try:
        ready.read_text()
        process.terminate()
        assert process.wait(DEADLINE_S) == 5
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def test_with_nohup_it_stays(tmp_path: Path) -> None:
    script = "trap '' HUP; kill -HUP $$; exec \"$0\" -m flux_trio start sh -c 'kill -HUP $PPID'"
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        env=environment(),
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('[sched]\npolicy = "x"\n', "{config}.sched.policy: expected"),
        ("[sched]\nqueue = 3\n", "{config}.sched: expected "),
        ("[sched]\nlimit = 0\n", "{config}.sched.limit: expected"),
        ('[exec]\nkill-timeout = "5x"\n', "{config}.exec.kill-timeout: expected a duration"),
        ('edition = "old"\n', "{config}.edition: expected one of"),
        ("[sched\n", "{config}: expected TOML"),
        ('[resource]\nexclude = "x"\n', "resource.exclude: invalid targets: invalid hosts: x"),
        ('[[resource.config]]\nhosts = "a["\n', "resource.config[0].hosts: expected a hostlist"),
        ('[broker]\nhost = "no.such.invalid"\n', "cannot listen at no.such.invalid:0: "),
    ],
)
def test_a_wrong_configuration_is_one_line_that_names_the_key(
    tmp_path: Path, config: str, message: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config)
    assert_refused(message.format(config=path), "--config", path)


def test_a_file_is_checked_for_the_edition_that_the_option_names(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('[job-manager.housekeeping]\ncommand = ["true"]\nrelease-after = "5s"\n')
    assert in_this_process("start", "--edition", "current", "-c", file, "true").exit_code == 0
    assert read_config_file(file, "current").edition == "current"  # that of simulate
    done = in_this_process("start", "-c", file, "true")
    assert done.exit_code == 1
    assert "release-after: expected no release-after in the edition classic" in done.stderr


@pytest.mark.parametrize(("stored", "asked"), [("current", "classic"), ("classic", "current")])
def test_a_directory_of_the_other_edition_is_left_as_it_is(
    tmp_path: Path, stored: str, asked: str
) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    (directory / "edition").write_text(f"{stored}\n")
    (directory / "state.sqlite").write_bytes(b"as it is")
    assert_refused(
        f"{directory} has the state of an instance of edition {stored}, and this one would speak "
        f"{asked}. Nothing was converted: start with --edition {stored}",
        *("--edition", asked, "--statedir", directory),
    )
    assert (directory / "state.sqlite").read_bytes() == b"as it is"


def assert_refused(message: str, *args: str | Path) -> None:
    """`start` does not, says why in one line, and does not run the command."""
    done = in_this_process("start", *args, "sh", "-c", "exit 99")
    assert done.stderr.startswith(f"flux-trio start: ERROR: {message}")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_the_machine_poses_as_many_targets_if_told_to() -> None:
    listing = ["resource", "list", "-n", "-s", "all", "-o", "{nnodes} {ranks}"]
    done = flux_trio("start", "-s", "3", *FLUX_TRIO, *listing)
    assert (done.stdout, done.returncode) == ("3 0-2\n", 0)


def test_targets_are_told_in_one_way_only(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[resource.config]]\nhosts = "a"\ncores = "0"\n')
    assert_refused(f"expected --test-size or resources in {path}, got both", "-s2", "-c", path)


SITE = """
[tbon]
tcp_user_timeout = "2m"
[exec]
imp = "/usr/libexec/flux/flux-imp"
service = "sdexec"
[[resource.config]]
hosts = "test[1-4]"
cores = "0"
properties = ["batch"]
[resource.verify]
default = "ignore"
[job-manager]
plugins = [{ load = "perilog.so" }]
[job-manager.prolog]
per-rank = true
[queues.batch]
requires = ["batch"]
[queues.expedite]
parent = "batch"
[policy.jobspec.defaults.system]
queue = "batch"
"""


def test_a_site_starts_with_the_file_that_it_has_for_flux_core(tmp_path: Path) -> None:
    path = tmp_path / "system.toml"
    path.write_text(SITE)
    done = flux_trio("start", "-c", path, *FLUX_TRIO, "run", "-q", "expedite", "echo", "ran")
    assert (done.stdout, done.returncode) == ("ran\n", 0)
    said = f"flux-trio start: {path}: these have no meaning here and are ignored: "
    assert done.stderr.startswith(f"{said}[tbon] (")
    for name in ("exec.imp", "exec.service", "job-manager.prolog (without command"):
        assert name in done.stderr


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert_refused(f"{tmp_path}: Is a directory", "--config", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"[sched]\n# \xff\n",
            "expected text in UTF-8: 'utf-8' codec can't decode byte 0xff in position 10: ",
        ),
        (b"\x7fELF\x02\x01\x01\x00\x00", "expected TOML, got "),
    ],
)
def test_a_configuration_that_is_no_text_is_named(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    assert_refused(f"{path}: {message}", "--config", path)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "config.toml"
        config.write_text(f"[broker]\nport = {port}\n")
        assert_refused(f"cannot listen at 127.0.0.1:{port}: ", "--config", config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("state.sqlite", "{file}: cannot be opened: file is not a database"),
        ("tokens.json", "{file}: expected well-formed data, got JSON is malformed"),
    ],
)
def test_a_damaged_state_file_is_named(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / name
    path.write_text("not what it was\n" * 100)
    assert_refused(message.format(file=path), "--statedir", tmp_path)


def test_a_state_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert_refused(f"{file}: File exists", "--statedir", file)
    assert_refused(f"{file}/below: Not a directory", "--statedir", file / "below")


def test_two_instances_cannot_share_a_state_directory(tmp_path: Path) -> None:
    with running_instance(tmp_path, SIMULATED):
        pid = msgspec.json.decode((tmp_path / NOTE_FILE).read_bytes())["pid"]
        who = f"process {pid} of host {socket.gethostname()}"
        assert_refused(f"{tmp_path}: an instance runs there ({who})", "--statedir", tmp_path)


def test_a_socket_that_takes_connections_is_not_taken_from_its_instance(tmp_path: Path) -> None:
    """No file of the other instance is locked, as where locks do nothing."""
    path = tmp_path / SOCKET_FILE
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        path.chmod(0o600)
        living.listen()
        inode = path.stat().st_ino
        assert_refused(f"{tmp_path}: an instance runs there", "--statedir", tmp_path)
        assert path.stat().st_ino == inode


def test_limit_of_open_files_that_is_too_low_is_named() -> None:
    limited = subprocess.run(
        ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", *FLUX_TRIO, "start", "true"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    text = "expected a limit of at least 32 open files (`ulimit -n`), got 16"
    assert (limited.returncode, limited.stderr) == (1, f"flux-trio start: ERROR: {text}\n")


def test_a_state_directory_that_is_removed_is_noticed(tmp_path: Path) -> None:
    with running_instance(tmp_path / "state") as instance:
        uri = (instance.statedir / "uri").read_text()
        token = (instance.statedir / "token").read_text()
        shutil.rmtree(instance.statedir)
        lost = flux_trio(
            "submit", "true", env={**environment(), URI_VARIABLE: uri, TOKEN_VARIABLE: token}
        )
        assert lost.returncode == 1
        assert "was removed or replaced while its instance runs" in lost.stderr
        instance.stop(signal.SIGKILL)


def test_a_shutdown_request_ends_it(tmp_path: Path) -> None:
    with running_instance(tmp_path, SIMULATED) as instance:
        address = find_instance(instance.env)

        async def shut_down() -> None:
            async with open_client(*address) as client:
                await client.call(topics.BROKER_SHUTDOWN)

        anyio.run(shut_down)
        assert instance.process.wait(DEADLINE_S) == 0


def test_commands_of_an_instance_that_is_killed_say_so(tmp_path: Path) -> None:
    with running_instance(tmp_path, SIMULATED) as instance:
        waiting = instance.popen("run", "--urgency=hold", "true")
        assert waiting.stderr is not None
        while not instance.ok("jobs", "-n"):
            pass  # until the job is there
        instance.stop(signal.SIGKILL)
        _, stderr = waiting.communicate(timeout=DEADLINE_S)
        # how its end shows depends on what was under way: closed, or reset
        (line,) = stderr.splitlines()
        assert line.startswith("flux-trio run: ERROR: the instance is gone: ")
        assert waiting.returncode == 1
        later = instance.invoke("jobs")
        assert later.stderr.startswith("flux-trio jobs: ERROR: nobody listens at unix://")
        assert later.stderr.endswith("if no instance runs, start one with `flux-trio start`\n")


async def test_a_signal_ends_what_does_not_come_up_and_is_left_to_what_has() -> None:
    """A start may take long, such as with many jobs to read back."""
    signals, arriving = trio.open_memory_channel[int](1)
    signals.send_nowait(signal.SIGTERM)
    async with foreground._ending_at(arriving):
        await trio.sleep_forever()
    async with foreground._ending_at(arriving) as is_ready:
        await is_ready()
        signals.send_nowait(signal.SIGTERM)
        await wait_all_tasks_blocked()
    assert arriving.receive_nowait() == signal.SIGTERM
