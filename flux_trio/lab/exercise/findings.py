"""What an exercise has found: acts that did not come to their end, and a verdict of each clause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flux_trio.judge import Clause, Judgement, Verdict
from flux_trio.trace import Record
from flux_trio.views import verdict_text

_NOT_TRACED: Final = "not judged"
"""The verdict of a clause that messages cannot show, such as what the program logs."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an exercise.

    `stuck` has what was waited for in vain, by the title of the act. `clauses` are those that bind
    the program; `judgement` is of the whole instance.
    """

    stuck: Mapping[str, str]
    clauses: Sequence[Clause]
    judgement: Judgement
    records: Mapping[int, Record]

    @property
    def is_clean(self) -> bool:
        """Whether every act came to its end and no clause is broken."""
        return not self.stuck and self.judgement.is_kept

    def verdict(self, clause: Clause) -> str:
        """Return `kept`, `broken`, `not exercised` or `not judged`."""
        found = self.judgement.verdicts.get(clause.id, Verdict.NOT_EXERCISED)
        if found is Verdict.NOT_EXERCISED and clause.observable != "trace":
            return _NOT_TRACED
        return str(found.value)

    def text(self) -> str:
        """Return the violations with their messages, then a line for each clause, then counts."""
        width = max((len(each.id) for each in self.clauses), default=0)
        lines = []
        if not self.judgement.is_kept:
            lines.append(verdict_text(self.judgement, self.records))
        lines += [
            f"{clause.id:{width}}  {self.verdict(clause):13}  {clause.text}"
            for clause in self.clauses
        ]
        counts = Counter(self.verdict(clause) for clause in self.clauses)
        lines.append("")
        lines.append(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
        lines += [f"stuck in {title!r}: {what}" for title, what in self.stuck.items()]
        return "\n".join(lines)
