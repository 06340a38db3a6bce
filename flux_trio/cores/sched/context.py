"""The state that the parts of the scheduler share: the outbox, the schedule, the alloc states."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from flux_trio.cores.outbox import Outbox
from flux_trio.cores.stored_jobs import JobsWanted
from flux_trio.cores.turns import CommonAction, CommonInput, Exit, Log
from flux_trio.editions import Edition, job_requests
from flux_trio.formats.meanings import JobId, Number
from flux_trio.messages import Errno, Level, Response, topics
from flux_trio.policies import Schedule
from flux_trio.protocols import Allocs

HelloNumber: TypeAlias = Annotated[int, Number("hello")]
GrantNumber: TypeAlias = Annotated[int, Number("grant")]

RAISE_AGAIN_S: Final = 1.0  # before an exception is raised again to a job manager with a full inbox


class Acquired(msgspec.Struct, frozen=True):
    """Answers resource.acquire: each response changes the resources."""


class Released(msgspec.Struct, frozen=True):
    """Answers resource.release."""


class HelloSaid(msgspec.Struct, frozen=True):
    """Answers the sched-hello with this number: one job in each response."""

    hello: HelloNumber


class HoldersRead(msgspec.Struct, frozen=True):
    """Answers a lookup of R of `jobs`, which came in answers to the hello with this number."""

    hello: HelloNumber
    jobs: JobsWanted


class ReadyHeard(msgspec.Struct, frozen=True):
    """Answers the sched-ready that followed the hello with this number."""

    hello: HelloNumber


class GrantsStored(msgspec.Struct, frozen=True):
    """Answers the commit of R for these grants: job ids, each with the number of its grant."""

    grants: tuple[tuple[JobId, GrantNumber], ...]


class ExceptionRaised(msgspec.Struct, frozen=True):
    """Answers job-manager.raise for a fatal exception of `jobid`."""

    jobid: JobId
    kind: str
    note: str


SchedCall: TypeAlias = (
    Acquired | Released | HelloSaid | HoldersRead | ReadyHeard | GrantsStored | ExceptionRaised
)
SchedTimer: TypeAlias = Literal["annotate", "rerank", "raise"]
SchedInput: TypeAlias = CommonInput[SchedTimer]
SchedAction: TypeAlias = CommonAction[SchedTimer]


class Context(Outbox[SchedCall, SchedAction, SchedTimer]):
    """The outbox, and the state that all parts share."""

    schedule: Schedule
    allocs: Allocs
    _refused: list[ExceptionRaised]

    def __init__(self, schedule: Schedule, edition: Edition) -> None:
        super().__init__(edition)
        self.edition = edition
        self.schedule = schedule
        self.allocs = Allocs()
        self._refused = []  # exceptions that a full inbox has refused

    def log_error(self, text: str) -> None:
        self.send(Log(Level.ERR, text))

    def raise_exception(self, jobid: int, kind: str, note: str) -> None:
        """Raise a fatal exception of a job, so that it stops using its resources."""
        raised = job_requests.Raise(jobid, kind, 0, note)
        call = ExceptionRaised(jobid, kind, note)
        self.ask(topics.JOB_RAISE, job_requests.RAISE.write(raised), call)

    def raise_answered(self, raised: ExceptionRaised, response: Response) -> None:
        """Raise the exception again later if the inbox of the job manager was full.

        Other errors are ignored. If the job manager has ended, the exceptions that are still due
        are raised after the next hello.
        """
        if response.errnum == Errno.EAGAIN:
            self._refused.append(raised)
            self.set_timer("raise", self.now + RAISE_AGAIN_S)

    def raise_again(self) -> None:
        """Raise the exceptions that were refused."""
        refused, self._refused = self._refused, []
        for each in refused:
            self.raise_exception(each.jobid, each.kind, each.note)

    def forget_refused(self) -> None:
        """Drop the exceptions to raise again: the job manager is gone."""
        self._refused.clear()
        self.clear_timer("raise")

    def give_up(self, reason: str) -> None:
        """Log `reason` and end the scheduler, as RFC 27 and 28 require for errors of a peer."""
        self.log_error(reason)
        self.send(Exit(reason))
