"""Submit one or many jobs: copies, logs, waiting, output, progress.

`submit` and `bulksubmit` share this code. Each job is sent, its id is printed as soon as the job is
stored, and then the job is watched if an option asks for it. If a job is refused, the error is
printed, the other jobs are still submitted, and the exit code is at least 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import click

from flux_trio.cli.follow.output import Outputs, into, standard_outputs
from flux_trio.cli.follow.watching import AT_ONCE, Watcher, progress_bar
from flux_trio.cli.submit.replacing import replaced
from flux_trio.cli.submit.submit_options import make_jobspec, tell_default, tell_ignored
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.shown_values import shown_id
from flux_trio.formats import Idset, apply_update
from flux_trio.messages import FluxError

if TYPE_CHECKING:
    from flux_trio.cli.follow.progress import JobProgress
    from flux_trio.cli.submit.submission import Submission
    from flux_trio.client import Client, Job

SENDERS: Final = 256  # submissions without a response at a time
WAIT_EVENT: Final = "clean"  # of --wait


@dataclass(frozen=True, kw_only=True)
class BulkOptions:
    """The options that do not describe the job; each field is the option of its name."""

    wait: bool = False
    wait_event: str | None = None
    watch: bool = False
    progress: bool = False
    jps: bool = False
    quiet: bool = False
    verbose: int = 0
    label_io: bool = False

    @property
    def until(self) -> str | None:
        """The event that ends the wait; None means the end of the output."""
        return self.wait_event or (WAIT_EVENT if self.wait else None)

    @property
    def watches(self) -> bool:
        """Whether jobs are watched after they are submitted."""
        return self.watch or self.until is not None


@dataclass(frozen=True)
class Copy:
    """One job to submit."""

    submission: Submission
    label: str  # printed in front of errors
    jobspec_file: str | None = None
    cc: int | None = None  # the value of FLUX_JOB_CC

    def jobspec(self) -> dict[str, Any]:
        """The RFC 25 object. Raises CommandError."""
        jobspec = make_jobspec(self.submission, self.jobspec_file).to_json()
        if self.cc is None:
            return jobspec
        place = "attributes.system.environment.FLUX_JOB_CC"
        return apply_update(jobspec, place, str(self.cc))

    def request(self) -> dict[str, Any]:
        """Return the arguments of `Client.submit`. Raises CommandError."""
        return {
            "jobspec": self.jobspec(),
            "urgency": self.submission.urgency_number(),
            "flags": self.submission.flag_mask(),
        }


def copies(submission: Submission, jobspec_file: str | None = None) -> list[Copy]:
    """Return the job, or one copy for each id of --cc or --bcc. Raises CommandError."""
    try:
        if submission.cc is not None and submission.bcc is not None:
            raise ValueError("specify only one of --cc or --bcc")
        option, text = ("--cc", submission.cc)
        if text is None:
            option, text = ("--bcc", submission.bcc)
        if text is None:
            return [Copy(submission, "", jobspec_file)]
        made = []
        for number in _numbers(option, text):
            copy = replaced(submission, (), {"cc": number})
            cc = None if submission.cc is None else number
            made.append(Copy(copy, f"cc={number}: ", jobspec_file, cc))
    except ValueError as error:
        raise CommandError(str(error)) from None
    return made


def _numbers(option: str, text: str) -> Idset:
    try:
        numbers = Idset.parse(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if not numbers:
        raise ValueError(f"{option}: expected at least one id, got {text!r}")
    return numbers


def submit_all(jobs: Sequence[Copy], bulk: BulkOptions) -> int:
    """Submit and watch the jobs as `bulk` says; return the exit code. Raises CommandError."""
    from flux_trio.cli.connection.session import with_client

    jobs[0].request()  # an error in every job is reported before the first is sent
    tell_ignored(jobs[0].submission)

    async def run(client: Client) -> int:
        what = "" if bulk.watches else f"Submitting {len(jobs)} jobs:"
        bar = progress_bar(bulk.progress, len(jobs), what=what, jps=bulk.jps)
        with ExitStack() as files, bar as progress:
            outputs = progress.outputs() if progress else standard_outputs()
            return await _Bulk(client, bulk, progress, _Logs(files, outputs)).run(jobs)

    return with_client(run)


class _Logs:
    """The outputs of each job: --log and --log-stderr, else the command's own streams."""

    def __init__(self, files: ExitStack, outputs: Outputs) -> None:
        self._files = files
        self._outputs = outputs
        self._open: dict[str, Any] = {}

    def of(self, submission: Submission) -> Outputs:
        """Raises CommandError if a file cannot be written."""
        out, err = self._outputs.stdout, self._outputs.stderr
        if submission.log is not None:
            out = err = self._sink(submission.log)
        if submission.log_stderr is not None:
            err = self._sink(submission.log_stderr)
        return replace(self._outputs, stdout=out, stderr=err)

    def _sink(self, path: str) -> Any:
        if path not in self._open:
            try:
                file = self._files.enter_context(click.open_file(path, "wb"))
            except OSError as error:
                raise CommandError(f"{path}: {error.strerror}") from None
            self._open[path] = into(file)
        return self._open[path]


class _Bulk:
    """One run of `submit_all`."""

    def __init__(
        self, client: Client, bulk: BulkOptions, progress: JobProgress | None, logs: _Logs
    ) -> None:
        self._client = client
        self._bulk = bulk
        self._progress = progress
        self._logs = logs
        self._refused = False
        self._unlimited: set[str | None] = set()  # the queues of jobs with a time limit of 0
        self._watcher = Watcher(
            client=client,
            until=bulk.until,
            output=bulk.watch,
            label=bulk.label_io,
            verbose=bulk.verbose,
            progress=progress,
        )

    async def run(self, jobs: Sequence[Copy]) -> int:
        left = iter(jobs)
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as watches, anyio.create_task_group() as senders:
            for _ in range(min(SENDERS, len(jobs))):
                senders.start_soon(self._send, left, watches, limit)
        return max(self._watcher.exit_code, int(self._refused))

    async def _send(
        self, left: Iterator[Copy], watches: anyio.abc.TaskGroup, limit: anyio.CapacityLimiter
    ) -> None:
        for job in left:
            outputs = self._logs.of(job.submission)
            try:
                submitted = await self._client.submit(**job.request())
            except FluxError as error:
                self._refuse(job, error, outputs)
                continue
            jobid = submitted.id
            if not self._bulk.quiet:
                outputs.line(shown_id(jobid))
            await self._tell_default(job.submission, submitted)
            if self._bulk.watches:
                watches.start_soon(self._watch, jobid, outputs, limit)
            elif self._progress is not None:
                self._progress.advance()

    async def _tell_default(self, submission: Submission, job: Job) -> None:
        """Tell of the first job of each queue if a default has replaced its time limit of 0."""
        if submission.duration() == 0 and submission.queue not in self._unlimited:
            self._unlimited.add(submission.queue)
            await tell_default(job)

    async def _watch(self, jobid: int, outputs: Outputs, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            await self._watcher.watch(jobid, outputs)

    def _refuse(self, job: Copy, error: FluxError, outputs: Outputs) -> None:
        self._refused = True
        context = click.get_current_context()
        outputs.remark(f"{context.command_path}: ERROR: {job.label}{error}")
        if self._progress is not None:
            self._progress.move("pending", "failed")
            self._progress.advance()
