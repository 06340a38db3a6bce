"""RFC 27, Hello and Ready: the scheduler learns which resources are allocated, and says ready.

    job-manager.sched-hello  → a response for each job with resources; R of each is looked up
                             → ENODATA
    job-manager.sched-ready  → once all R are read: {count}; then sched.alloc may come

A job whose R cannot be marked as allocated gets an exception, and ends.

While there is no job manager, the broker answers hello with ENOSYS. The scheduler then says hello
again when the event `service-back` tells that the job manager is back (readings: Job manager gone).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from flux_trio.config import SchedConfig
from flux_trio.cores.kvs_calls import LOOKUP_JOBS_MAX, values_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.sched.context import Context, HelloNumber, HelloSaid, HoldersRead, ReadyHeard
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import JobsWanted
from flux_trio.cores.turns import Note
from flux_trio.editions import rfc27
from flux_trio.formats import FormatError, Idset, ResourceSet, parse_r
from flux_trio.formats.meanings import Items, JobId, Json, RObject
from flux_trio.messages import Errno, FluxError, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.policies import PoolError
from flux_trio.protocols import AllocEvent, InvalidTransition, Link, LinkEvent, LinkState
from flux_trio.trace import Kind

# Looked up once: a message comes for each job.
_READY: Final = LinkState.READY
_DETACHED: Final = LinkState.DETACHED
_HELLO: Final = AllocEvent.HELLO

Holding: TypeAlias = Annotated[list[Any], Items((JobId, RObject))]


class Hello(msgspec.Struct):
    """The answers to one hello so far."""

    number: HelloNumber
    has_ended: bool = False
    """Whether ENODATA has come."""
    unread: list[JobId] = []
    """Jobs whose R is yet to be looked up."""
    freed: dict[JobId, int] = {}
    """The ranks, as a bit set, that are freed already of a job's R; only if there are any."""
    reads: int = 0
    """Number of lookups of R that are not answered yet."""
    allocated: list[Holding] = []
    """[id, R] of each job that holds resources."""


