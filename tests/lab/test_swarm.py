"""Each seed draws faults of its own subset of the catalogue."""

from __future__ import annotations

from random import Random

from flux_trio.lab.catalogue import (
    FAULTS,
    DamagedValue,
    Drop,
    Duplicate,
    Fault,
    HeldUntil,
    Holds,
    JumpQueue,
    Lie,
    PluginFault,
    Strike,
    is_drawn,
)
from flux_trio.lab.catalogue.aim import Aim
from flux_trio.lab.plans.swarm import draw_faults


def drawn(seed: int, nfaults: int) -> tuple[Fault, ...]:
    draw = Random(seed)
    return draw_faults(draw, nfaults, Aim(draw, njobs=6, nnodes=4))


def test_every_fault_after_which_all_properties_hold_is_drawn() -> None:
    found = {type(each) for seed in range(300) for each in drawn(seed, 5)}
    held = [each for each in FAULTS if issubclass(each, Strike | PluginFault | HeldUntil)]
    assert found >= {each for each in held if each.holds is Holds.EVERYTHING}


def test_lies_and_faults_that_break_a_promise_are_drawn_now_and_then() -> None:
    found = [each for seed in range(2000) for each in drawn(seed, 3)[1:]]
    lies = {type(each) for each in found if isinstance(each, Lie)}
    assert lies == {each for each in FAULTS if issubclass(each, Lie) and is_drawn(each)}
    broken = {type(each) for each in found if each.holds is Holds.NO_ERROR}
    assert broken == {Drop, Duplicate, JumpQueue, DamagedValue}
    assert sum(each.holds is Holds.NO_ERROR for each in found) < len(found) / 20


def test_only_a_party_that_the_others_need_not_trust_lies() -> None:
    found = [each for seed in range(500) for each in drawn(seed, 5)]
    liars = {each.which.party for each in found if isinstance(each, Lie)}
    assert liars == {"sched", "job-exec", "resource"}


def test_a_seed_leaves_most_kinds_out_now_and_then() -> None:
    kinds = [len({type(each) for each in drawn(seed, 40)}) for seed in range(40)]
    assert min(kinds) <= 8
    assert max(kinds) >= 20


def test_the_first_fault_strikes_the_scheduler() -> None:
    assert drawn(1, 0) == ()
    firsts = [drawn(seed, 1)[0] for seed in range(50)]
    assert {getattr(each, "module", "") for each in firsts} == {"sched"}
