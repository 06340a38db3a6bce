"""The page about a run: each kind that was played, and what each judge said.

    python -m tests.real.innocent.page SEED [COUNT]

plays the stories of a seed, with `flux` on PATH, and writes the page.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.real.innocent.judging import JudgedStory, play
from tests.real.innocent.kinds import ACTS, STATES, Kind, all_kinds, draw_stories

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-we-know" / "innocent-stories.md"
KINDS: Final = 48
"""So many kinds a run plays."""
HEAD: Final = """# Innocent stories

`make real` plays stories on a live flux-core in which nobody does wrong: an *act* while jobs are
in a *state*. Which are played is drawn from a seed. Each instance is observed in five ways: by a
trace from its beginning and one from the midst (`flux module trace --full`), by `flux-trio check -`
at the end of a pipe, by `flux-trio attach monitor`, which joins in the midst, and by the trace that
the monitor wrote. All are judged at rest. None may accuse anybody, none may say that something is
due for ever, and no two may contradict each other. `tests/real/innocent` has the player;
`python -m tests.real.innocent.page SEED` plays the stories of a seed and writes this page.
"""


def page(seed: int, told: Iterable[JudgedStory]) -> str:
    """Return the page about the stories of a seed."""
    told = list(told)
    played = {str(kind) for each in told for kind in each.story.kinds}
    lines = [HEAD, f"The last run had the seed {seed}, and played {len(played)} of the "]
    lines[-1] += f"{len(all_kinds())} kinds that there are: y was played, a dot was not, and the"
    lines += ["job manager refuses what is left blank.", "", *_table(played), ""]
    lines += ["## What was said", "", *_verdicts(told), ""]
    return "\n".join(lines)


def _table(played: set[str]) -> Iterator[str]:
    every = {str(each) for each in all_kinds()}
    yield f"| act | {' | '.join(STATES)} |"
    yield f"|---|{'---|' * len(STATES)}"
    for act in ACTS:
        kinds = [str(Kind(act, state)) for state in STATES]
        marks = [("y" if kind in played else ".") if kind in every else " " for kind in kinds]
        yield f"| {act} | {' | '.join(marks)} |"


def _verdicts(told: list[JudgedStory]) -> Iterator[str]:
    yield "| instance | observer | kept | known departures | accused | due | contradictions |"
    yield "|---|---|---|---|---|---|---|"
    for each in told:
        for name, said in each.said.items():
            known = ", ".join(f"{clause} ({n})" for clause, n in sorted(said.known.items()))
            row = (str(each.story.setting), name, len(said.kept), known or "none")
            rest = (", ".join(said.broken) or "nobody", ", ".join(said.due) or "nothing")
            against = ", ".join(each.contradictions()) or "none"
            yield f"| {' | '.join(map(str, (*row, *rest, against)))} |"


def main(seed: int, count: int) -> None:
    told = []
    for number, story in enumerate(draw_stories(seed, count)):
        with tempfile.TemporaryDirectory() as directory:
            told.append(play(seed, count, number, story, Path(directory)))
    PAGE.write_text(page(seed, told), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else KINDS)
