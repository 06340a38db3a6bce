"""What must be so of a host's jobs, and of the output that was stored and streamed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flux_trio.cores.stored_jobs import output_key
from flux_trio.formats import format_fluid, job_key, parse_eventlog
from flux_trio.store.stores import Store
from tests.processes.host import HostedJob, ModelHost
from tests.processes.reader import Output, Reader, add_piece


def twice_launched(host: ModelHost) -> Iterator[str]:
    """No task is launched twice, whatever crashes."""
    for (jobid, taskid), count in host.launches.items():
        if count > 1:
            yield f"twice: task {taskid} of {_name(jobid)} was launched {count} times"


def wrong_at_rest(host: ModelHost, reader: Reader, store: Store) -> Iterator[str]:
    """The host keeps no job; all that tasks have written is stored; whole streams told all of it.

    Jobs that were purged have no output any more.
    """
    for jobid in host.jobs:
        yield f"kept: the host keeps {_name(jobid)}"
    kept = {
        jobid: job
        for jobid, job in host.launched.items()
        if store.lookup([job_key(jobid, "eventlog")])[0] is not None
    }
    for jobid, job in kept.items():
        stored = _stored(jobid, store)
        if stored != job.written:
            yield f"output: of {_name(jobid)} {_sizes(job)} were written, {_bytes(stored)} stored"
    for stream in reader.whole:
        of = kept.get(stream.jobid)
        if of is not None and dict(stream.told) != of.written:
            yield f"stream: of {_name(of.id)} {_sizes(of)} were written, {_bytes(stream.told)} told"
    for stream in reader.open.values():
        yield f"open: the stream of the output of {_name(stream.jobid)} has no end"


def _stored(jobid: int, store: Store) -> Output:
    found: Output = defaultdict(bytes)
    piece = 0
    while isinstance(text := store.lookup([job_key(jobid, output_key(piece))])[0], str):
        for event in parse_eventlog(text):
            if event.name == "data":
                add_piece(found, event.context or {})
        piece += 1
    return dict(found)


def _name(jobid: int) -> str:
    return format_fluid(jobid, "f58")


def _sizes(job: HostedJob) -> str:
    return _bytes(job.written)


def _bytes(output: Output) -> str:
    return ", ".join(f"{len(data)} bytes of {task}.{name}" for (task, name), data in output.items())
