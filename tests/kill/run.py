"""Rounds of lives: a fresh state directory each, so that a finding is small."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import trio

from flux_trio.editions import CLASSIC, CURRENT
from tests.kill.findings import find
from tests.kill.lives import Lives
from tests.support.shell import no_process_left

LIVES_OF_A_ROUND = 10


class Unsound(AssertionError):
    """What was found, with the seed and the moments that it takes to see it again."""


def run_round(directory: Path, seed: int, lives_max: int = LIVES_OF_A_ROUND) -> int:
    """Kill `lives_max` lives and look at what is left; how many jobs there were.

    The edition is classic for an even seed, current for an odd one. Raises Unsound.
    """
    lives = Lives(directory, (CLASSIC, CURRENT)[seed % 2], random.Random(seed))
    for _ in range(lives_max):
        lives.live()
    with no_process_left(directory / "shell"), lives.last():
        found = trio.run(find, lives)
    if found:
        raise Unsound(
            "\n".join([f"seed {seed}, in {directory}", *found, "killed:", *lives.memory.moments])
        )
    return len(lives.memory.submitted)


def run_many(count: int, seed: int) -> None:
    """At least `count` kills from `seed` on. Each round has a seed of its own.

    The line that is printed before a round has the command that goes on there after Ctrl-C.
    """
    jobs = 0
    for done in range(0, count, LIVES_OF_A_ROUND):
        print(
            f"kills {done + 1} to {done + LIVES_OF_A_ROUND} of {count}, {jobs} jobs so far;"
            f" from here: make kill COUNT={count - done} SEED={seed}",
            flush=True,
        )
        # kept when something is found
        directory = tempfile.mkdtemp(prefix="flux-trio-kill-")
        jobs += run_round(Path(directory), seed)
        shutil.rmtree(directory)
        seed += 1
    print(f"{count} kills, {jobs} acknowledged jobs: none missing, none run twice")
