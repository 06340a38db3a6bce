"""What an exercise has found: acts that did not come to their end, and a verdict of each clause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flux_trio.judge import Clause, Judgement, Verdict, Violation
from flux_trio.lab.exercise.acts import Act
from flux_trio.trace import Record
from flux_trio.views import cause_lines, things_by_clause

_NOT_JUDGED: Final = "not judged"
"""The verdict of a clause that messages cannot show, such as what the program logs, of one that has
no rule in the edition, and of one that acts were about which have not come to their end."""

_LOG_MAX: Final = 5
"""Lines of the instance's log that are shown of an act."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an act of an exercise has ended.

    `stuck` is what it waited for in vain ("" for nothing), `broken` what broke a clause, and `log`
    has the lines of the instance's log if either is there.
    """

    act: Act
    stuck: str
    broken: tuple[Violation, ...]
    log: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether it came to its end, and nothing was broken."""
        return not self.stuck and not self.broken

    def text(self) -> str:
        """Return `done`, the clauses that are broken, or what it was stuck in."""
        causes = [each.clause for each in self.broken if each.cause is None]
        if causes:
            return f"broken: {', '.join(dict.fromkeys(causes))}"
        return f"stuck: {self.stuck}" if self.stuck else "done"


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an exercise.

    `clauses` are those that bind the program; `judgement` is of all instances, and `records` has
    the records that it shows by number. `departures` were known, and are counted by clause.
    """

    ended: Sequence[Ended]
    clauses: Sequence[Clause]
    judgement: Judgement
    records: Mapping[int, Record]
    departures: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether every act came to its end and no clause is broken."""
        return not self.stuck and self.judgement.is_kept

    @property
    def stuck(self) -> dict[str, str]:
        """What was waited for in vain, by the title of the act."""
        return {each.act.title: each.stuck for each in self.ended if each.stuck}

    def verdict(self, clause: Clause) -> str:
        """Return `kept`, `broken`, `not exercised` or `not judged`."""
        found = self.judgement.verdicts.get(clause.id, Verdict.NOT_EXERCISED)
        if found is Verdict.NOT_EXERCISED and (
            clause.observable != "trace"
            or clause.id in self.judgement.left_out
            or any(clause.id in each.act.clauses for each in self.ended)
        ):
            return _NOT_JUDGED
        return str(found.value)

    def text(self) -> str:
        """Return a line for each clause, then counts, then each thing that went wrong."""
        width = max((len(each.id) for each in self.clauses), default=0)
        lines = [
            f"{clause.id:{width}}  {self.verdict(clause):13}  {clause.text}"
            for clause in self.clauses
        ]
        counts = Counter(self.verdict(clause) for clause in self.clauses)
        lines.append("")
        lines.append(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
        for clause, count in sorted(self.departures.items()):
            lines.append(f"known departure from {clause}: {count} times")
        return "\n".join([*lines, *self._wrong_lines()])

    def _wrong_lines(self) -> Iterator[str]:
        """Yield each broken clause once: its first violation, what followed, the log, other acts.

        Then what acts were stuck in, if that breaks no clause.
        """
        for clause, things in things_by_clause(self.judgement).items():
            cause, following = things[0]
            acts = [each for each in self.ended if any(v.clause == clause for v in each.broken)]
            shown = next((e for e in acts if any(v is cause for v in e.broken)), acts[0])
            yield ""
            yield from cause_lines(cause, following, self.records)
            yield f"  in the act: {shown.act.title}"
            if shown.stuck:
                yield f"  waited for: {shown.stuck}"
            yield from (f"  log: {line}" for line in shown.log[:_LOG_MAX])
            if others := [each.act.title for each in acts if each is not shown]:
                yield f"  also in: {'; '.join(others)}"
        for each in self.ended:
            if each.stuck and not each.broken:
                yield ""
                yield f"stuck in {each.act.title!r}: {each.stuck}"
                yield from (f"  log: {line}" for line in each.log[:_LOG_MAX])
