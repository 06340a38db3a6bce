"""Translate RFC 35 constraint queries, the values of `--requires`, to RFC 31 constraints.

A term is `operator:operand`. `host` is short for `hostlist`, `rank` for `ranks`, and a term without
an operator is a list of properties, as in flux-core. The operand is not checked here: the check of
the jobspec does that.
"""

from __future__ import annotations

import re
from typing import Any, Final

Constraint = dict[str, Any]

_OPERATORS: Final = {"": "properties", "host": "hostlist", "hosts": "hostlist", "rank": "ranks"}
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<and>&{1,2}|and\b) | (?P<or>\|{1,2}|or\b) | (?P<not>not\b)
      | (?P<open>\() | (?P<close>\)) | (?P<minus>-)
      | (?P<term>(?:[^()|&\s"']|"[^"]*"|'[^']*')+)
    )""",
    re.VERBOSE,
)
_QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_DEPTH_MAX: Final = 64  # levels of parentheses and negations; the parser recurses
_END: Final = ("end", "the end")


def parse_constraint_query(text: str) -> Constraint:
    """Return the constraint of a query. The ValueError names the token that was not expected."""
    query = _Query(text)
    constraint = query.either(_DEPTH_MAX)
    query.expect("end", "an operator, a term or the end")
    return constraint


class _Query:
    """The tokens of a query, and one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._next = 0

    def either(self, depth: int) -> Constraint:
        """Parse terms joined by OR."""
        found = [self._all(depth)]
        while self._accept("or"):
            found.append(self._all(depth))
        return found[0] if len(found) == 1 else {"or": found}

    def _all(self, depth: int) -> Constraint:
        """Parse terms joined by AND or by blanks."""
        found = [self._negated(depth)]
        while self._accept("and") or self._kind in ("not", "minus", "open", "term"):
            _join(found, self._negated(depth))
        return found[0] if len(found) == 1 else {"and": found}

    def _negated(self, depth: int) -> Constraint:
        if depth == 0:
            raise ValueError(f"more than {_DEPTH_MAX} levels in {self._text:.40}...")
        if self._accept("not"):
            return {"not": [self._negated(depth - 1)]}
        if self._accept("minus"):
            return {"not": [_term(self.expect("term", "a term after '-'"))]}
        if self._accept("open"):
            constraint = self.either(depth - 1)
            self.expect("close", "')'")
            return constraint
        return _term(self.expect("term", "a term"))

    @property
    def _kind(self) -> str:
        return self._tokens[self._next][0]

    def _accept(self, kind: str) -> bool:
        taken = self._kind == kind
        self._next += taken
        return taken

    def expect(self, kind: str, what: str) -> str:
        """Take the next token, which must be of `kind`, and return its text. Raises ValueError."""
        found, text = self._tokens[self._next]
        if found != kind:
            raise ValueError(f"expected {what}, got {text!r} in {self._text!r}")
        self._next += 1
        return text


def _split(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"expected a term, got {text[position:]!r}: a quote is not closed")
        kind = match.lastgroup or ""
        tokens.append((kind, match[kind]))
        position = match.end()
    return [*tokens, _END]


def _term(text: str) -> Constraint:
    operator, colon, operand = text.partition(":")
    if not colon:
        operator, operand = "", text
    operand = _QUOTED.sub(lambda match: match[1] or match[2] or "", operand)
    if not operand:
        raise ValueError(f"expected an operand after {text!r}")
    name = _OPERATORS.get(operator, operator)
    return {name: operand.split(",") if name == "properties" else [operand]}


def _join(found: list[Constraint], constraint: Constraint) -> None:
    """Add a term to an AND; properties are merged into one list, as in flux-core."""
    for other in found:
        if "properties" in other and "properties" in constraint:
            other["properties"] += constraint["properties"]
            return
    found.append(constraint)
