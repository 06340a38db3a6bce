"""Directories of jobs: each job has one, with the files that travel with its jobspec (RFC 37).

A directory is made before the first task starts, and removed with all that is in it when the last
process of the job has ended. A job without files that leaves nothing behind costs two calls.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from flux_trio.process.private import DIRECTORY_MODE
from flux_trio.shell.protocol import TMP_NAME, TravelingFile


class JobDirectories:
    """Those of the jobs of one shell host, in `tmp` below its `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / TMP_NAME

    def of(self, jobid: int) -> Path:
        return self._directory / str(jobid)

    def make(self, jobid: int, files: Iterable[TravelingFile]) -> None:
        """Make the directory of a job; one of an earlier attempt is filled anew. Raises OSError."""
        path = self.of(jobid)
        self._directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
        for file in files:
            place = path / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.data)
            place.chmod(file.mode & 0o7777)

    def has_more(self, jobid: int) -> bool:
        """Remove the directory of a job if it is empty; return whether something is in it."""
        try:
            self.of(jobid).rmdir()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def remove(self, jobid: int) -> None:
        """Remove the directory of a job with what is in it, as far as that is allowed."""
        shutil.rmtree(self.of(jobid), ignore_errors=True)

    def remove_others(self, jobids: Iterable[int]) -> None:
        """Remove the directories of all jobs but these: an earlier host has left them."""
        kept = {str(each) for each in jobids}
        with suppress(OSError):
            for path in list(self._directory.iterdir()):
                if path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)
