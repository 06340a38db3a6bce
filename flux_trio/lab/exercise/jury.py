"""The judge of an exercise: it listens to one instance after the other, and to its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import trio
from msgspec.structs import replace

from flux_trio.broker import LogEntry
from flux_trio.judge import Clause, Judgement, Monitor, Verdict, Violation, load_clauses
from flux_trio.judge.judgement import applicable
from flux_trio.judge.known import Departure
from flux_trio.judge.rules import CLASSIC, rules_of
from flux_trio.lab.exercise.acts import Act
from flux_trio.lab.exercise.findings import Ended
from flux_trio.lab.exercise.stage import HELD, ONCE, REFUSED, TOLD_TO_END, UNASKED, UNHARMED, URGENT
from flux_trio.messages import Level
from flux_trio.trace import Record, Shown

FORM: Final = "an exercise"
OF_AN_INSTANCE: Final = Shown()

LONG_TEXT: Final = "6.response.4"
"""Recommends short error texts, and is not judged: those of flux-trio are longer."""

UNFREED: Final = "27.free.6"
UNDONE: Final = "invariant.done-as-answered"
SUSPENSION: Final = "unexplained.suspension"

STATUS: Final = "32.start.32"
"""Its rule reads the log of a job's shells, which a program need not write; the acts that are about
it look at the status themselves."""

PROGRAM: Final = "the program"
"""The name of the program in what is found, whatever names its lives have had as peers."""

OWN: Final = {
    "order.fifo": "Of jobs of one priority, the one that was submitted first starts first, "
    "as --order fifo says.",
    UNHARMED: "What is done to a job does nothing to others: they wait, or run on.",
    HELD: "The scheduler is not asked for a job that is held.",
    ONCE: "A request that asks for no stream is answered once.",
    URGENT: "The priority of a job of urgency 31 is 4294967295, the highest there is.",
    REFUSED: "A request is refused that asks for what is not there, not allowed or out of range.",
    UNASKED: "What answers no open request changes no job.",
    TOLD_TO_END: "SIGTERM tells each task of a canceled job to end, and SIGKILL comes later.",
}
"""What acts can find that no RFC says."""


class Jury:
    """Judges an exercise: one trace for each instance that it starts.

    `sit` begins with the next instance, `hear` with the next act; `end_of_act` and `at_rest` say
    how the act has ended. Only what the program breaks is told, by peers of which `is_program` is
    true: clients of the exercise stand in for modules and refuse what a module may not refuse, and
    a module may be late.
    """

    def __init__(
        self,
        clauses: Iterable[Clause],
        edition: str,
        shown: Shown = OF_AN_INSTANCE,
        known: Iterable[Departure] = (),
    ) -> None:
        self.is_program: Callable[[str], bool] = bool
        self.records: list[Record] = []
        self._all = load_clauses()
        of_program = {each.id: each.actor for each in clauses}
        self._theirs = of_program.keys()
        self._actor = next(iter(of_program.values()), "")
        judged = [each for each in rules_of(edition) if each.clause != LONG_TEXT]
        is_classic = edition == CLASSIC
        self._rules, self._left_out = applicable(judged, shown, self._all, classic=is_classic)
        self._is_routed = not shown.crossings
        self._known = list(known)
        self._met: set[tuple[str, int]] = set()  # known departures: their clauses and records
        self._verdicts: dict[str, Verdict] = {}
        self._violations: list[Violation] = []
        self._log: list[LogEntry] = []
        self._act: Act | None = None
        self._monitor = self._new_monitor()
        self.broken = trio.Event()
        """Set when the program has broken something in the instance."""

    def _new_monitor(self) -> Monitor:
        routed = self._is_routed
        return Monitor(self._rules, self._all, is_routed=routed, begins=not routed)

    @property
    def nrecords(self) -> int:
        """The number of records so far."""
        return self.records[-1].n if self.records else 0

    def sit(self) -> None:
        """Begin to judge another instance."""
        self._monitor = self._new_monitor()
        self.broken = trio.Event()
        self._log.clear()

    def hear(self, act: Act) -> None:
        """Begin with an act."""
        self._act = act
        self._log.clear()

    def observe(self, record: Record) -> None:
        """Take the next record of the trace."""
        self.records.append(record)
        nbefore = len(self._monitor.unexplained)
        found = self._monitor.observe(record)
        if (found or len(self._monitor.unexplained) > nbefore) and self._broken():
            self.broken.set()

    def log(self, entry: LogEntry) -> None:
        """Take the next line of the instance's log."""
        if entry.level <= Level.WARNING:
            self._log.append(entry)

    def _broken(self) -> list[Violation]:
        found = [*self._monitor.violations]
        found += [each for each in self._monitor.unexplained if each.clause == SUSPENSION]
        return self._of_program(found)

    def _of_program(self, found: Iterable[Violation]) -> list[Violation]:
        """Return what the program breaks, in its own name."""
        told: dict[int, Violation] = {}
        for each in found:
            if self.is_program(each.party) and not self._is_known(each):
                cause = None if each.cause is None else told.get(id(each.cause))
                told[id(each)] = replace(each, party=PROGRAM, cause=cause)
        return list(told.values())

    @property
    def departures(self) -> Counter[str]:
        """How often a known departure was met, by its clause."""
        return Counter(clause for clause, _ in self._met)

    def _is_known(self, violation: Violation) -> bool:
        found = next((each for each in self._known if each.covers(violation)), None)
        if found is not None:
            self._met.add((found.clause, violation.record.n))
        return found is not None

    def end_of_act(self, stuck: str, clause: str) -> Ended:
        """Return how the act has ended: it was `stuck`, or not (""), which breaks a `clause`.

        If the act does not say which, what the program owes now tells it; so does what the program
        has owed in an earlier act, and owes again.
        """
        broken = self._broken()
        if not broken and stuck:
            debts = self._monitor.debts()
            due = [each for each in debts if each.clause in self._theirs or each.clause == UNDONE]
            owed = self._of_program(due)
            told = {each.clause for each in self._violations}
            # One mistake is told once: who waits in vain for what is not freed, is not done as the
            # answer says, or is not answered as before, shows nothing of the act's own clause.
            known = [e for e in owed if e.clause in (UNFREED, UNDONE) or e.clause in told]
            if clause == UNHARMED:  # what was done to another job says more
                known = [each for each in known if each.clause != UNDONE]
            broken = known or ([self._of_act(stuck, clause)] if clause else owed)
        return self._ended(broken, stuck)

    @property
    def is_owed(self) -> bool:
        """Whether the program owes something now that it may be about to do."""
        return bool(self._of_program(each for each in self._monitor.debts() if not each.may_wait))

    def all_at_rest(self, done: list[Ended]) -> list[Ended]:
        """Return how acts on an instance have ended: nothing more comes of the last one."""
        return [*done[:-1], self._at_rest(done[-1])] if done[-1].is_clean else done

    def _at_rest(self, last: Ended) -> Ended:
        self._monitor.finish()
        for clause, verdict in self._monitor.verdicts().items():
            if verdict is not Verdict.BROKEN:
                self._note(clause, verdict)
        broken = self._broken()
        return self._ended(broken, "") if broken else last

    def _ended(self, broken: list[Violation], stuck: str) -> Ended:
        assert self._act is not None
        if broken or stuck:
            for clause, verdict in self._monitor.verdicts().items():
                self._note(clause, verdict)
            self._violations += broken
        log = tuple(f"{each.party}: {each.text}" for each in self._log) if broken or stuck else ()
        return Ended(self._act, stuck, tuple(broken), log)

    def _note(self, clause: str, verdict: Verdict) -> None:
        if verdict is Verdict.KEPT or clause not in self._verdicts:
            self._verdicts[clause] = Verdict.NOT_EXERCISED if verdict is Verdict.BROKEN else verdict

    def _of_act(self, text: str, clause: str) -> Violation:
        known = self._all.get(clause)
        sentence = OWN[clause] if known is None else known.text
        return Violation(clause, sentence, PROGRAM, text, self.records[-1], (), role=self._actor)

    def judgement(self, ended: Iterable[Ended]) -> Judgement:
        """Return the judgement of all instances.

        A clause that an act is about is kept if such an act came to its end. One that no act is
        about is kept if what it applies to has occurred.
        """
        ended = list(ended)
        verdicts = dict(self._verdicts)
        shown: Counter[str] = Counter()
        for each in ended:
            shown.update(dict.fromkeys(each.act.clauses, int(each.is_clean)))
        for clause, times in shown.items():
            judged = clause in {rule.clause for rule in self._rules}
            if times and (clause == STATUS or not judged):
                verdicts[clause] = Verdict.KEPT
            elif not times and clause in verdicts:
                verdicts[clause] = Verdict.NOT_EXERCISED
        verdicts |= {each.clause: Verdict.BROKEN for each in self._violations}
        order = {clause: at for at, clause in enumerate(self._all)}
        ordered = sorted(verdicts, key=lambda clause: order.get(clause, len(order)))
        return Judgement(
            FORM,
            self.nrecords,
            {clause: verdicts[clause] for clause in ordered},
            tuple(self._violations),
            self._left_out,
        )
