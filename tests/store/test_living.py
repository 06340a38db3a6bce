"""One instance in a state directory, also where file locks do nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flux_trio.client import SOCKET_FILE
from flux_trio.store.living import NOTE_FILE, Living, Note, sole_instance


def note(directory: Path, **changes: object) -> Path:
    """The note of this process, with changes."""
    path = directory / NOTE_FILE
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(Note.of(os.getpid()), **changes)))
    return path


def test_note_is_there_as_long_as_the_instance(tmp_path: Path) -> None:
    with sole_instance(tmp_path):
        found = msgspec.json.decode((tmp_path / NOTE_FILE).read_bytes(), type=Note)
        assert (found.pid, found.host) == (os.getpid(), socket.gethostname())
    assert not (tmp_path / NOTE_FILE).exists()


def test_second_one_is_refused_by_name(tmp_path: Path) -> None:
    with sole_instance(tmp_path):
        who = rf"\(process {os.getpid()} of host {socket.gethostname()}\)"
        text = rf"an instance runs there {who}.*remove .*{NOTE_FILE}"
        with pytest.raises(Living, match=text), sole_instance(tmp_path):
            pass
        assert (tmp_path / NOTE_FILE).exists()


def test_socket_that_takes_connections_is_that_of_an_instance(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(tmp_path / SOCKET_FILE))
        living.listen()
        with pytest.raises(Living, match=r"an instance runs there$"), sole_instance(tmp_path):
            pass
    with sole_instance(tmp_path):  # its process is gone, and the file is left
        pass


def test_process_of_another_host_may_live(tmp_path: Path) -> None:
    path = note(tmp_path, host="far", boot="other")
    with pytest.raises(Living, match=r"process \d+ of host far"), sole_instance(tmp_path):
        pass
    assert path.exists()


def test_note_of_a_process_that_is_gone_does_not_count(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for changes in (
        {"pid": ended.pid},
        {"since": 1},  # another process has got the number
        {"boot": "before"},  # the host was started anew
        {"host": "container", "since": 1},
    ):
        note(tmp_path, **changes)
        with sole_instance(tmp_path):
            pass


def test_note_without_room_for_its_text_does_not_count_later(tmp_path: Path) -> None:
    (tmp_path / NOTE_FILE).touch(mode=0o600)
    with sole_instance(tmp_path):
        pass
