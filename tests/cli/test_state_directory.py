"""Whose state directory it is: what others could write is not trusted with the owner's token."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flux_trio.cli.instance.starting import state_directory
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.client import AccessDenied, find_instance
from flux_trio.store.state_directory import write_private


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with (
        pytest.raises(CommandError, match="others may write in it: chmod go-w"),
        state_directory(tmp_path, None),
    ):
        pass


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o755])
def test_a_directory_that_others_may_only_look_into_will_do(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with state_directory(tmp_path, None) as (directory, lasting):
        assert (directory, lasting) == (tmp_path, True)


def test_the_default_directory_is_no_link_to_another(tmp_path: Path) -> None:
    """In /tmp anybody could have made it."""
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "flux-trio").symlink_to(tmp_path / "there")
    with (
        pytest.raises(CommandError, match="is a link"),
        state_directory(None, tmp_path / "flux-trio"),
    ):
        pass
    with pytest.raises(AccessDenied, match="is a link"):
        find_instance({"XDG_RUNTIME_DIR": str(tmp_path)})
    with state_directory(tmp_path / "flux-trio", None):
        pass  # whoever names it knows


@pytest.mark.parametrize("planted", ["link", "file", "nothing"])
def test_a_secret_goes_into_no_file_that_somebody_else_has_made(
    tmp_path: Path, planted: str
) -> None:
    theirs, draft = tmp_path / "theirs", tmp_path / "token.new"
    theirs.touch(mode=0o666)
    match planted:
        case "link":
            draft.symlink_to(theirs)
        case "file":
            draft.touch()
            draft.chmod(0o666)
    write_private(tmp_path / "token", "secret")
    assert theirs.read_text() == ""
    assert stat.S_IMODE((tmp_path / "token").lstat().st_mode) == 0o600
    assert (tmp_path / "token").read_text() == "secret"
    assert not draft.exists()
