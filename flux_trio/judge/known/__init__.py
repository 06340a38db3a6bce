r"""Known departures: violations of an implementation that are known, each with its reason.

A file of departures is TOML:

    [[known]]
    clause = "32.start.20"
    found = "got 'all'$"
    where = "src/modules/job-exec/job-exec.c:378"
    why = "The execution service releases all ranks at once and names them \"all\"."

`found` is a regular expression that the text of the violations that are meant contains; without it,
all of the clause are meant. `party` names who breaks it, if only one does. `where` says where the
implementation does so. The files of this package are shipped and may be named without directory and
suffix: `flux-core-0.88`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from typing import Annotated, Final, TypeAlias

import msgspec

from flux_trio.formats import FormatError
from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.engine.monitor import Verdict
from flux_trio.judge.judgement import Expected, Judgement, linked_anew
from flux_trio.judge.rules import JUDGED

SUFFIX: Final = ".toml"

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class Departure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known departure: the violations of `clause` whose text contains the pattern `found`, and
    the reason why they are known.
    """

    clause: Text
    why: Text
    found: str = ""
    where: str = ""
    party: str = ""

    def is_of(self, violation: Violation) -> bool:
        """Whether a violation belongs to this departure."""
        if violation.clause != self.clause or self.party not in ("", violation.party):
            return False
        return re.search(self.found, violation.text) is not None

    def covers(self, violation: Violation) -> bool:
        """Whether a violation belongs to this departure, or follows from one of it that makes what
        comes after it seem wrong.
        """
        cause = violation.cause
        follows = cause is not None and cause.is_missing and self.is_of(cause)
        return follows or self.is_of(violation)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    known: list[Departure]


def shipped() -> list[str]:
    """Return the names of the files in this package."""
    files = resources.files(__package__).iterdir()
    return sorted(each.name.removesuffix(SUFFIX) for each in files if each.name.endswith(SUFFIX))


def load_shipped(name: str) -> list[Departure]:
    """Return the departures of a file in this package."""
    text = resources.files(__package__).joinpath(name + SUFFIX).read_text(encoding="utf-8")
    return parse_known(text, name + SUFFIX)


def parse_known(text: str, where: str = "known") -> list[Departure]:
    """Decode a file of departures. Raises FormatError."""
    try:
        found = msgspec.toml.decode(text, type=_File).known
        for at, each in enumerate(found):
            _check_clause(each.clause, f"{where}: known[{at}].clause")
            _check_pattern(each.found, f"{where}: known[{at}].found")
        return found
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at(where) from None
    except msgspec.DecodeError as error:
        raise FormatError(f"TOML ({error})", text, where) from None


def _check_clause(clause: str, where: str) -> None:
    if clause not in JUDGED:
        raise FormatError("a clause that is judged, such as 27.alloc.1", clause, where)


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise FormatError(f"a regular expression ({error})", pattern, where) from None


def sort_known(judgement: Judgement, known: Iterable[Departure]) -> Judgement:
    """Return the judgement with each known violation at the first departure that it belongs to.

    A clause that has only known violations has the verdict KNOWN. A departure without violations
    did not occur.
    """
    known = list(known)
    if not known:
        return judgement
    unknown: list[Violation] = []
    found: list[list[Violation]] = [[] for _ in known]
    for violation in judgement.violations:
        at = next((at for at, each in enumerate(known) if each.covers(violation)), None)
        (unknown if at is None else found[at]).append(violation)
    expected = tuple(
        Expected(each.clause, each.why, tuple(those))
        for each, those in zip(known, found, strict=True)
    )
    unknown = list(linked_anew(unknown, [each for those in found for each in those]))
    return replace(judgement.narrowed(unknown, Verdict.KNOWN), known=expected)
