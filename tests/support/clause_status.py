"""The status of each clause: proven, named by a test, without one for a reason, or open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from flux_trio.judge import Clause, parse_reasons

REASONS: Final = Path(__file__).parents[1] / "judge" / "reasons.toml"


class Word(StrEnum):
    """The status of a clause, in one word.

    PROVEN: the test that names it was seen to fail when the clause was broken on purpose. TEST: a
    test names it. REASON: no test can, for a reason that is given. OPEN: none of these.
    """

    PROVEN = "proven"
    TEST = "test"
    REASON = "reason"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class ClauseStatus:
    """One clause, the tests that name it, why nothing can break it, and the test of its proof."""

    clause: Clause
    tests: tuple[str, ...] = ()
    reason: str = ""
    proof: str = ""

    @property
    def word(self) -> Word:
        """The status in one word."""
        if self.proof:
            return Word.PROVEN
        if self.reason:
            return Word.REASON
        return Word.TEST if self.tests else Word.OPEN

    def __str__(self) -> str:
        """Return one line: id, level, actor, word, and a test or the reason."""
        because = self.proof or self.reason or "".join(self.tests[:1])
        line = f"{self.clause.id:22} {self.clause.level:13} {self.clause.actor:20} {self.word:6}"
        return f"{line} {because}".rstrip()


def load_reasons() -> dict[str, str]:
    """Why no test shows a clause: id to sentence."""
    return parse_reasons(REASONS.read_text(encoding="utf-8"), REASONS.name)


def judge(
    clauses: Mapping[str, Clause],
    mentions: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
    proven: Mapping[str, str] | None = None,
) -> dict[str, ClauseStatus]:
    """Return the status of every clause.

    `mentions` has the tests of an id, `reasons` a sentence, `proven` the test of its proof. Ids
    without a clause are left out here; `contradictions` reports them.
    """
    return {
        id_: ClauseStatus(
            clause, tuple(mentions.get(id_, ())), reasons.get(id_, ""), (proven or {}).get(id_, "")
        )
        for id_, clause in clauses.items()
    }


def contradictions(
    clauses: Mapping[str, Clause], mentions: Mapping[str, Sequence[str]], reasons: Mapping[str, str]
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
    """Return a text with a line for each clause."""
    return "".join(f"{status}\n" for status in statuses.values())


def counts(statuses: Mapping[str, ClauseStatus]) -> str:
    """Return a text with a line for each RFC and one for all: how many clauses have each status."""
    found = Counter((status.clause.rfc, status.word) for status in statuses.values())
    lines = [
        _count_line(f"RFC {rfc}", [found[rfc, word] for word in Word])
        for rfc in sorted({rfc for rfc, _ in found})
    ]
    totals = [sum(n for (_, each), n in found.items() if each == word) for word in Word]
    return "\n".join([*lines, _count_line("all", totals)]) + "\n"


def _count_line(name: str, numbers: list[int]) -> str:
    parts = [f"{word} {n:3}" for word, n in zip(Word, numbers, strict=True)]
    return f"{name:8} {'  '.join(parts)}  of {sum(numbers):3}"
