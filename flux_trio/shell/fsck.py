"""Checks the files that a shell host keeps of its jobs; no host is asked."""

from __future__ import annotations

from pathlib import Path

from flux_trio.process.private import PrivateDirectory, private_directory
from flux_trio.shell.outputs import Outputs
from flux_trio.shell.protocol import JOBS_NAME
from flux_trio.shell.records import RECORD_SUFFIX, Record, Written, jobid_of


def check_jobs(directory: Path) -> tuple[int, list[str]]:
    """Return how many jobs the host of `directory` keeps, and what is damaged, one line each.

    A file that cannot be read is damaged, too.
    """
    try:
        with private_directory(directory.parent, directory.name, JOBS_NAME) as files:
            return _check(files)
    except FileNotFoundError:
        return 0, []  # no job of this directory ever had a process
    except OSError as error:
        return 0, [f"{error.filename}: {error.strerror}"]


def _check(files: PrivateDirectory) -> tuple[int, list[str]]:
    outputs = Outputs(files)
    count, damage = 0, []
    for name in sorted(files.names()):
        jobid = jobid_of(name) if name.endswith(RECORD_SUFFIX) else None
        if jobid is None:
            continue
        count += 1
        record = Record(files, jobid)
        try:
            lines = record.read()
        except FileNotFoundError:  # a host that runs has forgotten the job
            continue
        except OSError as error:
            damage.append(f"{error.filename}: {error.strerror}")
            continue
        if record.damage:
            damage.append(record.damage)
        for line in lines:
            if isinstance(line, Written):
                damage += outputs.damage(jobid, line.files)
    return count, damage
