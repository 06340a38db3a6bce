"""`job-exec.input` in the exec core: the shell host's side is played by the script."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from flux_trio.cores.exec.inputs import INPUT_BYTES_MAX
from flux_trio.cores.exec.vocabulary import ShellConnected, ShellLost
from flux_trio.formats import apply_update
from flux_trio.messages import Errno
from flux_trio.shell.protocol import Fed, Feed, Start, Started
from tests.support.asking import asked, asked_by_guest, gone
from tests.support.exec_script import ExecScript, jobspec, to_shell

SERVICE = {"type": "service"}
INPUT = "job-exec.input"


def with_input() -> dict[str, Any]:
    return apply_update(jobspec("cat"), "attributes.system.shell.options.input.stdin", SERVICE)


def reading() -> ExecScript:
    """Job 7 runs and takes input."""
    script = ExecScript()
    (start,) = to_shell(script.start(7, with_input()))
    assert isinstance(start, Start)
    assert start.input
    script(Started(7))
    return script


def payload(data: bytes = b"x", *, eof: bool = False) -> dict[str, Any]:
    return {"id": 7, "data": base64.b64encode(data).decode(), "eof": eof}


def test_write_is_answered_when_the_tasks_have_it() -> None:
    script = reading()
    assert to_shell(script(asked(INPUT, payload(b"\0\xff", eof=True)))) == [
        Feed(7, b"\0\xff", True)
    ]
    (answer,) = script(Fed(7, open=False))
    assert (answer.errnum, answer.payload) == (0, {"open": False})


def test_one_write_of_a_job_is_under_way_at_any_time() -> None:
    script = reading()
    script(asked(INPUT, payload()))
    (refusal,) = script(asked(INPUT, payload(b"y")))
    assert refusal.errnum == Errno.EBUSY
    script(Fed(7, open=True))
    assert to_shell(script(asked(INPUT, payload(b"y")))) == [Feed(7, b"y", False)]


def test_only_owner_and_user_of_the_job_write() -> None:
    (refusal,) = reading()(asked_by_guest(INPUT, payload()))
    assert refusal.errnum == Errno.EPERM


@pytest.mark.parametrize(
    ("spec", "errnum"),
    [
        (jobspec("cat"), Errno.EINVAL),
        (jobspec(test={"run_duration": "9s"}), Errno.EINVAL),
        (with_input(), Errno.ENOENT),  # it has yet to start
    ],
)
def test_job_without_input_is_not_written_to(spec: dict[str, Any], errnum: Errno) -> None:
    script = ExecScript()
    script.start(7, spec)
    if errnum == Errno.EINVAL:
        script(Started(7))
    (refusal,) = script(asked(INPUT, payload()))
    assert refusal.errnum == errnum


def test_job_that_nobody_knows_and_data_that_is_too_long() -> None:
    assert ExecScript()(asked(INPUT, payload()))[0].errnum == Errno.ENOENT
    (refusal,) = reading()(asked(INPUT, payload(bytes(INPUT_BYTES_MAX + 1))))
    assert (refusal.errnum, refusal.error_text) == (
        Errno.EPROTO,
        "data: expected at most 65536 bytes, got 65537",
    )


def test_lost_shell_host_ends_what_is_under_way() -> None:
    script = reading()
    script(asked(INPUT, payload()))
    answers = [each for each in script(ShellLost("gone")) if hasattr(each, "errnum")]
    assert [(each.errnum, each.error_text) for each in answers] == [
        (Errno.EIO, "lost the shell host: gone")
    ]
    assert script(asked(INPUT, payload()))[0].errnum == Errno.EIO
    script(ShellConnected())
    assert to_shell(script(asked(INPUT, payload()))) == [Feed(7, b"x", False)]


def test_refusal_of_the_shell_host_is_told() -> None:
    script = reading()
    script(asked(INPUT, payload()))
    (answer,) = script(Fed(7, open=False, refusal="no pipes"))
    assert (answer.errnum, answer.error_text) == (Errno.EIO, "no pipes")


def test_write_of_a_peer_that_is_gone_has_no_answer() -> None:
    script = reading()
    request = asked(INPUT, payload())
    script(request)
    script(gone("job-exec", request.sender))
    assert script(Fed(7, open=True)) == []
