import os
import socket
from pathlib import Path

import pytest

from flux_trio.client import (
    SOCKET_FILE,
    TOKEN_FILE,
    URI_FILE,
    AccessDenied,
    NoInstance,
    default_statedir,
    find,
    find_instance,
    is_of_ours,
)


def make_statedir(path: Path) -> Path:
    path.mkdir()
    (path / URI_FILE).write_text("ws://127.0.0.1:4567\n")
    (path / TOKEN_FILE).write_text("sesame\n")
    return path


HERE = ("ws://127.0.0.1:4567", "sesame")


def test_the_uri_and_token_of_the_environment_come_first(tmp_path: Path) -> None:
    environ = {
        "FLUX_TRIO_URI": "ws://127.0.0.1:1",
        "FLUX_TRIO_TOKEN": "open",
        "FLUX_TRIO_STATEDIR": str(make_statedir(tmp_path / "a")),
    }
    assert find_instance(environ) == ("ws://127.0.0.1:1", "open")


def test_a_local_uri_names_a_state_directory(tmp_path: Path) -> None:
    statedir = make_statedir(tmp_path / "a")
    assert find_instance({"FLUX_TRIO_URI": f"local://{statedir}"}) == HERE


def test_a_state_directory_has_the_uri_and_the_token(tmp_path: Path) -> None:
    statedir = make_statedir(tmp_path / "a")
    assert find_instance({"FLUX_TRIO_STATEDIR": str(statedir)}) == HERE


def test_a_socket_in_the_state_directory_is_used_before_uri_and_token(tmp_path: Path) -> None:
    statedir = make_statedir(tmp_path / "a")
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(statedir / SOCKET_FILE))
        address = (f"unix://{statedir}/local", "")
        assert find_instance({"FLUX_TRIO_STATEDIR": str(statedir)}) == address
        assert find_instance({"FLUX_TRIO_URI": f"local://{statedir}"}) == address


def test_the_uri_of_a_socket_needs_no_token() -> None:
    assert find_instance({"FLUX_TRIO_URI": "unix:///run/a"}) == ("unix:///run/a", "")


def test_the_runtime_directory_of_the_user_is_looked_into_last(tmp_path: Path) -> None:
    make_statedir(tmp_path / "flux-trio")
    assert find_instance({"XDG_RUNTIME_DIR": str(tmp_path)}) == HERE


def test_without_a_runtime_directory_the_default_is_named_after_the_user() -> None:
    assert default_statedir({}) == Path(f"/tmp/flux-trio-{os.getuid()}")


def test_a_default_directory_made_by_somebody_else_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_statedir(tmp_path / "flux-trio")
    monkeypatch.setattr(find.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(AccessDenied, match="not to you"):
        find_instance({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_where_no_instance_is_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    for environ in (
        {"FLUX_TRIO_STATEDIR": str(tmp_path)},
        {"FLUX_TRIO_STATEDIR": str(tmp_path / "nowhere")},
        {"XDG_RUNTIME_DIR": str(tmp_path)},
    ):
        with pytest.raises(
            NoInstance, match=r"no instance runs in .*: start one with `flux-trio s"
        ):
            find_instance(environ)


def test_a_uri_without_a_token_is_said_to_be_half_of_what_is_needed() -> None:
    with pytest.raises(NoInstance, match="FLUX_TRIO_TOKEN is not"):
        find_instance({"FLUX_TRIO_URI": "ws://127.0.0.1:1"})


def test_a_token_that_may_not_be_read_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statedir = make_statedir(tmp_path / "a")

    open_file = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == TOKEN_FILE:
            raise PermissionError(13, "Permission denied")
        return open_file(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AccessDenied, match="may not be read: it is another user's"):
        find_instance({"FLUX_TRIO_STATEDIR": str(statedir)})


@pytest.mark.parametrize(
    ("jobid", "is_ours"), [("ƒ8", True), ("f8", True), ("ƒ9", False), ("nonsense", True)]
)
def test_a_job_of_flux_core_in_a_job_of_ours_is_not_ours(jobid: str, is_ours: bool) -> None:
    """It has the variables of both; job 7 is ƒ8."""
    outer = {"FLUX_TRIO_STATEDIR": "/s", "FLUX_TRIO_SHELL": "aa.5 bb.7", "FLUX_URI": "local:///x"}
    assert is_of_ours(outer | {"FLUX_JOB_ID": jobid}) == is_ours
    assert not is_of_ours({"FLUX_JOB_ID": jobid, "FLUX_URI": "local:///x"})
