"""Tests that break clauses on purpose, and which: all others fail if a clause is broken."""

from __future__ import annotations

from typing import Final

ANY: Final = "*"

BREAKING: Final = {
    # a scheduler or exec service that a test plays: no resources of its own, no R in the KVS
    "tests/failures/": "28.impl.1 27.success.1 invariant.no-double-allocation",
    "tests/instance/test_clauses_instance.py::test_a_second_scheduler": "28.impl.1",
    # whoever the test plays answers or asks wrongly, in every way there is
    "tests/failures/test_scheduler_wrong.py": ANY,
    "tests/failures/test_real_peers.py": ANY,
    "tests/failures/test_exec.py::test_wrong_answer_": ANY,
    "tests/failures/test_exec.py::test_final_release_before_finish": "32.start.35 32.criteria.5",
    "tests/failures/test_exec.py::test_answer_after_the_final_release": ANY,
    "tests/failures/test_exec.py::test_service_that_cannot_say_who_it_is": ANY,
    "tests/failures/test_exec.py::test_second_service_is_refused": ANY,
    "tests/failures/test_resource.py::test_scheduler_refuses_a_wrong_answer": ANY,
    "tests/failures/test_resource.py::test_news_of_targets_that_are_unknown": ANY,
    "tests/failures/test_resource.py::test_wrong_request_is_refused": ANY,
    "tests/failures/test_clients.py::test_wrong_request_": ANY,
    "tests/failures/test_clients.py::test_answers_for_a_client_that_has_gone": ANY,
    "tests/testing/test_watching.py": ANY,
    # asks everything in everybody's name, also what only another service may ask
    "tests/instance/test_roles.py": ANY,
    "tests/cli/test_monitoring.py::test_what_breaks_while": ANY,
    # judges its scenarios itself, which break clauses on purpose
    "tests/conformance/test_planted.py": ANY,
    # as flux-core does in the recording
    "tests/recordings/test_eventlogs.py": "27.impl.10 32.impl.5",
    # asks everything wrongly, as in the recording
    "tests/recordings/test_rpc_errors.py": ANY,
    # a plugin gives jobs their resources, and no scheduler is asked
    "tests/jobtap/builtins/test_alloc_": "27.impl.3 27.success.6 27.free.9",
    # a scheduler that ends between hello and ready, as if ENODATA were the reason
    "tests/failures/test_scheduler.py::test_next_scheduler_takes_over_from_every_state"
    "[queued_before_ready": "6.streaming.3",
    # a scheduler in another process holds no service name before it is ready
    "tests/failures/test_scheduler.py::test_scheduler_may_serve_from_outside": "27.background.2",
}
"""By the beginning of a test's id, the clauses that whoever the test plays breaks."""

UNSETTLED: Final = frozenset({"6.response.4"})
"""Broken by services of ours, and to be mended: module.load says why in more than 80 characters."""


def is_judged(nodeid: str) -> bool:
    """Whether the test's instances are judged at all."""
    return ANY not in _entries(nodeid)


def broken_on_purpose(nodeid: str) -> frozenset[str]:
    """The clauses that the test may break."""
    return UNSETTLED.union(*(entry.split() for entry in _entries(nodeid)))


def _entries(nodeid: str) -> list[str]:
    return [clauses for start, clauses in BREAKING.items() if nodeid.startswith(start)]
