"""The conversation with the job manager, except start requests: hello, and why jobs wait.

A service that cannot start jobs would fail every job that it gets. So it says hello only when the
shell host answers, and takes the hello back if no shell host can be started.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from flux_trio.cores.exec.calls import ExecOutbox, HelloSaid
from flux_trio.cores.exec.job import Jobs, Phase
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Exit, Log
from flux_trio.editions import Edition, rfc33
from flux_trio.editions.rfc32 import Hello
from flux_trio.formats.meanings import Time
from flux_trio.messages import Errno, Level, Request, Response, topics
from flux_trio.messages.types import NORESPONSE

SHELL_IS_BACK: Final = "the shell host answers again"
STARTS_AGAIN: Final = "the shell host starts jobs again"


class Link(Enum):
    """Where the service stands with the job manager."""

    SILENT = "nothing is said: there is no shell host that could start a job"
    ASKED = "exec-hello is sent"
    UNHEARD = "exec-hello met ENOSYS: nobody holds the name of the job manager"
    ATTACHED = "exec-hello was accepted"


class Manager(Part):
    """The job manager; it knows this service by the name `service`.

    With `needs_shell` the service can start no job while no shell host answers.
    """

    sender: str
    owner: int
    attached_at: Time | None
    _set_back: float
    _link: Link
    _hindrance: str
    _reported_reason: str

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        starts: Starts,
        real: RealJobs,
        service: str,
        edition: Edition,
        *,
        needs_shell: bool,
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._real = real
        self.service = service
        self._edition = edition
        self._needs_shell = needs_shell
        self.sender = topics.JOB_MANAGER  # of the latest start request
        self.owner = -1  # userid of its sender: the instance owner's
        self.attached_at = None  # time of the latest hello that was accepted
        self._set_back = 0.0  # seconds by which the wall clock was set back, all in all
        self._link = Link.SILENT
        self._hindrance = ""  # why there is no shell host
        self._reported_reason = ""  # the reason last sent to the job manager

    @property
    def is_attached(self) -> bool:
        """Return whether the job manager has accepted the hello, and has not left."""
        return self._link is Link.ATTACHED

    # Hello

    def hello_if_able(self) -> None:
        """Say hello, unless jobs need a shell host and none answers."""
        if not self._needs_shell or self._real.is_connected:
            self._hello()

    def _hello(self) -> None:
        self._link = Link.ASKED
        self._outbox.ask(
            topics.EXEC_HELLO, self._edition.exec_hello.write(Hello(self.service)), HelloSaid()
        )

    def hello_answered(self, response: Response) -> bool:
        """Return whether hello was accepted; end the service if it was refused."""
        if not response.errnum:
            self._link, self.attached_at = Link.ATTACHED, self._outbox.now
            return True
        if response.errnum == Errno.ENOSYS:  # the broker answers: there is no job manager now
            self._link = Link.UNHEARD
        else:  # 32.hello.9
            self._outbox.send(Exit(f"{response.topic}: {response.error_text}"))
        return False

    def is_back(self) -> None:
        """Say hello to a job manager that has just registered its name."""
        if self._reason:
            self._report_reason()
        if self._link is Link.UNHEARD:
            self._hello()

    def gone(self) -> None:
        """Detach from a job manager that has left; say hello again if possible."""
        if self._link is Link.ATTACHED:
            self._detach()
            self.hello_if_able()

    def clock_stepped(self, by: float) -> None:
        """Move the time of the hello: the times in R follow the wall clock."""
        self._set_back -= min(by, 0.0)
        if self.attached_at is not None:
            self.attached_at += by

    def is_later(self, at: Time) -> bool:
        """Return whether the time `at` of R is surely after the hello that was accepted.

        If the clock was set back, a time that the clock had reached before does not count, since an
        earlier moment may have had it. A time in the future does not count either: the clock may
        have been set back before this service started.
        """
        if self.attached_at is None:
            return False
        return self.attached_at + self._set_back < at <= self._outbox.now

    def _detach(self) -> None:
        """Close the start streams, forget jobs that are being prepared; jobs that run go on."""
        self._link = Link.SILENT
        self._starts.lost()
        for job in list(self._jobs.by_id.values()):
            if job.phase is Phase.PREPARING:
                del self._jobs.by_id[job.id]
                self._starts.forget(job.id)

    # Why jobs wait

    def shell_connected(self) -> None:
        """Say hello if needed: a shell host answers, so jobs can be started."""
        if self._hindrance:
            self._hindrance = ""
            self._outbox.send(Log(Level.INFO, SHELL_IS_BACK))
            self._report_reason()
        if self._link is Link.SILENT:
            self._hello()

    def shell_failed(self, reason: str) -> None:
        """Note that no shell host can be started; log it once, however often this is called."""
        if reason == self._hindrance:
            return
        if not self._hindrance:
            self._outbox.send(Log(Level.ERR, reason))
        self._hindrance = reason
        if self._link is Link.ATTACHED and self._needs_shell:
            self._withdraw()
        else:
            self._report_reason()

    def withdraw_if_hindered(self) -> None:
        """Take the hello back if no shell host can be started."""
        if self._hindrance:
            self._withdraw()

    def _withdraw(self) -> None:
        """Take the hello back, so that jobs with resources wait in RUN.

        This is done by a disconnect, which ends the outstanding starts (readings: Exec override).
        An error response to a start would end them too, but breaks 32.impl.5.
        """
        farewell = topics.disconnect_of(topics.JOB_MANAGER)
        self._outbox.send(Request(farewell, flags=NORESPONSE))
        self._detach()
        self._report_reason()  # the disconnect made the job manager forget it

    def report_changed_reason(self) -> None:
        """Tell the job manager, at the end of a turn, if the reason why jobs wait has changed."""
        if self._reason == self._reported_reason:
            return
        if not self._reported_reason:
            self._outbox.send(Log(Level.ERR, self._reason))
        elif not self._reason:
            self._outbox.send(Log(Level.INFO, STARTS_AGAIN))
        self._report_reason()

    @property
    def _reason(self) -> str:
        return self._hindrance or self._real.postponements.reason

    def _report_reason(self) -> None:
        """Send the reason why jobs wait, which `queue status` shows; "" if they do not wait."""
        self._reported_reason = self._reason
        reason = rfc33.HINDRANCE.write(rfc33.Hindrance(self._reported_reason))
        self._outbox.send(Request(topics.JOB_HINDRANCE, reason, flags=NORESPONSE))
