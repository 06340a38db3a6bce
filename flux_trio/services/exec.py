"""The execution service: its core, the client of its shell host, and a reader of output files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, assert_never

import trio

from flux_trio.broker import Handle
from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.vocabulary import Chunk, FilePart, OutputRead, ReadOutput, ToShell
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import FluidForm
from flux_trio.messages import topics
from flux_trio.process.private import PrivateDirectory, private_directory
from flux_trio.process.threads import OWN
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import no_other_actions, run_core
from flux_trio.services.shell_client import ShellClient
from flux_trio.shell.protocol import JOBS_NAME, output_name

# reads that wait for the worker: at most one for each stream of output and each job that ends
READS_MAX: Final = 1 << 20
BATCH_BYTES_MAX: Final = 1 << 20  # of one visit to the thread; the last read may go beyond it


async def run(
    handle: Handle,
    *,
    directory: Path | None,
    config: ExecConfig,
    environment: Mapping[str, str] | None = None,
    id_form: FluidForm = "f58",
    service: str = topics.JOB_EXEC,
    edition: Edition = CLASSIC,
    guests: GuestSettings | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `service` until cancelled.

    `directory` is the shell host's; without it only simulated jobs can run. `environment` is added
    to a task's environment when the task starts. So FLUX_URI, with which commands in a job reach
    the instance, may be added later. `id_form` is the form of the job id in that environment. Jobs
    that run when the service ends go on, and are found again.
    """
    handle.register(service)
    handle.subscribe(topics.JOB_EXCEPTION_EVENT)
    handle.subscribe(topics.EXEC_SERVICE_EVENT)
    handle.subscribe(topics.SERVICE_BACK_EVENT)
    handle.subscribe(topics.RESOURCE_OFFLINE_EVENT)
    handle.subscribe(topics.RESOURCE_ONLINE_EVENT)
    turns = make_core(
        handle,
        ExecCore,
        config,
        environment=environment,
        id_form=id_form,
        has_shell=directory is not None,
        service=service,
        edition=edition,
        guests=guests,
    ).turns
    async with trio.open_nursery() as nursery:
        if directory is None:
            await run_core(handle, turns, no_other_actions, task_status=task_status)
            return
        client = ShellClient(directory, handle.post)
        to_read, reads = trio.open_memory_channel[ReadOutput](READS_MAX)
        nursery.start_soon(client.run)
        nursery.start_soon(_read_outputs, directory, reads, handle)

        def perform(action: ToShell | ReadOutput) -> None:
            match action:
                case ToShell(request):
                    client.send(request)
                case ReadOutput():
                    to_read.send_nowait(action)
                case _:
                    assert_never(action)

        await run_core(handle, turns, perform, task_status=task_status)


async def _read_outputs(
    directory: Path, reads: trio.MemoryReceiveChannel[ReadOutput], handle: Handle
) -> None:
    """Do the reads in order, in a thread; a batch of reads is bounded in bytes."""
    async for first in reads:
        waiting, nbytes = [first], _nbytes(first)
        while nbytes < BATCH_BYTES_MAX and reads.statistics().current_buffer_used:
            waiting.append(reads.receive_nowait())
            nbytes += _nbytes(waiting[-1])
        for read in await OWN.run(_read_all, directory, waiting, abandon_on_cancel=True):
            handle.post(read)


def _nbytes(read: ReadOutput) -> int:
    return sum(part.nbytes for part in read.parts)


def _read_all(directory: Path, reads: Iterable[ReadOutput]) -> list[OutputRead]:
    """Do some reads; without the directory of the jobs, no job has output."""
    with ExitStack() as left:
        jobs = None
        with suppress(FileNotFoundError):
            jobs = left.enter_context(
                private_directory(directory.parent, directory.name, JOBS_NAME)
            )
        return [
            OutputRead(
                read.number,
                read.id,
                tuple(chunk for part in read.parts for chunk in _read(jobs, read.id, part)),
            )
            for read in reads
        ]


_NO_FILE: Final = (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""The task was never launched, its job is acknowledged, or something else is in the place of its
file: then the shell host names the file when the job has ended."""


def _read(jobs: PrivateDirectory | None, jobid: int, part: FilePart) -> list[Chunk]:
    if jobs is None:
        return []
    try:
        output = jobs.open(output_name(jobid, part.taskid, part.stream), os.O_RDONLY)
        try:
            data = os.pread(output, part.nbytes, part.offset)
        finally:
            os.close(output)
    except OSError as error:
        if error.errno in _NO_FILE:
            return []
        raise
    return [Chunk(part.taskid, part.stream, part.offset, data)] if data else []
