"""Each seed draws faults of its own subset of the catalogue."""

from __future__ import annotations

from random import Random
from typing import get_args

from flux_trio.faults.catalogue import AtMoment, HeldUntil, Holds, Plugins
from flux_trio.faults.swarm import draw_faults


def test_every_fault_after_which_all_properties_hold_is_drawn() -> None:
    drawn = {type(each) for seed in range(300) for each in draw_faults(Random(seed), 5)}
    held = (*get_args(AtMoment), *get_args(Plugins), HeldUntil)
    assert drawn >= set(held)
    assert all(each.holds is not Holds.NO_ERROR for each in drawn)


def test_a_seed_leaves_most_kinds_out_now_and_then() -> None:
    kinds = [len({type(each) for each in draw_faults(Random(seed), 40)}) for seed in range(40)]
    assert min(kinds) <= 8
    assert max(kinds) >= 20


def test_the_first_fault_strikes_the_scheduler() -> None:
    assert draw_faults(Random(1), 0) == ()
    firsts = [draw_faults(Random(seed), 1)[0] for seed in range(50)]
    assert {getattr(each, "module", "") for each in firsts} == {"sched"}
