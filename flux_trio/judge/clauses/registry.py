"""The clause registry: `clauses.toml`, and `unjudged.toml`, which says why some of it has no rule.

Both are data, the same for every implementation that is judged. The first is read once, when asked
for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from flux_trio.formats import FormatError

CLAUSES_FILE: Final = "clauses.toml"
UNJUDGED_FILE: Final = "unjudged.toml"

Kind: TypeAlias = Literal["classic", "supporting", "current"]
Observable: TypeAlias = Literal[
    "trace", "eventlog", "state", "config", "format", "benchmark", "none"
]
Breadth: TypeAlias = Literal["form", "act", "general", "sum"]
Level: TypeAlias = Literal[
    "MUST",
    "MUST NOT",
    "SHALL",
    "SHALL NOT",
    "SHOULD",
    "SHOULD NOT",
    "RECOMMENDED",
    "MAY",
    "OPTIONAL",
    "REQUIRED key",
    "OPTIONAL key",
    "must",
    "should",
    "statement",
    "criterion",
    "example",
    "note",
    "implied",
]
Actor: TypeAlias = Literal[
    "R-consumer",
    "R-producer",
    "broker",
    "cli",
    "constraint-consumer",
    "constraint-producer",
    "eventlog-reader",
    "eventlog-writer",
    "exec",
    "fluid-consumer",
    "fluid-producer",
    "fsd-consumer",
    "hostlist-consumer",
    "hostlist-producer",
    "idset-consumer",
    "idset-producer",
    "ingest",
    "job-manager",
    "jobspec-consumer",
    "jobspec-producer",
    "list-service",
    "queue-config",
    "resource",
    "rpc-client",
    "rpc-server",
    "scheduler",
    "shell",
    "submit-tool",
]
ADVICE: Final = frozenset(
    {
        *("6.response.4", "6.disconnect.1", "6.disconnect.3", "6.cancel.3"),
        *("20.scheduling.5", "20.scheduling.7", "21.criteria.1", "21.criteria.9"),
        *("26.format.5", "26.schemes.3", "27.expiration.12", "27.free.5"),
        *("33.tools.1", "33.tools.2", "33.tools.5"),
    }
)
"""The clauses that only recommend (readings: Advice)."""
STAY_BREACHES: Final = frozenset({"6.cancel.1", "27.exceptions.4"})
"""Those that do so and bind all the same, beside each "should" of RFC 28."""

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]

T = TypeVar("T")

_ID = re.compile(r"([1-9][0-9]*)\.[a-z]+\.[1-9][0-9]*")


class Clause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence that binds a party.

    `level` is the keyword as written, or what kind of sentence it is without one; `actor` is who is
    bound and `violator` who breaks it where that is another; `observable` is where it shows.
    `breadth` is how much it speaks of: the form of data, one message or event, much at once, or
    what other clauses say one by one. `trigger` is what makes it apply and `violation` what
    breaking it looks like. `src` is lines of the text or a section; `newest` says that the newest
    edition has it otherwise, and `now` what that says; `note` is how an ambiguity is read.
    """

    id: str
    rfc: int
    kind: Kind
    section: Text
    level: Level
    actor: Actor
    text: Text
    observable: Observable
    trigger: Text
    violation: Text
    src: Text
    breadth: Breadth = "act"
    violator: Actor | None = None
    newest: Literal["changed", "dropped"] | None = None
    now: Text | None = None
    note: Text | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    clause: list[Clause]


@cache
def load_clauses() -> Mapping[str, Clause]:
    """Return the package's registry: id to clause, in the order of the file."""
    return MappingProxyType(parse_clauses(_read(CLAUSES_FILE), CLAUSES_FILE))


def load_unjudged() -> dict[str, str]:
    """Return the reasons why no rule judges a clause: id to sentence."""
    return parse_reasons(_read(UNJUDGED_FILE), UNJUDGED_FILE)


def parse_clauses(text: str, where: str = "clauses") -> dict[str, Clause]:
    """Decode a registry.

    Raises FormatError for an unknown or missing key, a value that is none of those allowed, an id
    that does not start with its rfc or comes twice.
    """
    clauses: dict[str, Clause] = {}
    for clause in _decode(text, _File, where).clause:
        match = _ID.fullmatch(clause.id)
        if match is None or int(match[1]) != clause.rfc:
            raise FormatError(f"{clause.rfc}.section.number", clause.id, f"{where}: id")
        if clause.id in clauses:
            raise FormatError("every id once", clause.id, f"{where}: id")
        clauses[clause.id] = clause
    return clauses


def parse_reasons(text: str, where: str = "reasons") -> dict[str, str]:
    """Decode a file of reasons. Raises FormatError."""
    return _decode(text, dict[str, Text], where)


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _decode(text: str, shape: type[T], where: str) -> T:
    try:
        return msgspec.toml.decode(text, type=shape)
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at(where) from None
    except msgspec.DecodeError as error:
        raise FormatError(f"TOML ({error})", text, where) from None
