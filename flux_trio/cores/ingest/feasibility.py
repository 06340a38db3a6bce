"""RFC 27, Feasibility: ingest asks whether a new job can ever run, before it is stored.

Whoever has the service `feasibility` says so; a job that can never run is refused at once. Without
the service, or while its inbox is full, nobody knows, and the job is taken. The submissions of one
turn are a round: jobs that ask for the same are asked about once, and the round goes on, in the
order in which its submissions came, when all is answered. Left out: an edition without the service.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.cores.ingest.submissions import New, Submissions
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.state import Part
from flux_trio.editions.rfc27 import Feasibility as FeasibilityCheck
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    respond_error,
    topics,
    unanswered,
)


class FeasibilityAsked(msgspec.Struct, frozen=True):
    """Answers feasibility.check, for those of a round that ask for the same."""

    round: int
    wanted: bytes


class Round(msgspec.Struct):
    """The submissions of a turn, and what is said of them."""

    entries: list[tuple[bytes, Request, New]] = msgspec.field(default_factory=list)
    unanswered: set[bytes] = msgspec.field(default_factory=set)
    refusals: dict[bytes, str] = msgspec.field(default_factory=dict)


class Feasibility(Part):
    """The rounds that wait for answers, the oldest first."""

    rounds: dict[int, Round]
    last: int  # the number of the last round; its submissions are those of this turn
    _asking: dict[bytes, dict[str, Any]]  # of this turn: a jobspec for each question

    def __init__(self, submissions: Submissions, outbox: Outbox[Any, Any, Any]) -> None:
        self._submissions = submissions
        self._outbox = outbox
        self.rounds = {}
        self.last = 0
        self._asking = {}

    def ask(self, request: Request, new: New) -> bool:
        """Keep a submission until it is known to be feasible; False if there is nothing to ask."""
        config = self._submissions.config
        is_asked = new.is_checked and config.ingest.validator.asks_feasibility
        if config.edition_value.feasibility is None or not is_asked:
            return False
        system = new.jobspec["attributes"]["system"]
        wanted = msgspec.json.encode((new.jobspec["resources"], system.get("constraints")))
        self._asking.setdefault(wanted, new.jobspec)
        self.rounds.setdefault(self.last + 1, Round()).entries.append((wanted, request, new))
        return True

    def end_turn(self) -> None:
        """Ask about the submissions of this turn."""
        codec = self._submissions.config.edition_value.feasibility
        if not self._asking or codec is None:
            return
        self.last += 1
        asking, self._asking = self._asking, {}
        self.rounds[self.last].unanswered.update(asking)
        for wanted, jobspec in asking.items():
            call = FeasibilityAsked(self.last, wanted)
            self._outbox.ask(topics.FEASIBILITY_CHECK, codec.write(FeasibilityCheck(jobspec)), call)

    def answered(self, call: FeasibilityAsked, response: Response) -> None:
        """Take an answer; errors of the broker say nothing about the job."""
        waiting = self.rounds[call.round]
        waiting.unanswered.discard(call.wanted)
        if response.errnum not in (0, Errno.ENOSYS, Errno.EAGAIN):
            waiting.refusals[call.wanted] = response.error_text or "it can never run"

    def pop_decided(self) -> list[tuple[Request, New]]:
        """Remove the rounds that are answered; refuse what is infeasible, and return the rest."""
        taken: list[tuple[Request, New]] = []
        while self.rounds:
            number, oldest = next(iter(self.rounds.items()))
            if oldest.unanswered or number > self.last:
                break
            del self.rounds[number]
            for wanted, request, new in oldest.entries:
                if refusal := oldest.refusals.get(wanted):
                    self._outbox.send(respond_error(request, Errno.EINVAL, refusal))
                else:
                    taken.append((request, new))
        return taken

    def configured(self) -> None:
        """Read again what waits, by another configuration: a job's queue may be gone."""
        for each in self.rounds.values():
            entries, each.entries = each.entries, []
            for wanted, request, _ in entries:
                try:
                    each.entries.append((wanted, request, self._submissions.read(request)))
                except FluxError as error:
                    self._outbox.send(respond_error(request, error.errnum, error.text))

    def forget(self, sender: str) -> None:
        """Drop the answers to a submitter that is gone; its jobs stay (6.disconnect.2)."""
        for each in self.rounds.values():
            each.entries = [(w, unanswered(r, sender), new) for w, r, new in each.entries]
