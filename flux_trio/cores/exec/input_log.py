"""`guest.input` of a job: what Flux's own programs have sent to its tasks, as RFC 24 has it.

The header is there before the job manager is told of the start, with a redirect event if the tasks
read a file. Data events are collected for `input.batch-timeout` seconds, so that a program which
sends line after line does not make a commit of each; the end of input is committed at once. All of
it is kept in the kvs, so a job may get `input.limit` bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.calls import ExecOutbox, TimerKey, TimerKind
from flux_trio.cores.exec.job import Job
from flux_trio.cores.kvs_calls import commit_values
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests, flux_kvs, rfc24
from flux_trio.formats import Event, format_eventlog
from flux_trio.formats.meanings import KvsOp
from flux_trio.messages import Flag

INPUT: Final = "input"
"""The key of the log in the job's own namespace."""
BATCH_BYTES_MAX: Final = 1 << 16  # of data that is collected; more is committed at once


class InputLog(Part):
    """The logs of all jobs."""

    def __init__(self, outbox: ExecOutbox) -> None:
        self._outbox = outbox

    def begins(self, job: Job) -> list[KvsOp]:
        """Return what writes the beginning of the log, in the job's own namespace."""
        assert job.start is not None  # it was laid out before it ran
        now, path = self._outbox.now, job.start.tasks[0].files.get(rfc24.STDIN)
        if path is None and not job.start.input:
            return []
        events = [Event(now, rfc24.HEADER, rfc24.write(rfc24.input_header()))]
        if path is not None:
            redirect = rfc24.Redirect(rfc24.STDIN, rfc24.ALL, path)
            events.append(Event(now, rfc24.REDIRECT, rfc24.write(redirect)))
        return [["put", INPUT, format_eventlog(events)]]

    def add(self, job: Job, sent: exec_requests.Input) -> None:
        """Log data, or the end, that goes to tasks of the job."""
        data = (
            rfc24.output(rfc24.STDIN, sent.ranks, sent.data)
            if sent.data
            else rfc24.Data(rfc24.STDIN, sent.ranks)
        )
        data = msgspec.structs.replace(data, eof=sent.eof or None)
        job.input_log.append(Event(self._outbox.now, rfc24.DATA, rfc24.write(data)))
        job.input_pending += len(sent.data)
        timer = TimerKey(TimerKind.INPUT, job.id)
        if sent.eof or job.input_pending >= BATCH_BYTES_MAX or not job.input_rules.batch_s:
            self.flush(job)
        elif timer not in self._outbox.timers:
            self._outbox.set_timer(timer, self._outbox.now + job.input_rules.batch_s)

    def flush(self, job: Job) -> None:
        """Commit what was collected."""
        self._outbox.clear_timer(TimerKey(TimerKind.INPUT, job.id))
        events, job.input_log, job.input_pending = job.input_log, [], 0
        if events:
            ops: list[KvsOp] = [["append", INPUT, format_eventlog(events)]]
            commit = commit_values(ops, flux_kvs.namespace_of(job.id))
            self._outbox.send(self._outbox.request_kvs(commit, flags=int(Flag.NORESPONSE)))
