"""RFC 32: what the execution service takes, and when it may leave an answer out."""

from __future__ import annotations

import pytest

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.turns import Exit
from flux_trio.messages import Response
from tests.support.exec_script import ExecScript, jobspec, told

RELEASE = ("release", "0", True)


def test_a_payload_with_the_four_keys_is_a_start_whatever_the_jobspec_is() -> None:
    """32.start.11: an empty one fails the job and is no error of the request."""
    answers = told(ExecScript().start(1552593348, {}))
    assert [answer[0] for answer in answers] == ["exception", "release"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"run_duration": 0.0}, ["start", "finish", "release"]),
        ({"run_duration": 0.0, "wait_status": 256}, ["start", "finish", "release"]),
        ({"mock_exception": "init"}, ["exception", "release"]),
        ({"mock_exception": "run"}, ["start", "exception", "finish", "release"]),
    ],
)
def test_start_and_finish_are_left_out_only_after_a_fatal_exception(test, expected) -> None:
    """32.start.35"""
    answers = told(ExecScript().start(1, jobspec(test=test)))
    assert [answer[0] for answer in answers] == expected
    assert answers[-1] == RELEASE


def test_hello_is_an_ordinary_request() -> None:
    """32.impl.8: with a matchtag, answered once; an errnum is a failure whatever else it says."""
    core = ExecCore(ExecConfig())
    (hello,) = core.start(1.0)
    assert hello.matchtag != 0
    assert hello.wants_response
    assert not hello.is_streaming
    assert core.turn(1.0, [Response(hello.topic, {}, 0, hello.matchtag + 1)]) == []
    actions = core.turn(1.0, [Response(hello.topic, None, 22, hello.matchtag)])
    assert any(isinstance(action, Exit) for action in actions)
