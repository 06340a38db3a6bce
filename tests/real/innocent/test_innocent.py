"""In innocent stories no judge accuses anybody, and no two contradict each other.

Which stories are played is drawn from the seed; `--innocent 7` plays those of another one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.innocent.judging import play
from tests.real.innocent.kinds import ACTS, SETTINGS, STATES, draw_stories
from tests.real.innocent.page import KINDS
from tests.real.innocent.play import ACTS as PLAYED
from tests.support.real_flux import NEEDS_FLUX


def test_a_run_has_forty_kinds_every_act_and_state_and_none_twice() -> None:
    for seed in range(20):
        kinds = [kind for story in draw_stories(seed, KINDS) for kind in story.kinds]
        assert len(set(kinds)) == len(kinds) >= 40
        assert {kind.act for kind in kinds} == set(ACTS) == PLAYED.keys()
        assert {kind.state for kind in kinds} == set(STATES)


@pytest.mark.real_flux
@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=lambda n: str(SETTINGS[n]))
@NEEDS_FLUX[1]
def test_nobody_is_accused_in_an_innocent_story(
    number: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--innocent")
    story = draw_stories(seed, KINDS)[number]
    told = play(seed, KINDS, number, story, tmp_path)
    assert [each["kind"] for each in told.played] == list(map(str, story.kinds))
    assert told.contradictions() == []
    assert {name: (said.broken, said.due) for name, said in told.said.items()} == {
        name: ({}, {}) for name in told.said
    }
    assert all(len(said.kept) > 100 for said in told.said.values())
