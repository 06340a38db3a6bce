"""Editions answer questions by name."""

from __future__ import annotations

import dataclasses

import pytest

from flux_trio.editions import CLASSIC, EDITIONS, Edition


def test_editions_are_found_by_their_own_name() -> None:
    assert {name: edition.name for name, edition in EDITIONS.items()} == {"classic": "classic"}


def test_classic_answers_as_its_texts_do() -> None:
    "RFC 27 Free, RFC 28 Acquire Request, RFC 32 Hello, RFC 33 Jobspec Defaults Policy."
    assert (
        Edition(
            name="classic",
            free_is_acknowledged=True,
            acquire_names_a_group=True,
            hello_needs_no_start_outstanding=True,
            defaults_are_applied_by_job_manager=True,
        )
        == CLASSIC
    )


def test_edition_is_a_value_that_nobody_changes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLASSIC.free_is_acknowledged = False  # type: ignore[misc]  # that is the point
