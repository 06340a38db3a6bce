"""Judges a live flux-core, from what its `module.trace` tells; what is kept is bounded.

The judge has not seen the beginning. What it needs to know of before it learns from the broker: the
configuration, who schedules, and what a monitor asks traced modules when it joins: the inventory,
and in the backlog of a journal what running jobs hold. The answers are in the trace, each at its
place. When messages are lost the judge begins anew (`began`), as one that joins.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from flux_trio.judge import Clause, Expected, Judgement, Monitor, Verdict, Violation, load_clauses
from flux_trio.judge.engine.selector import EVENT, job_id, name_of
from flux_trio.judge.joining import Joining
from flux_trio.judge.judgement import applicable, in_order, reasons
from flux_trio.judge.known import Departure
from flux_trio.judge.rules import CURRENT_RULES, ROUTED_RULES
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record, Shown
from flux_trio.trace.module_trace import LiveModuleTrace
from flux_trio.trace.traced_message import TracedMessage

FORM: Final = "module.trace of a live flux-core"
RULES: Final = (*CURRENT_RULES, *ROUTED_RULES)
SHOWN: Final = Shown(crossings=False, headers=False)

AUDITED: Final = "audit.allocated"
"""In place of a clause: that all parties hold the same resources (`audit`)."""
_AUDITED_SENTENCE: Final = (
    "The job manager, the scheduler and the resource module hold the same resources for allocated."
)

KEPT_MAX: Final = 10
"""Violations of one clause that are kept; later ones are counted."""
RECENT: Final = 4096
"""Records that are kept, for the violations that refer to them."""
ENDED_MAX: Final = 1024
"""Jobs that have ended of which something is kept; when there are twice as many, the oldest are
forgotten, as those that ended before the judge joined."""
ENDS: Final = ("clean", "invalidate")
"""The last events of jobs."""
DUE_S: Final = 1.0
"""What is due is not worth a word before."""


_RELOAD: Final = topics.config_reload_of(topics.JOB_MANAGER)
"""flux-core sends the whole configuration with it."""


@dataclass(slots=True)
class _Departed:
    """A departure that is known, and how often it has occurred."""

    of: Departure
    count: int = 0
    first: Violation | None = None


class LiveJudge:
    """The verdicts so far on an instance with the configuration `config`, when it joined.

    `scheduler` is the party that schedules there, "" if nobody does; `t` is the time.
    """

    def __init__(
        self, config: Mapping[str, Any], scheduler: str, known: Iterable[Departure], t: float
    ) -> None:
        self.clauses: Mapping[str, Clause] = load_clauses()
        self.counts: Counter[str] = Counter()
        """Violations by clause, without the known ones, and what is unexplained by its kind."""
        self.records: dict[int, Record] = {}
        """The records that show the violations that are kept."""
        self.nrecords = 0
        self.began = 0
        """The record with which the judge began, the last time."""
        self.nlost = 0
        self.t = t
        self._known = [_Departed(each) for each in known]
        self._violations: list[Violation] = []
        self._unexplained: list[Violation] = []
        self._kept: set[str] = set()
        self._rules, self._left_out = applicable(RULES, SHOWN, self.clauses, classic=False)
        self._recent: dict[int, Record] = {}
        self._config = dict(config)
        self._scheduler = scheduler
        self._begin()

    def put(self, told: TracedMessage) -> None:
        """Take the next message."""
        self._ntold += 1
        self._trace.put(told.line(self._ntold))

    def judge(self, now: float) -> Iterator[Violation]:
        """Yield what is broken or unexplained by the messages that are complete when it is `now`.

        FormatError names a message whose payload is no object.
        """
        for record in self._trace.records(now):
            yield from self._observe(record)

    def lose(self, count: int) -> None:
        """Take it that `count` messages were not seen."""
        self.nlost += count
        self._begin_anew()

    def join(self, config: Mapping[str, Any], scheduler: str) -> None:
        """Take up an instance that was not watched for a while; see the arguments of the class."""
        self._config, self._scheduler = dict(config), scheduler
        self._begin_anew()

    def audited(self, differences: Iterable[str]) -> None:
        """Take the result of an audit."""
        self._kept.add(AUDITED)
        for each in differences:
            data = {"audit": each}
            told = Record(self.nrecords, self.t, Kind.STATE.value, "monitor", data=data)
            self._keep(Violation(AUDITED, _AUDITED_SENTENCE, "one of them", each, told, ()))

    def due(self) -> list[tuple[Violation, float]]:
        """Return what is due for DUE_S seconds or more and must not wait, each with how long."""
        return [each for each in self._aged_debts() if not each[0].is_unexplained]

    def unexplained(self) -> list[Violation]:
        """Return what happened, or is still so, and no clause is broken that says why."""
        debts = self._aged_debts()
        return [*self._unexplained, *(each for each, _ in debts if each.is_unexplained)]

    def _aged_debts(self) -> list[tuple[Violation, float]]:
        debts = [each for each in self._monitor.debts() if each.cause is None and not each.may_wait]
        aged = [(each, self._age_of(each)) for each in debts]
        return [(each, age) for each, age in aged if age >= DUE_S]

    def judgement(self) -> Judgement:
        """Return the verdicts, with the violations that are kept and what is due."""
        verdicts = dict.fromkeys(in_order(RULES, self.clauses), Verdict.NOT_EXERCISED)
        verdicts |= dict.fromkeys(self._all_kept(), Verdict.KEPT)
        verdicts |= {each.of.clause: Verdict.KNOWN for each in self._known if each.count}
        verdicts |= {each.clause: Verdict.BROKEN for each in self._violations}
        due = tuple(each for each, _ in self.due())
        return Judgement(
            FORM,
            self.nrecords,
            verdicts,
            tuple(self._violations),
            self._left_out | reasons(self._rules, self._monitor, verdicts, self.clauses),
            known=tuple(_expected(each) for each in self._known),
            debts=due,
            t_end=self.t,
            unexplained=tuple(self.unexplained()),
        ).apart()

    def shown(self) -> Mapping[int, Record]:
        """Return the records for a report on `judgement`."""
        return self._recent | self.records

    def _begin(self) -> None:
        """Take it that nothing was seen before."""
        self.began = self.nrecords + 1
        self._ntold = 0
        self._ended = deque[int]()
        self._trace = LiveModuleTrace(self.began)
        self._monitor = Monitor(self._rules, self.clauses, is_routed=True, begins=False)
        self._joining = Joining(self._monitor)
        met = frozenset({"scheduler"} if self._scheduler else ())
        self._assume(manager=topics.JOB_MANAGER, scheduler=self._scheduler, is_ready=True, met=met)
        config = Record(self.began, self.t, Kind.CONFIG.value, "broker", data=self._config)
        for _ in self._observe(config):
            pass  # nothing has happened yet

    def _begin_anew(self) -> None:
        self._kept |= self._all_kept()
        self._begin()

    def _all_kept(self) -> set[str]:
        verdicts = self._monitor.verdicts().items()
        return self._kept | {id_ for id_, verdict in verdicts if verdict is Verdict.KEPT}

    def _observe(self, record: Record) -> Iterator[Violation]:
        self.nrecords, self.t = record.n, max(self.t, record.t)
        self._recent[record.n] = record
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._note_request(record)
        monitor = self._monitor
        found = [*monitor.observe(record), *monitor.unexplained]
        self._scheduler = monitor.facts.scheduler
        monitor.violations.clear()
        monitor.unexplained.clear()
        self._joining.after(record)
        if record.kind == EVENT and name_of(record) in ENDS:
            self._note_end(job_id(record))
        for each in found:
            if not self._is_known(each):
                self._keep(each)
                yield each

    def _note_end(self, jobid: int | None) -> None:
        if jobid is not None:
            self._ended.append(jobid)
        if len(self._ended) > 2 * ENDED_MAX:
            self._monitor.forget([self._ended.popleft() for _ in range(ENDED_MAX)])

    def _assume(self, **roles: Any) -> None:
        """Take it that parties have these roles, though what gave it to them was not seen."""
        self._monitor.facts = replace(self._monitor.facts, **roles)

    def _note_request(self, record: Record) -> None:
        """A reload says which configuration there is."""
        message = record.message
        if record.kind != Kind.SEND or not isinstance(message, Request):
            return
        if message.topic == _RELOAD and isinstance(message.payload, dict):
            self._config = message.payload

    def _is_known(self, violation: Violation) -> bool:
        for each in self._known:
            if each.of.covers(violation):
                each.count += 1
                each.first = each.first or violation
                return True
        return False

    def _keep(self, violation: Violation) -> None:
        self.counts[violation.clause] += 1
        if self.counts[violation.clause] > KEPT_MAX:
            return
        kept = self._unexplained if violation.is_unexplained else self._violations
        kept.append(violation)
        self.records |= {n: self._recent[n] for n in violation.because if n in self._recent}
        self.records.setdefault(violation.record.n, violation.record)

    def _age_of(self, debt: Violation) -> float:
        """Return for how long something is due; at least for as long, if that is not kept."""
        oldest = next(iter(self._recent.values()))
        since = next((self._recent.get(n, oldest) for n in debt.because), debt.record)
        return self.t - since.t


def _expected(departed: _Departed) -> Expected:
    violations = () if departed.first is None else (departed.first,) * departed.count
    return Expected(departed.of.clause, departed.of.why, violations)