class Greeter(Part):
    """The link to the job manager. Each hello has a number, by which answers to an earlier hello
    are ignored.
    """

    _link: Link
    _hello: Hello
    said_in_this_turn: bool

    def __init__(self, context: Context, config: SchedConfig) -> None:
        self._context = context
        self._config = config
        self._link = Link()
        self._hello = Hello(0)
        self.said_in_this_turn = False

    @property
    def is_ready(self) -> bool:
        """Return whether sched-ready is answered, so that requests may come."""
        return self._link.state is _READY

    @property
    def has_begun(self) -> bool:
        """Return whether hello was said; the first hello follows the first grow."""
        return self._hello.number > 0

    @property
    def waits(self) -> bool:
        """Return whether hello is to be said when the job manager is back."""
        return self.has_begun and self._link.state is _DETACHED

    def say_hello(self) -> None:
        """Ask for the jobs that hold resources."""
        self._link.step(LinkEvent.HELLO, topics.JOB_MANAGER)
        self._hello = Hello(self._hello.number + 1)
        self.said_in_this_turn = True
        payload = self._context.edition.sched_hello.write(rfc27.Hello(partial_ok=True))
        self._context.ask(
            topics.SCHED_HELLO, payload, HelloSaid(self._hello.number), int(STREAMING)
        )

    def lost(self) -> None:
        """Detach the job manager, which is gone; the next one does not answer requests to it."""
        self._link.step(LinkEvent.LOST, topics.JOB_MANAGER)

    def is_current(self, number: int) -> bool:
        """Return whether the hello with this number is the last one, and the link is not lost."""
        return number == self._hello.number and self._link.state is not _DETACHED

    def hello_answered(self, call: HelloSaid, response: Response) -> None:
        """Take a response to hello: a job, or the end."""
        if not self.is_current(call.hello):
            return
        match response.errnum:
            case 0:
                self._job(response)
            case Errno.ENODATA:
                self._hello.has_ended = True
                if self._hello.unread:
                    self._read_holders()
                self._ready_if_complete()
            case Errno.ENOSYS:
                self.lost()
            case _:
                self._context.give_up(f"{response.topic}: {response.error_text}")

    def _job(self, response: Response) -> None:
        try:
            held = self._context.edition.held_job.read(response)
        except FluxError as error:
            self._context.give_up(error.text)
            return
        except FormatError as error:
            self._context.give_up(f"{response.topic}: {error}")
            return
        jobid = held.id
        try:
            self._context.allocs.step(jobid, _HELLO)
        except InvalidTransition as error:  # it came twice
            self._context.log_error(str(error))
            return
        if held.free:
            self._hello.freed[jobid] = held.free.bits
        self._hello.unread.append(jobid)
        if len(self._hello.unread) == page_size(LOOKUP_JOBS_MAX):
            self._read_holders()

    def _read_holders(self) -> None:
        """Look up R of the jobs that came in answers to hello since the last lookup."""
        wanted = JobsWanted(tuple(self._hello.unread), ("R",))
        self._hello.unread = []
        self._hello.reads += 1
        self._ask_holders(wanted)

    def _ask_holders(self, wanted: JobsWanted) -> None:
        self._context.ask_kvs(wanted.ask(), HoldersRead(self._hello.number, wanted))

    def holders_read(self, call: HoldersRead, response: Response) -> None:
        """Mark the resources of these jobs as allocated."""
        if not self.is_current(call.hello):
            return
        try:
            jobs, rest = call.jobs.take(values_in(response))
            for jobid, (text,) in jobs:
                self._mark(jobid, text)
        except (FluxError, ValueError) as error:
            self._context.give_up(f"{response.topic}: {error}")
            return
        if rest is not None:
            self._ask_holders(rest)
            return
        self._hello.reads -= 1
        self._ready_if_complete()

    def _mark(self, jobid: int, text: str | None) -> None:
        """Mark the resources in R, as `text`, as allocated to the job."""
        if text is None:
            self._refuse(jobid, "its R is not in the kvs")
            return
        freed = self._hello.freed.pop(jobid, 0)
        try:
            resources, written = parse_r(text), msgspec.json.decode(text)
            if freed:
                resources = self._rest_of(jobid, resources, Idset.from_bits(freed))
                written = resources.to_json() if resources else None
            self._context.schedule.mark(jobid, resources)
        except (PoolError, ValueError) as error:
            self._refuse(jobid, f"cannot hold its resources: {error}")
        else:
            if written is not None:
                self._hello.allocated.append([jobid, written])

    def _rest_of(self, jobid: int, resources: ResourceSet, freed: Idset) -> ResourceSet:
        """Return what the job holds yet, after the ranks that hello said are freed."""
        rest = resources.without_ranks(freed)
        if not rest or freed - resources.ranks:
            expected = f"free: expected some of the ranks {resources.ranks} of its R, got {freed}"
            self._context.log_error(f"{topics.SCHED_HELLO}: job {jobid}: {expected}")
        return rest

    def _refuse(self, jobid: int, note: str) -> None:
        """Raise an exception of a job whose resources cannot be marked, so that it ends."""
        self._context.log_error(f"job {jobid}: {note}")
        self._context.raise_exception(jobid, "scheduler-restart", note)

    def _ready_if_complete(self) -> None:
        if not self._hello.has_ended or self._hello.reads:
            return
        limit = self._config.limit if self._config.mode == "limited" else None
        ready = rfc27.Ready(self._config.mode, limit)
        payload = self._context.edition.sched_ready.write(ready)
        self._context.ask(topics.SCHED_READY, payload, ReadyHeard(self._hello.number))

    def ready_heard(self, call: ReadyHeard, response: Response) -> bool:
        """Take the answer to sched-ready; return whether requests may come from now on."""
        if not self.is_current(call.hello) or response.errnum == Errno.ENOSYS:
            return False  # the job manager is gone; its disconnect says so too
        if response.errnum:
            self._context.give_up(f"{response.topic}: {response.error_text}")
            return False
        self._link.step(LinkEvent.READY, topics.JOB_MANAGER)
        allocated: list[Json] = [*self._hello.allocated]
        self._context.send(
            Note(Kind.STATE, {"service": topics.SCHED, "allocated": allocated, "pending": 0})
        )
        self._hello.allocated = []
        return True
