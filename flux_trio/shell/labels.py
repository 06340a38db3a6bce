"""Files of output whose lines say which task wrote them: `flux run --label-io --output=FILE`.

The tasks cannot write the labels themselves. So each writes to a file of the host, and the host
copies whole lines into the file that the job names, with the number of the task before each. It
looks for new lines while the job runs, and once more when its last process has ended. How far it is
stands in a file, too, so that the next host goes on there; if a host is killed between a copy and
its note, the lines of that copy are written twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import trio

from flux_trio.process.private import PrivateDirectory
from flux_trio.shell.files import open_output
from flux_trio.shell.protocol import lines_name
from flux_trio.shell.records import LabeledFile, remove

LOOK_S: Final = 0.1  # new lines of a job that runs are looked for so often
COPY_BYTES_MAX: Final = 1 << 20
"""So much is read of a task's output at once. A longer line is written in several, each labeled."""

_POSITION_BYTES: Final = 8


class LabeledOutput:
    """The labeled output of one job; `lock` is held by who copies."""

    def __init__(
        self, directory: PrivateDirectory, jobid: int, files: Sequence[LabeledFile]
    ) -> None:
        self.lock = trio.Lock()
        self._directory = directory
        self._jobid = jobid
        self._files = files
        self._positions = self._read_positions()

    def copy(self, *, is_last: bool) -> list[str]:
        """Copy the lines that are new; return what went wrong, a text for each file.

        A last line without its end is copied, with an end, if `is_last`: its task writes no more.
        """
        wrong = []
        for number, file in enumerate(self._files):
            try:
                while self._copy_part(number, file, is_last=is_last):
                    pass
            except OSError as error:
                wrong.append(
                    f"{file.path}: lines of task {file.taskid} are missing: {error.strerror}"
                )
        return wrong

    def remove(self) -> None:
        """Remove the host's own files."""
        for file in self._files:
            remove(self._directory, lines_name(self._jobid, file.taskid, file.stream))
        remove(self._directory, self._positions_name)

    def _copy_part(self, number: int, file: LabeledFile, *, is_last: bool) -> bool:
        """Copy lines of one file; return whether there may be more. Raises OSError."""
        position = self._positions[number]
        data = self._read(lines_name(self._jobid, file.taskid, file.stream), position)
        is_cut = len(data) == COPY_BYTES_MAX
        end = data.rfind(b"\n") + 1
        if is_cut or is_last:
            end = end or len(data)
        if is_last and not is_cut:
            end = len(data)
        if not end:
            return False
        label = b"%d: " % file.taskid
        lines = b"".join(
            b"%b%b\n" % (label, line) for line in data[:end].removesuffix(b"\n").split(b"\n")
        )
        with open_output(file.path) as output:
            while lines:
                lines = lines[os.write(output, lines) :]
        self._positions[number] = position + end
        self._note_position(number)
        return is_cut

    def _read(self, name: str, position: int) -> bytes:
        try:
            if os.stat(name, dir_fd=self._directory.descriptor).st_size <= position:
                return b""
            descriptor = self._directory.open(name, os.O_RDONLY)
        except FileNotFoundError:  # the task was never launched
            return b""
        try:
            return os.pread(descriptor, COPY_BYTES_MAX, position)
        finally:
            os.close(descriptor)

    @property
    def _positions_name(self) -> str:
        return f"{self._jobid}.labeled"

    def _read_positions(self) -> list[int]:
        try:
            data = self._directory.read(self._positions_name)
        except FileNotFoundError:
            data = b""
        data = data.ljust(_POSITION_BYTES * len(self._files), b"\0")
        return [
            int.from_bytes(data[number * _POSITION_BYTES : (number + 1) * _POSITION_BYTES])
            for number in range(len(self._files))
        ]

    def _note_position(self, number: int) -> None:
        descriptor = self._directory.open(self._positions_name, os.O_WRONLY | os.O_CREAT)
        try:
            place = number * _POSITION_BYTES
            os.pwrite(descriptor, self._positions[number].to_bytes(_POSITION_BYTES), place)
        finally:
            os.close(descriptor)
