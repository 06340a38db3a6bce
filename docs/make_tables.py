"""Draw the protocols' state tables for the reference pages: `python -m docs.make_tables`.

Writes a diagram (SVG) of each into docs/reference/tables. A test holds the files in the tree
against this. The whole tables are samples in the pages; see `make_samples`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flux_trio.protocols import (
    ACQUIRE,
    ALLOC,
    EXEC_LINK,
    EXECUTION,
    GUEST_NAMESPACE,
    HOOK,
    JOB,
    LINK,
    QUEUE,
    Table,
)
from flux_trio.views import draw_states, table_markdown

DIRECTORY = Path(__file__).parent / "reference" / "tables"
TABLES: dict[str, Table[Any, Any]] = {
    "job": JOB,
    "alloc": ALLOC,
    "link": LINK,
    "acquire": ACQUIRE,
    "execution": EXECUTION,
    "exec-link": EXEC_LINK,
    "guest-namespace": GUEST_NAMESPACE,
    "hook": HOOK,
    "queue": QUEUE,
}


def diagrams() -> dict[str, str]:
    """What each file holds, by its name."""
    return {f"{name}.svg": draw_states(table) for name, table in TABLES.items()}


def tables() -> dict[str, str]:
    """Return each table as Markdown, by the name of its sample."""
    return {name: table_markdown(table) for name, table in TABLES.items()}


if __name__ == "__main__":
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, text in diagrams().items():
        (DIRECTORY / name).write_text(text)
