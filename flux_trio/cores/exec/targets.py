"""Which execution targets are down, by the resource service. Pure.

No job can start on a target that is down, and processes there are lost: their whole job gets a
fatal exception that names the target (28.offline.5). A drained target is not down.
"""

from __future__ import annotations

from flux_trio.cores.exec.calls import AGAIN, AGAIN_S, ExecOutbox, TargetsAsked
from flux_trio.cores.exec.job import Job
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import flux
from flux_trio.formats import FormatError, Hostlist, Idset
from flux_trio.messages import Errno, Event, FluxError, Level, Response, topics


class Targets(Part):
    """The targets that are down, with the reason for each."""

    _down: dict[int, str]
    _is_refused: bool

    def __init__(self, outbox: ExecOutbox) -> None:
        self._outbox = outbox
        self._down = {}
        self._is_refused = False  # a full inbox has refused the request

    @property
    def down(self) -> Idset:
        """Those that are down."""
        return Idset.of(self._down)

    def ask(self) -> None:
        """Ask the resource service which targets are down; later its events tell of changes."""
        self._is_refused = False
        self._outbox.ask(topics.RESOURCE_STATUS, None, TargetsAsked())

    def is_answer(self, response: Response) -> bool:
        """Return whether the request was answered; if an inbox was full, ask again later.

        After any other error `service-back` tells of the next resource service.
        """
        if response.errnum == Errno.EAGAIN:
            self._is_refused = True
            self._outbox.set_timer(AGAIN, self._outbox.now + AGAIN_S)
        return not response.errnum

    def ask_again(self) -> None:
        """Ask, if a full inbox has refused the last request."""
        if self._is_refused:
            self.ask()

    def learn(self, message: Event | Response) -> bool:
        """Take the resource service's answer or event; return whether it could be read."""
        try:
            match message.topic:
                case topics.RESOURCE_STATUS:
                    self._read_status(message)
                case topics.RESOURCE_OFFLINE_EVENT:
                    offline = flux.TARGETS_OFFLINE.read(message)
                    self._down |= dict.fromkeys(Idset.parse(offline.targets), offline.reason)
                case topics.RESOURCE_ONLINE_EVENT:
                    for target in Idset.parse(flux.TARGETS_ONLINE.read(message).targets):
                        self._down.pop(target, None)
        except (FluxError, FormatError) as error:
            self._outbox.send(Log(Level.ERR, f"{message.topic}: {error}"))
            return False
        return True

    def lost_of(self, job: Job) -> str:
        """Return a text with hosts, ranks and reasons of the job's targets that are down.

        Returns "" if none of its targets is down.
        """
        if job.resources is None or not self._down:
            return ""
        lost = Idset.of(target for target in job.resources.ranks if target in self._down)
        if not lost:
            return ""
        hosts = Hostlist.of(job.resources.hosts[target] for target in lost)
        reasons = dict.fromkeys(self._down[target] for target in lost)
        why = ", ".join(reason for reason in reasons if reason)
        return f"{hosts} (rank {lost}) is down{f': {why}' if why else ''}"

    def _read_status(self, response: Event | Response) -> None:
        status = flux.RESOURCE_STATUS.read(response)
        self._down = {
            target: down.reason
            for targets, down in status.down.items()
            for target in Idset.parse(targets)
        }
