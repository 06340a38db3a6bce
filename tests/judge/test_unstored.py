"""A job manager may end when some commits of a turn are sent, or stored, and others are not."""

from __future__ import annotations

import pytest

from flux_trio.judge.rules import rfc21_events
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import ByHand

MANAGER = topics.JOB_MANAGER
LOG = "job.0000.0000.0000.000{}.eventlog"


class Story(ByHand):
    """Two jobs are submitted in one turn, whose first commit has the events of job 1."""

    def __init__(self, *clauses: str) -> None:
        super().__init__(rfc21_events.RULES.all, clauses, step_s=0.0)
        hello = Request(topics.EXEC_HELLO, {"service": "job-exec"}, 1, routes=("job-exec",))
        self.put(Kind.RECV, hello)
        for job in (1, 2):
            self.log("submit", "validate", job=job)
        self.commit(1, "validate")

    def commit(self, job: int, *names: str) -> None:
        """Store events of a job; the number of the commit is the job's."""
        lines = "".join(f'{{"timestamp":1.0,"name":"{name}"}}\n' for name in names)
        ops = [["append", LOG.format(job), lines]]
        self.put(Kind.SEND, Request(topics.KVS_COMMIT, {"ops": ops}, job))

    def stored(self, number: int) -> None:
        answer = Response(topics.KVS_COMMIT, {}, matchtag=number, routes=(MANAGER,))
        self.put(Kind.RECV, answer)

    def end(self) -> None:
        self.put(Kind.MODULE, data={"module": MANAGER, "what": "unloaded"})


@pytest.mark.parametrize("is_cut_short", [True, False])
def test_events_stay_unstored_only_if_their_turn_was_cut_short(is_cut_short: bool) -> None:
    """21.criteria.7: a job manager that has gone on after its turn owed them."""
    story = Story("21.criteria.7")
    if not is_cut_short:
        story.stored(1)
    story.end()
    owed = [each.text for each in story.monitor.debts()]
    lost = ["validate event of job 2 is in no eventlog: it was never stored"]
    assert owed == ([] if is_cut_short else lost)
    story.log("submit", "validate", "depend", job=2)
    story.commit(2, "validate", "depend")
    assert story.monitor.violations == []


@pytest.mark.parametrize(("answered", "named"), [((1,), []), ((1, 2), ["21.events.3"])])
def test_event_of_a_turn_is_stored_when_all_commits_of_the_turn_are(
    answered: tuple[int, ...], named: list[str]
) -> None:
    """Only a submit event that may be lost is told again."""
    story = Story("21.events.3")
    story.commit(2, "validate")
    for number in answered:
        story.stored(number)
    story.end()
    story.log("submit", "validate", job=2)
    assert story.named == named
