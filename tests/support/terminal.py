"""A command on a terminal of its own: a test types lines, and waits for what is printed."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.instance import DEADLINE_S, FLUX_TRIO, environment


class Terminal:
    """The end of the terminal at which a person sits."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self._process = process
        self._fd = fd
        self._seen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode  # a read may cut a character

    def type(self, line: str) -> None:
        """Type a line and the enter key."""
        os.write(self._fd, line.encode() + b"\n")

    def press(self, key: str) -> None:
        """Press one key once the command sleeps: a signal just before its read is not seen."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        while stat.read_text().rpartition(") ")[2][0] != "S":
            time.sleep(0.01)
        os.write(self._fd, key.encode())

    def until(self, text: str) -> str:
        """Wait for `text`; return all that came since the last call."""
        while text not in self._seen:
            assert self._take_more(), f"the command has ended after {self._seen!r}"
        found, _, self._seen = self._seen.partition(text)
        return found

    def until_end(self) -> tuple[str, int]:
        """Wait for the end of the command; return the rest that it printed, and its exit code."""
        while self._take_more():
            pass
        return self._seen, self._process.wait(DEADLINE_S)

    def _take_more(self) -> bool:
        """Wait for the next bytes; return False if the command has closed the terminal."""
        ready, _, _ = select.select([self._fd], [], [], DEADLINE_S)
        assert ready, f"nothing more came after {self._seen!r}"
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:
            return False
        self._seen += self._decode(data).replace("\r", "")  # there is one before each newline
        return bool(data)


@contextmanager
def on_terminal(*args: str, **env: str) -> Iterator[Terminal]:
    """Run `flux-trio args...` on a terminal during the block, with more variables."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*FLUX_TRIO, *args],
        env=environment(**env),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=partial(os.login_tty, slave),  # ctrl-C sends a signal to its foreground
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(master)
