"""How the shell host starts the process of one task."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from flux_trio.shell.files import open_output, open_streams, place
from flux_trio.shell.job import STATUS_NOT_EXECUTED, STATUS_NOT_FOUND
from flux_trio.shell.limits import limiting
from flux_trio.shell.pmi import variables
from flux_trio.shell.protocol import STREAMS, Start, Task, lines_name, output_name
from flux_trio.shell.records import Failed
from flux_trio.shell.shortage import ShortageError, describe_shortage, is_shortage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flux_trio.process.private import PrivateDirectory
    from flux_trio.shell.input import JobInputs
    from flux_trio.shell.orphans import Orphans


class Launcher:
    """Starts tasks, with standard input from `inputs` and the mark by which `orphans` are found."""

    def __init__(self, inputs: JobInputs, orphans: Orphans) -> None:
        self._inputs = inputs
        self._orphans = orphans
        self._cores = os.sched_getaffinity(0)

    def launch(
        self,
        request: Start,
        task: Task,
        directory: PrivateDirectory,
        emptied: set[str],
        pmi: int | None,
        says: str,
    ) -> subprocess.Popen[bytes] | Failed:
        """Return the process of a task, or why it has none.

        Its streams are files in `directory`, and those that the job names, of which `emptied` were
        truncated already. `pmi` is the task's descriptor of its PMI server. `says` is written to
        its standard error first. Raises ShortageError if the task has to wait.
        """
        argv = task.argv or request.argv
        own = {stream: output_name(request.id, task.taskid, stream) for stream in STREAMS}
        labeled = {each: lines_name(request.id, task.taskid, each) for each in request.labeled}
        truncated = None if request.append else emptied
        try:
            with (
                self._inputs.pipe(request.id, task.taskid, wanted=request.input) as pipe,
                open_streams(
                    directory, own, task.files, request.cwd, truncated, pipe, labeled
                ) as files,
                self._on_cores(task.cores),
            ):
                stdin, stdout, stderr = files
                if says:
                    os.write(stderr, says.encode(errors="surrogateescape"))
                if not argv[0]:  # Popen would try the directories of PATH, and be refused
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
                return subprocess.Popen(
                    argv,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=request.cwd,
                    env=request.env
                    | task.env
                    | variables(pmi, task.taskid, len(request.tasks))
                    | self._orphans.mark(request.id),
                    pass_fds=() if pmi is None else (pmi,),
                    start_new_session=True,
                    preexec_fn=limiting(request.limits),
                )
        except OSError as error:
            paths = [f"{directory.path}/{name}" for name in own.values()]
            return _failure(error, request, task, argv[0], paths)
        except (ValueError, subprocess.SubprocessError) as error:  # NUL in a string, a wrong limit
            return Failed(task.taskid, STATUS_NOT_EXECUTED, f"{argv[0]}: {error}")

    @contextmanager
    def _on_cores(self, cores: list[int]) -> Iterator[None]:
        """Bind this thread while it creates a child, which inherits the binding.

        Binding the child later would miss its first threads, and binding it between fork and exec
        would prevent vfork. If this machine does not have the cores, the target is simulated
        (`--test-size`), and nothing is bound.
        """
        wanted = set(cores)
        if not wanted or not wanted < self._cores:
            yield
            return
        os.sched_setaffinity(0, wanted)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._cores)


def _failure(error: OSError, request: Start, task: Task, program: str, paths: list[str]) -> Failed:
    """Return why a task was not started. Raises ShortageError if this host lacked something.

    `paths` are the host's own files of the task.
    """
    if is_shortage(error, paths, program, has_limits=bool(request.limits)):
        raise ShortageError(describe_shortage(error, paths)) from None
    is_missing = isinstance(error, FileNotFoundError) and error.filename == program
    status = STATUS_NOT_FOUND if is_missing else STATUS_NOT_EXECUTED
    text = f"{error.filename}: {error.strerror}"
    _tell_in_file(request, task, f"task {task.taskid}: start failed: {text}")
    return Failed(task.taskid, status, text)


def _tell_in_file(request: Start, task: Task, text: str) -> None:
    """Append a line to the file of a task's errors, if it has one that can be written."""
    if "stderr" in task.files:
        with suppress(OSError), open_output(place(request.cwd, task.files["stderr"])) as output:
            os.write(output, f"{text}\n".encode(errors="surrogateescape"))
