"""The output files of the shell host's jobs, and how damage to them is noticed.

The tasks themselves write to the files, so nobody can count along. When the last process of a job
has ended, the host reads its files once and notes their sizes and checksums in the job's record.
Whenever it reports the end of the job again, perhaps much later and as another process, it compares
the files with that.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from flux_trio.process.private import PrivateDirectory
from flux_trio.shell.protocol import STREAMS, output_name
from flux_trio.shell.records import FileSum, remove

AT_ONCE_BYTES_MAX: Final = 1 << 20
"""More output than this is read in a thread, so that other jobs do not wait: it takes 1 ms."""

_CHUNK_BYTES: Final = 1 << 20


class Outputs:
    """The files in the directory of the jobs."""

    def __init__(self, directory: PrivateDirectory) -> None:
        self._directory = directory

    def nbytes(self, jobid: int, ntasks: int) -> int:
        """Return how many bytes the tasks of a job have written."""
        return sum(self._size(name) for _, _, name in _names(jobid, ntasks))

    def sums(self, jobid: int, ntasks: int) -> list[FileSum]:
        """Return the size and the checksum of each file that is not empty."""
        found = []
        for taskid, stream, name in _names(jobid, ntasks):
            size, crc = self._read(name, self._size(name))
            if size:
                found.append(FileSum(taskid, stream, size, crc))
        return found

    def damage(self, jobid: int, noted: Iterable[FileSum]) -> list[str]:
        """Return what is wrong with files that were as `noted`, a text for each."""
        found = []
        for each in noted:
            name = output_name(jobid, each.taskid, each.stream)
            size, crc = self._read(name, each.size)
            what = ""
            if size < each.size:
                what = f"expected {each.size} bytes, got {size}"
            elif crc != each.crc:
                what = f"expected the checksum {each.crc:08x}, got {crc:08x}"
            if what:
                found.append(f"{self._directory.path}/{name}: {what}")
        return found

    def remove(self, jobid: int, ntasks: int) -> None:
        for _, _, name in _names(jobid, ntasks):
            remove(self._directory, name)

    def _size(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self._directory.descriptor, follow_symlinks=False).st_size
        except OSError:  # it is missing
            return 0

    def _read(self, name: str, size: int) -> tuple[int, int]:
        """Return how many of the first `size` bytes can be read, and their checksum."""
        done = crc = 0
        if not size:
            return 0, 0
        try:
            descriptor = self._directory.open(name, os.O_RDONLY)
        except OSError:
            return 0, 0
        try:
            while done < size:
                data = os.read(descriptor, min(_CHUNK_BYTES, size - done))
                if not data:
                    break
                done += len(data)
                crc = zlib.crc32(data, crc)
        except OSError:
            pass  # the rest cannot be read
        finally:
            os.close(descriptor)
        return done, crc


def _names(jobid: int, ntasks: int) -> Iterator[tuple[int, str, str]]:
    for taskid, stream in itertools.product(range(ntasks), STREAMS):
        yield taskid, stream, output_name(jobid, taskid, stream)
