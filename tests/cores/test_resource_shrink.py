"""Shrink and release: what holders of resources are told, and what they have to give back."""

from __future__ import annotations

import pytest

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import inventory_from_config
from flux_trio.messages import Errno, Request
from tests.support.asking import asked, gone
from tests.support.resource_script import (
    DOWN,
    EXCLUDED,
    RELEASED,
    UP,
    ResourceScript,
    acquire,
    down,
    exclude,
    grown,
    release,
    told,
    up,
)


def renewed() -> Request:
    return asked("resource.expiration-update", {"expiration": 100})


def test_no_news_but_a_shrink_leaves_something_to_release() -> None:
    """28.release.7"""
    nothing = "resource.release: targets '1': nothing of group default to release"
    refused = ("release", Errno.EPROTO, nothing)
    script = ResourceScript()
    script(acquire())
    for news in (down("2"), up("2"), renewed()):
        assert script(release("1")) == [refused]
        script(news)
    assert script(release("1")) == [refused]
    script(exclude("1"))
    assert script(release("1")) == [RELEASED]
    assert script(release("1")) == [refused], "also after all was released"


@pytest.mark.parametrize("news", [down("3"), up("2"), renewed(), exclude("0-1")])
def test_shrunk_targets_are_to_be_released_whatever_news_follow(news: Request) -> None:
    """28.release.1, 28.release.6"""
    script = ResourceScript()
    script(down("2"), acquire())
    script(exclude("0"))
    assert len(script(news)) == 2, "an answer, and the news"
    assert script(release("0")) == [RELEASED]


def test_shrunk_targets_are_to_be_released_after_a_part_of_them_was() -> None:
    """28.release.1, 28.release.4"""
    script = ResourceScript()
    script(acquire())
    script(exclude("0-2"))
    for target in ("0", "1", "2"):
        assert script(release(target)) == [RELEASED]
    assert script(exclude("")) == [EXCLUDED, grown("0-2")]


@pytest.mark.parametrize("news", [None, down("1"), exclude("1")])
def test_group_can_be_acquired_after_a_holder_left_at_any_moment(news: Request | None) -> None:
    """28.disconnect.3"""
    script = ResourceScript()
    script(acquire())
    if news is not None:
        script(news)
    script(gone("resource", "sched"))
    ((_, errnum, payload),) = script(acquire(by="other"))
    assert (errnum, payload["type"]) == (0, "grow")


def test_group_can_be_acquired_after_a_holder_left_before_the_first_grow() -> None:
    """28.disconnect.3"""
    script = ResourceScript()
    assert script(acquire(), gone("resource", "sched"), acquire(by="other")) == [grown("0-3")]


def test_who_acquires_in_the_turn_in_which_all_targets_are_excluded_is_told_of_both() -> None:
    """28.criteria.1"""
    script = ResourceScript()
    said = script(acquire(), exclude("0-3"))
    assert said == [grown("0-3"), EXCLUDED, told("shrink", "0-3")]


def test_holder_that_leaves_in_the_turn_of_its_news_is_told_nothing() -> None:
    """6.disconnect.2"""
    script = ResourceScript()
    assert script(acquire(), exclude("0-3"), gone("resource", "sched")) == [EXCLUDED]


def test_excluding_shrinks_the_default_group_and_including_grows_it() -> None:
    """28.shrink.1, 28.release.8"""
    script = ResourceScript()
    script(acquire())
    assert script(exclude("node[1-2]")) == [EXCLUDED, told("shrink", "1-2")]
    assert script(release("1-2")) == [RELEASED]
    assert script(exclude("2")) == [EXCLUDED, grown("1")]


def test_shrunk_target_is_told_of_only_by_grow() -> None:
    """28.shrink.3; readings: Shrink and offline. Only grow undoes shrink."""
    script = ResourceScript()
    script(acquire())
    script(exclude("1"))
    assert script(down("1")) == [DOWN]
    assert script(up("1")) == [UP]


def test_target_included_again_is_grown_once_it_was_released() -> None:
    script = ResourceScript()
    script(acquire())
    script(exclude("1"))
    assert script(exclude("")) == [EXCLUDED]
    assert script(release("1")) == [RELEASED, grown("1")]


def test_excluded_target_goes_to_the_other_group_once_it_was_released() -> None:
    """28.background.1: no target is held twice."""
    script = ResourceScript(exclude="0")
    script(acquire(), acquire("exclude", by="other", tag=2))
    assert script(exclude("0-1")) == [EXCLUDED, told("shrink", "1")]
    assert script(release("1")) == [RELEASED, grown("1")]


def test_target_of_a_holder_that_left_needs_no_release() -> None:
    script = ResourceScript(exclude="0")
    script(acquire(), acquire("exclude", by="other", tag=2))
    script(exclude("0-1"))
    assert script(gone("resource", "sched")) == [grown("1")]


def test_the_example_of_release_is_accepted() -> None:
    """28.release.4"""
    script = ResourceScript(
        inventory=inventory_from_config([ResourceEntry("node[0-7]", cores="0-3")])
    )
    script(acquire())
    script(exclude("1-3,5"))
    assert script(release("1-3,5")) == [RELEASED]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (release("0"), "targets '0': targets 1-2 of group default to release"),
        (release("0-2"), "targets '0-2': targets 1-2 of group default to release"),
        (release(""), "targets ''"),
        (release("1", by="other"), "group default is not acquired by other"),
        (release("1", group="exclude"), "group exclude is not acquired by sched"),
        (release("1", group="x"), "group x is not acquired by sched"),
        (release("x"), "resource.release: targets: expected an idset"),
        (asked("resource.release", {"group": "default"}, by="sched"), "field `targets`"),
        (asked("resource.release", {"targets": "1"}, by="sched"), "field `group`"),
    ],
)
def test_release_of_what_was_not_shrunk_is_an_error(request_: Request, text: str) -> None:
    """28.release.2, 28.release.3, 28.release.5, 28.release.6, 28.release.7"""
    script = ResourceScript()
    script(acquire())
    script(exclude("1-2"))
    ((_, errnum, payload),) = script(request_)
    assert errnum == Errno.EPROTO
    assert text in payload
    assert script(release("1-2")) == [RELEASED], "the others are unaffected"
