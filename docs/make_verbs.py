"""Where Flux's own programs say something else to flux-trio: the list of `make real-verbs`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

VERBS: Final = Path(__file__).parents[1] / "tests" / "real" / "verbs"
_WITH_SUBCOMMANDS: Final = (
    *("job", "queue", "resource", "module", "config", "jobtap", "housekeeping", "event", "kvs"),
    *("sproc", "overlay", "cron"),
)
_WORDS_OF_FLUX: Final = re.compile(r"\bflux((?: [a-zA-Z][\w-]*){1,3})")
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
    verbs = {verb for line in story for verb in _verbs_of(line)}
    departing = {verb for line in codes for verb in _verbs_of(line)}
    return (
        f"{len(story)} commands of {len(verbs)} verbs are played, each verb at least twice, and "
        f"once with bad input. By the list below, {len(story) - len(codes)} end with flux-core's "
        f"exit code, and {len(story) - len(other)} are equal in every byte, but for times, ids and "
        f"addresses. {len(verbs - departing)} verbs have flux-core's exit code in each of their "
        "commands."
    )


def _verbs_of(line: str) -> set[str]:
    """Return the verbs in a command: `submit`, `queue stop`, `kvs namespace create`."""
    verbs = set()
    for first, *rest in map(str.split, _WORDS_OF_FLUX.findall(line.replace("\\ ", " "))):
        depth = 2 if rest[:1] in (["namespace"], ["eventlog"]) and first == "kvs" else 1
        verbs.add(" ".join([first, *(rest[:depth] if first in _WITH_SUBCOMMANDS else [])]))
    return verbs


def _cell(text: str) -> str:
    return text.replace("\\ ", " ").replace("|", "\\|")
