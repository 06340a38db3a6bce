"""What a world draws stays what `random.Random.choice` draws, so that each seed keeps its world."""

from __future__ import annotations

import random

from flux_trio.faults.station import pick


def test_pick_draws_what_choice_draws_and_leaves_the_generator_alike() -> None:
    for seed in range(200):
        ours, theirs = random.Random(seed), random.Random(seed)
        for count in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 100):
            choices = range(count)
            assert pick(ours, choices) == theirs.choice(choices)
        assert ours.getstate() == theirs.getstate()
