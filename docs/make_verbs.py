"""Where Flux's own programs say something else to flux-trio: the list of `make real-verbs`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

VERBS: Final = Path(__file__).parents[1] / "tests" / "real" / "verbs"
_WORDS: Final = {"rc": "exit code", "out": "output", "err": "errors"}


def tables() -> dict[str, str]:
    """Return the table of differences, by command, and how many commands are played."""
    listed = tomllib.loads((VERBS / "differences.toml").read_text())
    rows = ["| command | what differs | why |", "|---|---|---|"]
    for command, entry in listed.items():
        what = ", ".join(_WORDS[key] for key in sorted(entry["differs"], reverse=True))
        rows.append(f"| `{_cell(command)}` | {what} | {_cell(entry['reason'])} |")
    return {"differences": "\n".join(rows), "counts": _counts(listed)}


def _counts(listed: dict[str, dict[str, list[str]]]) -> str:
    story = [
        line
        for line in (VERBS / "story.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    other = [line for line in story if line in listed]
    codes = [line for line in other if "rc" in listed[line]["differs"]]
    return (
        f"{len(story)} commands are played. By the list below, {len(story) - len(codes)} end with "
        f"flux-core's exit code, and {len(story) - len(other)} are equal in every byte, but for "
        "times, ids and addresses."
    )


def _cell(text: str) -> str:
    return text.replace("\\ ", " ").replace("|", "\\|")
