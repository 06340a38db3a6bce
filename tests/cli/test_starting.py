"""What `flux-trio start` does before it has an instance: directory, sign and shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import pytest

from flux_trio.cli.instance.enclosing import environment_inside
from flux_trio.cli.instance.starting import shell_of_terminal, sign_of_start, statedir_of_user
from flux_trio.client import InstanceStarting, NoInstance, await_instance, find, find_instance
from tests.support.instance import DEADLINE_S, FLUX_TRIO, environment, flux_trio
from tests.support.terminal import on_terminal

SIMULATED = "[exec]\nsimulate = true\n"


def where(statedir: Path) -> dict[str, str]:
    return {"FLUX_TRIO_STATEDIR": str(statedir)}


def test_instance_that_is_starting_is_told_from_none(tmp_path: Path) -> None:
    with pytest.raises(NoInstance, match=f"no instance runs in {tmp_path}: "):
        find_instance(where(tmp_path))
    with sign_of_start(tmp_path):
        with pytest.raises(InstanceStarting, match=f"the instance in {tmp_path} is still starting"):
            find_instance(where(tmp_path))
        assert (tmp_path / "starting").stat().st_mode & 0o077 == 0
    with pytest.raises(NoInstance, match="no instance runs"):
        find_instance(where(tmp_path))


def test_sign_ends_when_the_instance_has_started_or_its_process_is_gone(tmp_path: Path) -> None:
    with sign_of_start(tmp_path) as started, sign_of_start(tmp_path) as of_another:
        of_another()
        with pytest.raises(InstanceStarting):
            find_instance(where(tmp_path))
        started()
        with pytest.raises(NoInstance, match="no instance runs"):
            find_instance(where(tmp_path))


def test_sign_of_a_directory_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    with sign_of_start(tmp_path / "not there") as started:
        started()


def test_command_waits_for_the_instance_that_is_starting(tmp_path: Path) -> None:
    """The instance comes only after the command has looked for it."""

    async def main() -> tuple[str, str]:
        async with anyio.create_task_group() as tasks:

            async def start() -> None:
                with sign_of_start(tmp_path):
                    looking.set()
                    await anyio.sleep(0.1)
                    (tmp_path / "uri").write_text("ws://127.0.0.1:1")
                    (tmp_path / "token").write_text("sesame")

            looking = anyio.Event()
            tasks.start_soon(start)
            await looking.wait()
            return await await_instance(where(tmp_path))

    assert anyio.run(main) == ("ws://127.0.0.1:1", "sesame")


def test_who_waits_long_for_an_instance_is_told_so_once_and_goes_on_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "SLOW_S", 0.0)
    told: list[str] = []

    async def main() -> tuple[str, str]:
        with sign_of_start(tmp_path):

            def tell(text: str) -> None:
                told.append(text)
                (tmp_path / "token").write_text("sesame")
                (tmp_path / "uri").write_text("ws://127.0.0.1:1")

            return await await_instance(where(tmp_path), tell)

    assert anyio.run(main) == ("ws://127.0.0.1:1", "sesame")
    assert told == [f"the instance in {tmp_path} is still starting: waiting for it"]


def test_directory_of_the_user_is_not_that_of_the_instance_around(tmp_path: Path) -> None:
    assert statedir_of_user({}) is None
    assert statedir_of_user(where(tmp_path)) == tmp_path
    inside = where(tmp_path) | {"FLUX_TRIO_INSIDE": str(tmp_path)}
    assert statedir_of_user(inside) is None
    assert statedir_of_user(inside | where(tmp_path / "own")) == tmp_path / "own"
    of_command = environment_inside({"FLUX_TRIO_STATEDIR": "/another"}, str(tmp_path), None)
    assert of_command["FLUX_TRIO_STATEDIR"] == str(tmp_path)
    assert statedir_of_user(of_command) is None


def test_without_a_terminal_there_is_no_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell_of_terminal({"SHELL": "/bin/sh"}) == ()


@pytest.mark.real
def test_start_in_the_directory_that_the_user_has_set(tmp_path: Path) -> None:
    env = environment(**where(tmp_path / "state"))
    first = flux_trio("start", *FLUX_TRIO, "submit", "true", env=env)
    assert first.returncode == 0, first.stderr
    words = ("job", "wait-event", "-q", first.stdout.strip(), "clean")
    again = flux_trio("start", *FLUX_TRIO, *words, env=env)
    assert again.returncode == 0, again.stderr


@pytest.mark.real
def test_commands_that_follow_at_once_find_the_instance(tmp_path: Path) -> None:
    """`flux-trio start & flux-trio run`, as it is pasted."""
    (tmp_path / "config.toml").write_text(SIMULATED)
    script = (
        '"$@" start --config config.toml & '
        "until [ -e state/starting ] || [ -e state/uri ]; do sleep 0.01; done; "
        '"$@" queue status && kill $! && wait $!'
    )
    done = subprocess.run(
        ["sh", "-c", script, "sh", *FLUX_TRIO],
        env=environment(**where(tmp_path / "state")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Scheduling is started" in done.stdout


@pytest.mark.real
def test_start_in_a_terminal_opens_the_users_shell(tmp_path: Path) -> None:
    places = {"SHELL": "/bin/sh", "PS1": "", "TMPDIR": str(tmp_path)}
    with on_terminal("start", "-s", "4", **places) as terminal:
        terminal.type("echo at=$FLUX_TRIO_STATEDIR; exit 7")
        said, code = terminal.until_end()
    assert code == 7, said
    assert "flux-trio start: the instance ends when you leave this shell" in said
    assert f"at={tmp_path}/flux-trio-" in said
