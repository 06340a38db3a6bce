"""The examples that RFC 32 prints are read in the classic edition, and say what they say there.

The commas that the RFC prints after the last key are left out, since JSON has none there.
"""

from __future__ import annotations

from typing import Any

from flux_trio.editions import CLASSIC, Codec, rfc32
from flux_trio.formats import FormatError
from flux_trio.messages import FluxError, Request

JOBID = 1552593348


def read(codec: Codec[Any], payload: dict[str, Any]) -> Any:
    """What the payload says; why it is refused."""
    try:
        return codec.read(Request("job-exec.example", payload))
    except (FluxError, FormatError) as error:
        return str(error)


def report(kind: str, data: dict[str, Any]) -> Any:
    answer = read(CLASSIC.start_answer, {"id": JOBID, "type": kind, "data": data})
    return answer if isinstance(answer, str) else answer.report


def test_hello() -> None:
    """32.hello.5"""
    assert read(CLASSIC.exec_hello, {"service": "job-exec"}) == rfc32.Hello("job-exec")


def test_start_request() -> None:
    """32.start.11: its jobspec is empty there."""
    payload = {"id": JOBID, "userid": 5588, "jobspec": {}, "reattach": False}
    assert read(CLASSIC.start, payload) == rfc32.Start(JOBID, 5588, {}, reattach=False)


def test_start() -> None:
    """32.start.19"""
    assert report("start", {}) == rfc32.Started()


def test_release() -> None:
    """32.start.22"""
    assert report("release", {"ranks": "0-2", "final": True}) == rfc32.Released("0-2", final=True)


def test_exception() -> None:
    """32.start.29"""
    data = {"severity": 0, "type": "timeout", "note": "resource allocation expired"}
    raised = rfc32.RaisedException(0, "timeout", "resource allocation expired")
    assert report("exception", data) == raised


def test_finish() -> None:
    """32.start.33: passed on as it is."""
    assert report("finish", {"status": 143}) == rfc32.Finished(143)
