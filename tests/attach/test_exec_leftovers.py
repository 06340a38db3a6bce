"""Jobs that ended for flux-core while our execution service was away."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.exec.guest_contents import PLACES
from flux_trio.formats import format_eventlog, job_key, parse_eventlog
from flux_trio.shell.protocol import Attach, Signal
from tests.support.asking import OWNER_USERID
from tests.support.bridge_script import BridgeScript
from tests.support.eventlogs import ending, event, raised, running

EVENTLOG = job_key(7, "eventlog")
FREED = [event("free"), event("clean")]


def left(*events: Any) -> BridgeScript:
    """The script that follows one which was killed while a job ran; then the job got `events`."""
    script = BridgeScript()
    script.start()
    script.launched()
    script.files[7, 0, "stdout"] = b"hello\n"
    script.poll()
    log = format_eventlog([*running(48.0, userid=OWNER_USERID), *events])
    script.kvs.spaces["primary"][EVENTLOG] = log
    following = BridgeScript(script.kvs)
    following.files = script.files
    return following


def test_job_that_was_canceled_meanwhile_is_ended() -> None:
    script = left(raised("cancel"), *FREED)
    (attach,) = script.shell
    assert attach == Attach(7)
    script.launched()
    assert script.shell[-1] == Signal(7, 15)
    script.ended(status=143 << 8)
    assert script.told == []  # flux-core has not asked, and knows nothing of it any more
    assert list(script.kvs.spaces) == ["primary"]
    assert script.output()["stdout"] == "hello\n"
    assert script.events()[-2:] == ["complete", "done"]
    assert [each.topic for each in script.sent] == ["service.add", "service.remove"]


def test_job_that_was_being_ended_goes_on_in_flux_core() -> None:
    """flux-core 0.88 looks at a job in CLEANUP only when something happens to it."""
    script = left(raised("cancel"))
    script.launched()
    assert "job-manager.raise" not in [each.topic for each in script.sent]
    script.ended()
    assert script.told == []
    wake = script.pop("job-manager.raise").payload
    assert (wake["id"], wake["type"], wake["severity"]) == (7, "exec", 7)


def test_job_that_flux_core_asks_for_while_it_is_looked_at_is_flux_cores() -> None:
    """It is canceled before its eventlog is read: then it seems to be over for flux-core."""
    script = BridgeScript()
    script.start()
    script.launched()
    script = BridgeScript.looking(script.kvs)
    script.start(reattach=True)
    log = format_eventlog([*running(48.0, userid=OWNER_USERID), raised("cancel")])
    script.kvs.spaces["primary"][EVENTLOG] = log
    script.let_go()
    script.launched()
    script.ended(status=143 << 8)
    assert [each for each, _ in script.answers()][-2:] == ["finish", "release"]


def test_job_that_has_no_process_any_more_is_not_kept_either() -> None:
    script = left(raised("cancel"))
    script.unknown()
    assert script.pop("job-manager.raise").payload["id"] == 7
    assert list(script.kvs.spaces) == ["primary"]


@pytest.mark.parametrize("events", [[], [raised("node-failure", severity=2)]])
def test_job_that_runs_is_left_to_flux_core_to_ask_for(events: list[Any]) -> None:
    script = left(*events)
    assert script.shell == []
    assert "job-7" in script.kvs.spaces


def test_namespace_of_a_job_that_is_told_is_removed() -> None:
    """The first program was killed when it had told the end, before the namespace was gone."""
    script = BridgeScript()
    script.start()
    script.launched()
    script.kvs.spaces["job-8"] = dict(script.kvs.spaces["job-7"])
    script.ended()
    script.kvs.spaces["job-7"] = script.kvs.spaces.pop("job-8")
    log = [*running(48.0, userid=OWNER_USERID), *ending(48.0)]
    script.kvs.spaces["primary"][EVENTLOG] = format_eventlog(log)
    following = BridgeScript(script.kvs)
    assert list(following.kvs.spaces) == ["primary"]
    assert following.shell == []


def test_job_that_was_moved_and_not_told_goes_on_in_flux_core() -> None:
    script = BridgeScript()
    script.start()
    script.launched()
    script.kvs.dies_at = "kvs.commit"
    script.ended(status=143 << 8)
    assert [kind for kind, _ in script.answers()] == ["start"]
    script.kvs.dies_at = ""
    log = [*running(48.0, userid=OWNER_USERID), raised("cancel")]
    script.kvs.spaces["primary"][EVENTLOG] = format_eventlog(log)
    following = BridgeScript(script.kvs)
    assert following.pop("job-manager.raise").payload["id"] == 7
    assert list(following.kvs.spaces) == ["primary"]
    assert following.shell == []


def test_namespace_of_somebody_else_is_left_alone() -> None:
    """It has no key of ours, and its last event is not written."""
    script = left(raised("cancel"))
    del script.kvs.spaces["job-7"][PLACES]
    following = BridgeScript(script.kvs)
    assert following.shell == []
    assert "job-7" in following.kvs.spaces


def test_damaged_leftover_is_named_in_the_log() -> None:
    script = left(raised("cancel"))
    script.kvs.spaces["primary"][job_key(7, "R")] = "{}"
    following = BridgeScript(script.kvs)
    assert following.shell == []
    (line,) = following.logs
    assert line.startswith("job 7, which is over, cannot be ended: ")


def test_eventlog_of_the_tests_is_one_of_flux_core() -> None:
    """The job was freed without a final release: it was nobody's."""
    names = [each.name for each in parse_eventlog(format_eventlog([raised("cancel"), *FREED]))]
    assert names == ["exception", "free", "clean"]
