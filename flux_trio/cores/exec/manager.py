"""The conversation with the job manager, except start requests: hello, and why jobs wait.

A service that cannot start jobs would fail every job that it gets. So it says hello only when the
shell host answers, and takes the hello back if no shell host can be started. If another service has
said hello, this one keeps quiet until the other one has left (readings: Exec override at start).
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import PLACE, PLACE_S, ExecOutbox, HelloSaid, ServiceAsked
from flux_trio.cores.exec.guest import Guests
from flux_trio.cores.exec.job import Jobs, Phase
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Exit, Log
from flux_trio.editions import Edition, exec_requests, rfc33
from flux_trio.editions.rfc32 import Hello
from flux_trio.formats.meanings import Time
from flux_trio.messages import Errno, Event, FluxError, Level, Request, Response, respond, topics
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import ExecLink, ExecLinkEvent, ExecLinkState

SHELL_IS_BACK: Final = "the shell host answers again"
STARTS_AGAIN: Final = "the shell host starts jobs again"


class Manager(Part):
    """The job manager; it knows this service by the name `service`.

    With `needs_shell` the service can start no job while no shell host answers.
    """

    sender: str
    owner: int
    other: str
    settling: list[Request]
    attached_at: Time | None
    _set_back: float
    _link: ExecLink
    _hindrance: str
    _reported_reason: str

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        starts: Starts,
        guests: Guests,
        real: RealJobs,
        service: str,
        edition: Edition,
        *,
        needs_shell: bool,
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._guests = guests
        self._real = real
        self.service = service
        self._edition = edition
        self._needs_shell = needs_shell
        self.sender = topics.JOB_MANAGER  # of the latest start request
        self.owner = -1  # userid of its sender: the instance owner's
        self.attached_at = None  # time of the latest hello that was accepted
        self._set_back = 0.0  # seconds by which the wall clock was set back, all in all
        self._link = ExecLink()
        self.other = ""  # the service that runs jobs in place of this one, or has run them
        self.settling = []  # requests that wait until it is settled who runs jobs
        self._hindrance = ""  # why there is no shell host
        self._reported_reason = ""  # the reason last sent to the job manager

    @property
    def is_attached(self) -> bool:
        """Return whether the job manager has accepted the hello, and has not left."""
        return self._link.state is ExecLinkState.ATTACHED

    # Hello

    def hello_if_able(self) -> None:
        """Say hello, unless another service runs jobs, or jobs need a shell host and none answers.

        A service that was just loaded knows of no other: its operator wants it to run jobs.
        """
        if self._link.state is ExecLinkState.ASKED:
            return  # the answer to the hello that is sent decides
        if not self.other and (not self._needs_shell or self._real.is_connected):
            self._hello()

    def _hello(self) -> None:
        self._step(ExecLinkEvent.HELLO)
        self._outbox.ask(
            topics.EXEC_HELLO, self._edition.exec_hello.write(Hello(self.service)), HelloSaid()
        )

    def hello_answered(self, response: Response) -> bool:
        """Return whether hello was accepted; end the service if it was refused."""
        if not response.errnum:
            self._step(ExecLinkEvent.ACCEPTED)
            self.attached_at, self.other = self._outbox.now, ""
            return True
        if response.errnum == Errno.ENOSYS:  # the broker answers: there is no job manager now
            self._step(ExecLinkEvent.ENOSYS)
        else:  # 32.hello.9
            self._outbox.send(Exit(f"{response.topic}: {response.error_text}"))
        return False

    def is_back(self) -> None:
        """Say hello to a job manager that has just registered its name."""
        if self._reason:
            self._report_reason()
        if self.other:  # it has heard of the job manager at the same time, and goes first
            self._outbox.set_timer(PLACE, self._outbox.now + PLACE_S)
        elif self._link.state is ExecLinkState.ABSENT:
            self._hello()

    def gone(self) -> None:
        """Detach from a job manager that has left; say hello again if possible."""
        if self.is_attached:
            self._detach(ExecLinkEvent.LOST)
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

    def _step(self, event: ExecLinkEvent) -> None:
        self._link.step(event, topics.JOB_MANAGER)

    def _detach(self, event: ExecLinkEvent) -> None:
        """Close the start streams, forget jobs that are being prepared; jobs that run go on."""
        self._step(event)
        self._starts.lost()
        for job in list(self._jobs.by_id.values()):
            if job.phase is Phase.PREPARING:
                del self._jobs.by_id[job.id]
                self._starts.forget(job.id)
                self._guests.forget(job)

    # Other services

    def ask_place(self) -> None:
        """Ask the job manager whether another service runs jobs."""
        if self.other:
            self._outbox.ask(topics.EXEC_SERVICE, None, ServiceAsked())

    def service_known(self, message: Event | Response) -> None:
        """Leave the jobs to another service, or take over from one that has left."""
        if isinstance(message, Response) and message.errnum:
            if message.errnum != Errno.ENOSYS:  # else the job manager is gone again
                self._outbox.set_timer(PLACE, self._outbox.now + PLACE_S)
            return
        try:
            place = exec_requests.PLACE.read(message)
        except FluxError as error:
            self._outbox.send(Log(Level.ERR, error.text))
            return
        if place.service and place.service != self.service:
            self.other = place.service
            if self.is_attached:
                self._withdraw()
        elif self.other and place.vacant and isinstance(message, Event):
            # another service that waited for this moment, too, goes first
            self._outbox.set_timer(PLACE, self._outbox.now + PLACE_S)
        elif self.other and place.vacant:
            self.other = ""
            self.hello_if_able()

    # Whether it is settled who runs jobs

    def wait_settled(self, request: Request) -> None:
        """job-exec.settled: answered when a service runs jobs, or when this one cannot."""
        self.settling.append(request)

    def forget(self, sender: str) -> None:
        """Do not answer a peer that is gone."""
        self.settling = [each for each in self.settling if each.sender != sender]

    def end_turn(self) -> None:
        """Tell whom it concerns what has changed in this turn."""
        self._report_changed_reason()
        is_said = self._link.state in (ExecLinkState.ATTACHED, ExecLinkState.ABSENT)
        is_settled = is_said or self.other or self._hindrance
        if self.settling and is_settled:
            for request in self.settling:
                self._outbox.send(respond(request))
            self.settling = []

    # Why jobs wait

    def shell_connected(self) -> None:
        """Say hello if needed: a shell host answers, so jobs can be started."""
        if self._hindrance:
            self._hindrance = ""
            self._outbox.send(Log(Level.INFO, SHELL_IS_BACK))
            self._report_reason()
        if self._link.state is ExecLinkState.SILENT:
            self.hello_if_able()

    def shell_failed(self, reason: str) -> None:
        """Note that no shell host can be started; log it once, however often this is called."""
        if reason == self._hindrance:
            return
        if not self._hindrance:
            self._outbox.send(Log(Level.ERR, reason))
        self._hindrance = reason
        if self.is_attached and self._needs_shell:
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
        self._detach(ExecLinkEvent.WITHDRAWN)
        self._report_reason()  # the disconnect made the job manager forget it

    def _report_changed_reason(self) -> None:
        """Tell the job manager if the reason why jobs wait has changed."""
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
