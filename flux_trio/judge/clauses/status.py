"""The status of each clause: a test shows it, a reason says why no test does, or it is open.

Pure: the caller finds which tests name which clauses, and passes them as `mentions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from flux_trio.judge.clauses.registry import Clause


class Word(StrEnum):
    """The status of a clause."""

    TEST = "test"
    REASON = "reason"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class ClauseStatus:
    """One clause, the tests that name it, and the reason why no test does."""

    clause: Clause
    tests: tuple[str, ...] = ()
    reason: str = ""

    @property
    def word(self) -> Word:
        """The status in one word."""
        if self.tests:
            return Word.TEST
        return Word.REASON if self.reason else Word.OPEN

    def __str__(self) -> str:
        """Return one line: id, level, actor, word, and the first test or the reason."""
        because = self.tests[0] if self.tests else self.reason
        line = f"{self.clause.id:22} {self.clause.level:13} {self.clause.actor:20} {self.word:6}"
        return f"{line} {because}".rstrip()


def judge(
    clauses: Mapping[str, Clause],
    mentions: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
) -> dict[str, ClauseStatus]:
    """Return the status of every clause; `mentions` has the tests of an id, `reasons` a sentence.

    Ids without a clause are left out here; `contradictions` reports them.
    """
    return {
        id_: ClauseStatus(clause, tuple(mentions.get(id_, ())), reasons.get(id_, ""))
        for id_, clause in clauses.items()
    }


def contradictions(
    clauses: Mapping[str, Clause],
    mentions: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
) -> list[str]:
    """Return a line for each contradiction between clauses, mentions and reasons."""
    unknown = [
        f"{id_}: no such clause, but {tests[0]} names it"
        for id_, tests in mentions.items()
        if id_ not in clauses
    ]
    idle = [f"{id_}: no such clause, but it has a reason" for id_ in reasons if id_ not in clauses]
    both = [
        f"{id_}: a reason says why no test shows it, but {mentions[id_][0]} does"
        for id_ in reasons
        if mentions.get(id_)
    ]
    return unknown + idle + both


def report(statuses: Mapping[str, ClauseStatus]) -> str:
    """Return a text with a line for each clause, and counts at the end."""
    lines = [str(status) for status in statuses.values()]
    return "\n".join([*lines, "", *_counts(statuses.values())]) + "\n"


def _counts(statuses: Iterable[ClauseStatus]) -> list[str]:
    counts = Counter((status.clause.rfc, status.word) for status in statuses)
    lines = [
        _count_line(f"RFC {rfc}", [counts[rfc, word] for word in Word])
        for rfc in sorted({rfc for rfc, _ in counts})
    ]
    totals = [sum(n for (_, each), n in counts.items() if each == word) for word in Word]
    return [*lines, _count_line("all", totals)]


def _count_line(name: str, numbers: list[int]) -> str:
    parts = [f"{word} {n:3}" for word, n in zip(Word, numbers, strict=True)]
    return f"{name:8} {'  '.join(parts)}  of {sum(numbers):3}"
