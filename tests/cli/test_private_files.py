"""A real instance under every umask, and files that other users could have put into its way."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.jobtap.loading import load_file
from flux_trio.process.private import make_directory
from flux_trio.store.state_directory import foreign_file
from tests.support.instance import (
    DEADLINE_S,
    FLUX_TRIO,
    RunningInstance,
    environment,
    invoked,
    running_instance,
)

pytestmark = pytest.mark.real

NOBODY = 65534
GUESTS = "[access]\nallow-guest-user = true\n[resource]\ntargets = 1\n"

as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def start(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `flux-trio start` with these words to its end, in this process."""
    return invoked("start", *words)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_modes_of_a_state_directory_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    config = tmp_path / "config.toml"
    config.write_text(GUESTS)
    statedir, modes = tmp_path / "a" / "state", tmp_path / "modes"
    script = (
        f"flux-trio run --output={tmp_path}/out --error={tmp_path}/err sh -c 'echo x; echo y >&2'"
        f" && flux-trio run echo kept"
        f" && find {statedir} -printf '%P %y %m\\n' >{modes}"
    )
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "flux-trio").write_text(f'#!/bin/sh\nexec {" ".join(FLUX_TRIO)} "$@"\n')
    (bin_ / "flux-trio").chmod(0o755)
    modes.touch()
    options = ["-c", str(config), "--statedir", str(statedir)]
    done = subprocess.run(
        [*FLUX_TRIO, "start", *options, "sh", "-c", f"PATH={bin_}:$PATH; {script}"],
        env=environment(),
        umask=umask,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for line in modes.read_text().splitlines():
        name, kind, octal = line.rsplit(" ", 2)
        found[name] = (kind, int(octal, 8))
    assert found.pop("") == ("d", 0o711)
    assert found.pop("local") == ("s", 0o666)
    assert found.pop("shell/shell.sock") == ("s", 0o600)
    assert {"state.sqlite", "state.sqlite-wal", "token", "uri", "log", "shell/jobs"} < set(found)
    assert {name: each for name, each in found.items() if each != _own(each[0])} == {}
    assert mode(statedir.parent) == 0o755 & ~umask | 0o700
    assert (mode(tmp_path / "out"), mode(tmp_path / "err")) == (0o666 & ~umask, 0o666 & ~umask)
    assert foreign_file(statedir) == ""


def _own(kind: str) -> tuple[str, int]:
    return kind, 0o700 if kind == "d" else 0o600


def test_output_that_a_user_names_may_be_a_link(instance: RunningInstance, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "there")
    instance.ok("run", f"--output={tmp_path}/link", "echo", "x")
    assert (tmp_path / "there").read_text() == "x\n"


# What others have put there


def test_start_refuses_each_of_its_files_in_whose_place_a_link_is(tmp_path: Path) -> None:
    statedir = tmp_path / "state"
    other = tmp_path / "other"
    other.write_text("another file of the user")
    with running_instance(statedir, GUESTS) as instance:
        instance.ok("run", "echo", "x")
        instance.ok("token", "--user", str(os.getuid() + 1))
    names = [
        *("state.sqlite", "state.sqlite-acknowledged", "state.sqlite-inode", "tokens.json", "log"),
        *("token", "uri", "local", "starting", "shell", "shell/jobs", "shell/host.lock"),
        *("shell/host.log", "shell/jobs/7.0.out", "state.sqlite-wal", "state.sqlite-journal"),
    ]
    for name in names:
        path, aside = statedir / name, tmp_path / "aside"
        is_there = path.exists()
        if is_there:
            path.rename(aside)
        path.symlink_to(aside if name in ("shell", "shell/jobs") else other)
        assert foreign_file(statedir) == f"{path}: is a link: remove it"
        if name == "shell/host.log":
            done = start("--statedir", statedir, "true")
            assert done.returncode == 1
            assert f"{path}: is a link: remove it" in done.stderr
        path.unlink()
        if is_there:
            aside.rename(path)
    assert other.read_text() == "another file of the user"
    assert start("--statedir", statedir, "true").returncode == 0


def test_start_refuses_a_file_that_others_may_write(tmp_path: Path) -> None:
    statedir = tmp_path / "state"
    make_directory(statedir)
    for name in ("state.sqlite", "shell/jobs/", "jobtap/mine.py"):
        if name.endswith("/"):
            make_directory(statedir / name)
        else:
            make_directory((statedir / name).parent)
            (statedir / name).touch(mode=0o600)
    for name in ("shell", "shell/jobs", "jobtap", "jobtap/mine.py", "state.sqlite"):
        path = statedir / name
        before = mode(path)
        path.chmod(0o720)
        said = f"{path}: others may write in it: chmod go-w"
        assert foreign_file(statedir) == said
        if name == "jobtap/mine.py":
            done = start("--statedir", statedir, "true")
            assert (done.returncode, said in done.stderr) == (1, True)
        path.chmod(before)
    assert foreign_file(statedir) == ""


def test_file_that_others_may_only_read_is_closed_to_them(tmp_path: Path) -> None:
    statedir = tmp_path / "state"
    assert start("--statedir", statedir, "true").returncode == 0
    make_directory(statedir / "shell")
    (statedir / "state.sqlite").chmod(0o644)
    (statedir / "shell").chmod(0o755)
    assert start("--statedir", statedir, "true").returncode == 0
    assert (mode(statedir / "state.sqlite"), mode(statedir / "shell")) == (0o600, 0o700)


def test_files_that_are_no_instances_may_be_whatever_they_are(tmp_path: Path) -> None:
    statedir = tmp_path / "state"
    statedir.mkdir(mode=0o700)
    (statedir / "link").symlink_to("nowhere")
    (statedir / "logs").touch()
    (statedir / "logs").chmod(0o666)
    assert start("--statedir", statedir, "true").returncode == 0


# What is executed with the owner's rights


@pytest.fixture
def within_reach() -> Iterator[Path]:
    """A directory that all users can look into; pytest's are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def foreign(path: Path) -> Path:
    os.chown(path, NOBODY, NOBODY)
    return path


@as_root
def test_what_another_user_has_made_is_refused_and_named(
    tmp_path: Path, within_reach: Path
) -> None:
    plugin, empty, program, config = (
        within_reach / name for name in ("mine.py", "empty", "check", "config.toml")
    )
    plugin.write_text("from flux_trio import jobtap\nclass Mine(jobtap.Plugin): ...\n")
    empty.mkdir()
    program.write_text("#!/bin/sh\ntrue\n")
    program.chmod(0o755)
    config.write_text(GUESTS)
    for each in (plugin, empty, program, config):
        foreign(each)
    checks = f'[resource.check]\ncommand = ["{program}"]\n'
    with running_instance(tmp_path / "state", checks) as instance:

        def refused(*words: str | Path) -> str:
            result = instance.invoke(*words)
            assert result.exit_code == 1
            return result.stderr

        assert f"{plugin}: belongs to another user" in refused("jobtap", "load", plugin)
        assert f"{empty}: belongs to another user" in refused("backup", empty)
        assert f"{config}: belongs to another user" in refused("config", "load", config)
        assert "belongs to another user" in instance.ok("dmesg")  # the check of the node
    statedir = tmp_path / "state"
    assert list(empty.iterdir()) == []
    done = start("-c", config, "true")
    assert (done.returncode, f"{config}: belongs to another user" in done.stderr) == (1, True)
    backup = within_reach / "backup"
    assert invoked("backup", "--statedir", statedir, backup).returncode == 0
    foreign(backup / "state.sqlite")
    done = invoked("restore", backup, tmp_path / "restored")
    assert f"{backup}/state.sqlite: belongs to another user" in done.stderr
    assert not (tmp_path / "restored").exists()
    foreign(statedir)
    done = invoked("fsck", "--repair", "--statedir", statedir)
    assert f"{statedir}: belongs to another user" in done.stderr


def test_plugin_that_others_may_write_is_refused_and_named(
    instance: RunningInstance, within_reach: Path
) -> None:
    plugin = within_reach / "mine.py"
    plugin.write_text("from flux_trio import jobtap\nclass Mine(jobtap.Plugin): ...\n")
    plugin.chmod(0o666)
    result = instance.invoke("jobtap", "load", plugin)
    assert f"{plugin}: others may write in it: chmod go-w" in result.stderr
    plugin.chmod(0o644)
    instance.ok("jobtap", "load", plugin)
    instance.ok("jobtap", "remove", "mine")


def test_new_plugin_can_be_loaded_whatever_the_umask(within_reach: Path) -> None:
    before = os.umask(0)
    try:
        new = click.testing.CliRunner().invoke(
            main, ["jobtap", "new", "-d", str(within_reach), "mine"]
        )
    finally:
        os.umask(before)
    assert new.exit_code == 0
    assert load_file(within_reach / "mine.py").name == "mine"
