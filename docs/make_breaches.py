"""The tables of how a party breaks a chosen clause, for the page on faults; see `make_samples`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from flux_trio.lab import BREACHES, UNBREAKABLE, Breach, SentMessage

_FIRST: Final = (27, 32, 28, 20)
"""The protocols come first, then R, then what else binds a party."""


def tables() -> dict[str, str]:
    """Return each table as Markdown, by the name of its sample."""
    return {"breaches": _breaches(), "unbreakable": _unbreakable()}


def _breaches() -> str:
    rows = ["| clause | its message | what it says | needs |", "|---|---|---|---|"]
    for clause in _in_order(BREACHES):
        breach = BREACHES[clause]
        rows.append(f"| {clause} | {_message(breach)} | {_lie(breach)} | {breach.needs} |")
    return "\n".join(rows)


def _unbreakable() -> str:
    """Clauses with one reason share a row."""
    clauses: dict[str, list[str]] = {}
    for clause in _in_order(UNBREAKABLE):
        clauses.setdefault(UNBREAKABLE[clause], []).append(clause)
    rows = [f"| {', '.join(named)} | {reason} |" for reason, named in clauses.items()]
    return "\n".join(["| clause | why there is no lie for it |", "|---|---|", *rows])


def _in_order(clauses: Iterable[str]) -> list[str]:
    def place(clause: str) -> int:
        rfc = int(clause.partition(".")[0])
        return _FIRST.index(rfc) if rfc in _FIRST else len(_FIRST)

    return sorted(clauses, key=place)


def _message(breach: Breach) -> str:
    sought = breach.lie.which
    has = "".join(f", {key} {_json(value)}" for key, value in breach.has.items())
    return f"{sought.type} `{sought.topic}` of {sought.party}{has}"


def _lie(breach: Breach) -> str:
    """Return the lie without its message, and without what it has by default."""
    values = ", ".join(f"{key}={_json(value)}" for key, value in _fields(breach))
    return f"`{type(breach.lie).__name__}({values})`"


def _fields(breach: Breach) -> Iterator[tuple[str, Any]]:
    for each in msgspec.structs.fields(breach.lie):
        value = getattr(breach.lie, each.name)
        default = each.default
        if each.default_factory is not msgspec.NODEFAULT:
            default = each.default_factory()
        if not isinstance(value, SentMessage) and value != default:
            yield each.name, value


def _json(value: Any) -> str:
    """Return a value as JSON; a bar would end the cell of the table."""
    return msgspec.json.encode(value).decode().replace("|", "\\|")
