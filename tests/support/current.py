"""Every instance of a test speaks the edition *current*, unless the test says which one.

`pytest -p tests.support.current` runs any test so. It is loaded before the rest of flux-trio, which
then has the other edition where it would have its default. Tests that are marked `classic` are
about what the current edition has otherwise: they are skipped. So are the recordings of flux-core
0.88 in which an instance of ours does otherwise on purpose; `DIFFERENT` says why.
"""

from __future__ import annotations

import sys

import pytest

import flux_trio.editions

assert "flux_trio.config" not in sys.modules, "expected to be loaded first, by -p"
flux_trio.editions.CLASSIC = flux_trio.editions.CURRENT  # type: ignore[misc]  # that is the point

ASKED = "ingest asks feasibility of every job, and flux-core where its validator is configured"
DIFFERENT = {
    "test_eventlogs_equal_those_of_flux_core[08]": ASKED,
    "test_commands_say_what_those_of_flux_core_say[07]": "the text of the refusal is our own",
    "test_commands_say_what_those_of_flux_core_say[08]": ASKED,
    "test_eventlogs_equal_those_of_flux_core[23]": ASKED,
    "test_commands_say_what_those_of_flux_core_say[23]": ASKED,
    "test_queues_are_those_of_flux_core[35]": "feasibility is asked before the limits of a queue",
    "test_commands_say_what_those_of_flux_core_say[35]": "the same",
    "test_eventlogs_equal_those_of_flux_core[21]": "a node that is lost is down here, not shrunk",
    "test_eventlogs_equal_those_of_flux_core[27]": "another service may take over (RFC 32, Hello)",
    "test_commands_say_what_those_of_flux_core_say[27]": "the same",
    "test_answers_are_those_of_flux_core": "the same: exec-hello is not refused",
}
"""Tests of recordings, and why we do otherwise in the current edition."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("classic")) is not None:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))
        if item.name in DIFFERENT:
            item.add_marker(pytest.mark.skip(reason=DIFFERENT[item.name]))
