"""The conversation with the job manager beside its start requests: hello, and why jobs wait.

A service that says hello while it can start no job would fail every job that it is given. So hello
waits for the shell host, and is taken back when no shell host can be started.
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
    """How far the conversation with the job manager is."""

    SILENT = "nothing is said: there is no shell host that could start a job"
    ASKED = "exec-hello is sent"
    UNHEARD = "exec-hello met ENOSYS: nobody holds the name of the job manager"
    ATTACHED = "exec-hello was accepted"


class Manager(Part):
    """The job manager as this service knows it; `service` is the name that it is told.

    With `needs_shell` no job can be started while no shell host answers.
    """

    sender: str
    owner: int
    attached_at: Time | None
    _link: Link
    _hindrance: str
    _told_reason: str

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
        self.owner = -1  # and its userid: the instance owner's
        self.attached_at = None  # time of the latest hello that was accepted
        self._link = Link.SILENT
        self._hindrance = ""  # why there is no shell host
        self._told_reason = ""  # why jobs wait for this service, as the job manager was told last

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
        """Whether hello was accepted."""
        if not response.errnum:
            self._link, self.attached_at = Link.ATTACHED, self._outbox.now
            return True
        if response.errnum == Errno.ENOSYS:  # the broker's: there is no job manager now
            self._link = Link.UNHEARD
        else:  # 32.hello.9
            self._outbox.send(Exit(f"{response.topic}: {response.error_text}"))
        return False

    def is_back(self) -> None:
        """Somebody holds the name of the job manager, who has heard nothing yet."""
        if self._reason:
            self._tell_reason()
        if self._link is Link.UNHEARD:
            self._hello()

    def gone(self) -> None:
        """The job manager has left; it is told of what runs when it is back."""
        if self._link is Link.ATTACHED:
            self._detach()
            self.hello_if_able()

    def clock_stepped(self, by: float) -> None:
        """The wall clock was set by `by` seconds, and R is written by it."""
        if self.attached_at is not None:
            self.attached_at += by

    def _detach(self) -> None:
        """The start requests end; what runs goes on, and is told to who asks next."""
        self._link = Link.SILENT
        self._starts.lost()
        for job in list(self._jobs.by_id.values()):
            if job.phase is Phase.PREPARING:
                del self._jobs.by_id[job.id]
                self._starts.forget(job.id)

    # Why jobs wait

    def shell_connected(self) -> None:
        """A shell host answers, so that jobs can be started."""
        if self._hindrance:
            self._hindrance = ""
            self._outbox.send(Log(Level.INFO, SHELL_IS_BACK))
            self._tell_reason()
        if self._link is Link.SILENT:
            self._hello()

    def shell_failed(self, reason: str) -> None:
        """No shell host can be started. Told again as long as it lasts; the log has it once."""
        if reason == self._hindrance:
            return
        if not self._hindrance:
            self._outbox.send(Log(Level.ERR, reason))
        self._hindrance = reason
        if self._link is Link.ATTACHED and self._needs_shell:
            self._withdraw()
        else:
            self._tell_reason()

    def withdraw_if_hindered(self) -> None:
        """Take back a hello that was said before the shell host was lost."""
        if self._hindrance:
            self._withdraw()

    def _withdraw(self) -> None:
        """No job can be started: take back the hello, so that jobs with resources wait in RUN.

        A disconnect ends what is outstanding (readings: Exec override); an error response to a
        start would do so too, but breaks 32.impl.5.
        """
        farewell = topics.disconnect_of(topics.JOB_MANAGER)
        self._outbox.send(Request(farewell, flags=NORESPONSE))
        self._detach()
        self._tell_reason()  # it was forgotten with the rest

    def tell_changed_reason(self) -> None:
        """At the end of a turn: what the shell host lacks has changed, or is there again."""
        if self._reason == self._told_reason:
            return
        if not self._told_reason:
            self._outbox.send(Log(Level.ERR, self._reason))
        elif not self._reason:
            self._outbox.send(Log(Level.INFO, STARTS_AGAIN))
        self._tell_reason()

    @property
    def _reason(self) -> str:
        return self._hindrance or self._real.postponements.reason

    def _tell_reason(self) -> None:
        """Let `queue status` say why jobs wait for this service, or no longer."""
        self._told_reason = self._reason
        reason = rfc33.HINDRANCE.write(rfc33.Hindrance(self._told_reason))
        self._outbox.send(Request(topics.JOB_HINDRANCE, reason, flags=NORESPONSE))
