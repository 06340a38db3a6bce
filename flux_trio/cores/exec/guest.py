"""What Flux's own programs find of a job that runs: its exec eventlog, and its standard input.

`flux run` and `flux job attach` follow `guest.exec.eventlog` and begin with the job's output when
`shell.init` is there, as flux-core's shell writes it. The event names the service by which they
send standard input: `<userid>-shell-<job id>`, which this service holds while the job runs.

The job has its namespace `job-<id>` in the kvs from then on, a view of its key `guest`, which its
user may read and write. The first events are put there in one commit before the job manager is told
of the start. The kvs keeps the order of commits. So a job whose eventlog has `start` has them, and
one that is started once more writes them once more. The last ones come with the end of the output
(`storing.py`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.exec.calls import ExecOutbox, StoredKey
from flux_trio.cores.exec.input_log import InputLog
from flux_trio.cores.exec.job import Job
from flux_trio.cores.kvs_calls import commit_values
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests, flux_kvs, rfc21
from flux_trio.formats import (
    FormatError,
    apply_update,
    format_eventlog,
    format_fluid,
    job_key,
    parse_fluid,
    treeobj,
    value_at,
)
from flux_trio.formats.meanings import JobId, JsonObject, KvsOp
from flux_trio.messages import Flag, Payload, Request, topics

STDIN: Final = "attributes.system.shell.options.input.stdin"
STDIN_METHOD: Final = "stdin"
EXEC_LOG: Final = StoredKey.EXEC_LOG.value.removeprefix("guest.")
"""The key of the exec eventlog in the job's own namespace."""
SHELL_SERVICE: Final = "-shell-"


def with_input(jobspec: JsonObject) -> JsonObject:
    """Return the jobspec with flux-core's default: tasks read what commands send.

    A jobspec that has no room for it is returned as it is; the service says what is wrong with it.
    """
    try:
        if value_at(jobspec, STDIN) is None:
            return apply_update(jobspec, STDIN, exec_requests.stdin("service"))
    except FormatError:
        pass
    return jobspec


def shell_service(job: Job) -> str:
    """Return the name of the service that takes the job's standard input."""
    return f"{job.userid}{SHELL_SERVICE}{format_fluid(job.id, 'f58plain')}"


def job_of_shell(topic: str) -> JobId | None:
    """Return the job whose standard input a request is for; None for another request."""
    service, _, method = topic.partition(".")
    _, is_shell, jobid = service.partition(SHELL_SERVICE)
    if not is_shell or method != STDIN_METHOD:
        return None
    try:
        return parse_fluid(jobid)
    except FormatError:
        return None


class Guests(Part):
    """Tells Flux's own programs of jobs, if `is_kept`; otherwise the log comes at a job's end."""

    def __init__(self, outbox: ExecOutbox, inputs: InputLog, *, is_kept: bool) -> None:
        self._outbox = outbox
        self._inputs = inputs
        self._is_kept = is_kept

    def prepare(self, job: Job) -> None:
        """Let the tasks of `job` read what commands send, as in flux-core."""
        if self._is_kept:
            job.jobspec = with_input(job.jobspec)

    def started(self, job: Job) -> None:
        """Note that the tasks of `job` run."""
        now = self._outbox.now
        if not self._is_kept:
            job.note(now, "shell.start")
            return
        if job.reattach:
            job.exec_log.clear()  # the service before has written these events
            job.note(now, "reattach")
        else:
            shell = exec_requests.ShellInit(shell_service(job), _leader(job), len(set(job.nodes)))
            job.note(now, "shell.init", msgspec.to_builtins(shell))
            job.note(now, "shell.start", exec_requests.taskmap(job.nodes))
        job.has_shell_service = True
        self._outbox.send(_named(topics.BROKER_REGISTER, shell_service(job)))
        self._outbox.send(_silent(topics.KVS_NAMESPACE_CREATE, namespace_of(job)))
        how, _, events = self._op(job)
        ops = [[how, EXEC_LOG, events], *([] if job.reattach else self._inputs.begins(job))]
        log = commit_values(ops, job_namespace(job.id))
        self._outbox.send(self._outbox.request_kvs(log, flags=int(Flag.NORESPONSE)))

    def end_ops(self, job: Job, now: float) -> list[KvsOp]:
        """Note how `job` has ended; return what writes the events that are not written yet."""
        assert job.status is not None  # the job is over
        if self._is_kept:
            shell = exec_requests.ShellExit(_leader(job), job.status)
            job.note(now, "shell-exit", msgspec.to_builtins(shell))
        job.note(now, "complete", rfc21.write(rfc21.Finish(job.status)))
        job.note(now, "done")
        return [self._op(job), *self._inputs.pop_ops(job)]

    def forget(self, job: Job) -> None:
        """Take no more standard input for `job`, and close its namespace: what it holds stays."""
        if job.has_shell_service:
            self._outbox.send(_named(topics.BROKER_UNREGISTER, shell_service(job)))
            gone = flux_kvs.NAMESPACE.write(flux_kvs.Namespace(job_namespace(job.id)))
            self._outbox.send(_silent(topics.KVS_NAMESPACE_REMOVE, gone))

    def _op(self, job: Job) -> KvsOp:
        events, job.exec_log = format_eventlog(job.exec_log), []
        is_first = not job.is_logged and not (self._is_kept and job.reattach)
        job.is_logged = True
        return ["put" if is_first else "append", job_key(job.id, StoredKey.EXEC_LOG.value), events]


def _leader(job: Job) -> int:
    """Return the rank of the job's first node, which has the leader of flux-core's shells."""
    assert job.resources is not None
    return next(iter(job.resources.ranks))


def job_namespace(jobid: JobId) -> str:
    """Return the name of a job's own namespace of the kvs (RFC 16)."""
    return f"job-{jobid}"


def namespace_of(job: Job) -> Payload:
    """Return the request that opens the job's namespace; its user may read and write there."""
    name, root = job_namespace(job.id), treeobj.empty_root("sha1")
    asked = flux_kvs.NamespaceCreate(name, root, job.userid, 0)
    return flux_kvs.NAMESPACE_CREATE.write(asked)


def _named(topic: str, service: str) -> Request:
    return _silent(topic, exec_requests.SERVICE.write(exec_requests.Service(service)))


def _silent(topic: str, payload: Payload) -> Request:
    """Return a request that wants no answer: a name that is there already, or gone, is right."""
    return Request(topic, payload, flags=int(Flag.NORESPONSE))
