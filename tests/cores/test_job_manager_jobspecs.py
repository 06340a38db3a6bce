"""Jobspecs in the job manager: kept small, and as they were given."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_trio.cores.job_manager.jobs.jobspecs import Jobspecs
from flux_trio.formats import Jobspec


def case(place: int, command: str = "app") -> bytes:
    jobspec = Jobspec.from_command([command, f"--input=/data/{place}.h5"], cwd=f"/run{place}")
    return msgspec.json.encode(jobspec.to_json())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=20_000)), max_size=6))
def test_every_jobspec_comes_back_as_it_was(jobspecs: list[tuple[int, bytes]]) -> None:
    keeper = Jobspecs()
    kept = [keeper.keep(userid, jobspec) for userid, jobspec in jobspecs]
    assert [each.text for each in kept] == [jobspec for _, jobspec in jobspecs]


def test_a_jobspec_like_another_is_kept_in_a_fraction_of_its_size() -> None:
    keeper = Jobspecs()
    first, second = keeper.keep(1, case(1)), keeper.keep(1, case(20))
    assert second.like is first.like
    assert len(second.packed) * 5 < len(case(20))


def test_equal_jobspecs_are_one_object() -> None:
    keeper = Jobspecs()
    kept = [keeper.keep(1, case(place % 2)) for place in range(4)]
    assert kept[2] is kept[0]
    assert kept[3] is kept[1]


def test_equal_jobspecs_are_decoded_once() -> None:
    keeper = Jobspecs()
    decoded = [keeper.keep(1, case(place % 2)).json for place in range(4)]
    assert decoded[2] is decoded[0]
    assert decoded[3] is decoded[1]
    assert [msgspec.json.encode(each) for each in decoded[:2]] == [case(0), case(1)]


def test_a_jobspec_like_none_before_is_what_the_next_are_like() -> None:
    keeper = Jobspecs()
    keeper.keep(1, b"{}")
    new = keeper.keep(1, case(1))
    assert new.like.text == case(1)
    assert keeper.keep(1, case(2)).like is new.like


def test_what_one_user_writes_says_nothing_of_another() -> None:
    keeper = Jobspecs()
    keeper.keep(1, case(1))
    assert keeper.keep(2, case(2)).like.text == case(2)
