"""The monitor at a scripted broker at a real socket; `tests/real` has it at a live flux-core."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console

from flux_trio.attach import monitor
from flux_trio.attach.judging import AUDITED
from flux_trio.attach.monitor import Monitor, open_monitor
from flux_trio.cli.attach.monitor_screen import screen
from flux_trio.judge import Verdict
from flux_trio.messages import FluxError, Response, respond_error
from flux_trio.trace import routed
from flux_trio.transports import EndOfConnection
from tests.attach.test_audit import TOPICS, holding
from tests.attach.test_judging import DOUBLE, HELD, backlog, granted
from tests.support.flux_peer import Broker, broker
from tests.support.instance import DEADLINE_S
from tests.trace.test_live_module_trace import told


@pytest.fixture(autouse=True)
def settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told here comes at once."""
    monkeypatch.setattr(routed, "SETTLED_S", 0.1)
    monkeypatch.setattr(monitor, "LOOK_S", 0.02)


def payload_of(each: Any) -> dict[str, Any]:
    """What module.trace says of a message."""
    found = {name: getattr(each, name) for name in each.__struct_fields__}
    return found if found["payload"] is not None else found | {"payload": {}}


def answers(*messages: Any, **others: Any) -> dict[str, Any]:
    allocated = {topic: {"allocated": None} for topic in TOPICS}
    return {
        "config.get": {},
        "module.list": {"mods": [{"name": "my-sched", "services": ["my-sched", "sched"]}]},
        "module.trace": [payload_of(each) for each in messages],
        "job-manager.events-journal": [{"id": -1, "events": []}],
        **allocated,
        **others,
    }


@asynccontextmanager
async def watching(peer: Broker, audit: bool = False) -> AsyncIterator[tuple[Monitor, list[str]]]:
    """A monitor at work, and what it has reported."""
    reported: list[str] = []
    async with open_monitor(peer.uri) as watched, trio.open_nursery() as nursery:
        nursery.start_soon(watched.read, lambda _told: None)
        nursery.start_soon(watched.judge_all, lambda found: reported.append(found.clause))
        if audit:
            nursery.start_soon(watched.audit_at_rest, reported.append)
        yield watched, reported
        nursery.cancel_scope.cancel()


async def until(condition: Any) -> None:
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nothing says when
            await trio.sleep(0.01)


async def test_what_the_broker_tells_is_judged(tmp_path: Path) -> None:
    told_by = answers(*told())
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await until(lambda: watched.judge.nrecords > 40)
        verdicts = watched.judge.judgement().verdicts
        assert list(verdicts.values()).count(Verdict.KEPT) > 80
        assert reported == []
        assert watched.warning == ""


async def test_what_is_broken_is_reported_when_it_happens(tmp_path: Path) -> None:
    story = [*backlog(*HELD), *granted()]
    told_by = answers(*story)
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await until(lambda: reported)
        assert reported == [DOUBLE]
        assert not watched.judge.judgement().is_kept


async def test_the_trace_is_asked_for_first_with_the_scheduler_that_is_there(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path / "local", answers()) as peer, watching(peer):
        request = await peer.until("module.trace")
        assert {"job-manager", "sched-simple", "my-sched"} <= set(request.payload["names"])
        assert request.payload["full"] is True
        await peer.until("job-manager.events-journal")
        assert (await peer.until("resource.status")).nodeid == 0


async def test_another_version_is_named_with_the_known_one(tmp_path: Path) -> None:
    def attribute(request: Any) -> Any:
        return {"value": "0.99.1" if request.payload["name"] == "version" else "0", "flags": 1}

    told_by = answers(**{"attr.get": attribute})
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, _):
        assert "flux-core 0.99.1" in watched.warning
        assert "flux-core 0.88" in watched.warning


async def test_a_guest_is_told_what_he_may_not(tmp_path: Path) -> None:
    refusal = (1, "Request requires owner credentials")
    async with broker(tmp_path / "local", answers(**{"module.trace": refusal})) as peer:
        with pytest.raises(FluxError) as refused:
            async with watching(peer):
                await trio.sleep_forever()
    assert str(refused.value) == (
        "module.trace: Request requires owner credentials: only the owner of the instance may "
        "follow the messages of its modules"
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "timestamp",
            "noon",
            r"module.trace: payload: Expected `float`, got `str` - at `$.timestamp`",
        ),
        ("type", 3, r"module.trace: payload: Invalid enum value 3 - at `$.type`"),
        (
            "payload",
            [1],
            r"module.trace: payload: Expected `object | null`, got `array` - at `$.payload`",
        ),
    ],
)
async def test_what_is_no_message_ends_the_monitor_with_topic_and_key(
    tmp_path: Path, key: str, value: Any, text: str
) -> None:
    wrong = payload_of(next(told())) | {key: value}
    async with broker(tmp_path / "local", answers(**{"module.trace": [wrong]})) as peer:
        with pytest.raises(FluxError) as refused:
            async with watching(peer):
                await trio.sleep_forever()
    assert str(refused.value) == text


async def test_the_end_of_the_instance_ends_the_monitor(tmp_path: Path) -> None:
    async with broker(tmp_path / "local", answers(*told())) as peer:
        with pytest.raises(EndOfConnection):  # noqa: PT012 - the end of a block
            async with watching(peer) as (watched, _):
                await until(lambda: watched.nwaiting == 0)
                assert peer.connection is not None
                await peer.connection.aclose()
                await trio.sleep_forever()
    watched.judge_rest(lambda _found: None)
    assert watched.judge.judgement().is_kept


async def test_what_comes_too_fast_is_given_up_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "WAITING_MAX", 5)
    told_by = answers(*told())
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await until(lambda: watched.judge.nlost and not watched.nwaiting)
        assert watched.judge.nlost == 25
        await peer.until("job-manager.events-journal")
        await peer.until("job-manager.events-journal-cancel")
        await peer.until("job-manager.events-journal")  # what was before is asked again
        assert reported == []


async def test_a_journal_that_ends_with_its_job_manager_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "AGAIN_S", 0.0)
    async with broker(tmp_path / "local", answers()) as peer, watching(peer):
        journal = await peer.until("job-manager.events-journal")
        peer.send(respond_error(journal, 38, "No service matching job-manager"))
        assert (await peer.until("job-manager.events-journal")).matchtag == journal.matchtag


async def test_who_pauses_leaves_the_trace_and_joins_again_as_one_that_joins_late(
    tmp_path: Path,
) -> None:
    told_by = answers(*told())
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await until(lambda: watched.judge.nrecords > 40)
        before = watched.judge.judgement().verdicts
        told_by["module.list"] = {"mods": [{"name": "other", "services": ["other", "sched"]}]}
        peer.answers |= told_by | {"module.trace": []}
        await watched.pause()
        await until(lambda: peer.nopen == 1)
        peer.came.clear()
        began = watched.judge.began
        watched.resume()
        assert "other" in (await peer.until("module.trace")).payload["names"]
        await peer.until("job-manager.events-journal")
        assert watched.judge.began > began
        verdicts = watched.judge.judgement().verdicts
        assert {name for name, found in before.items() if found is Verdict.KEPT} <= {
            name for name, found in verdicts.items() if found is Verdict.KEPT
        }
        assert reported == []


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.real
async def test_a_monitor_that_is_stopped_from_the_keyboard_reads_no_trace_meanwhile(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path / "local", answers()) as peer:
        command = [sys.executable, "-m", "flux_trio", "attach", "monitor", "--to", peer.uri]
        process = await trio.lowlevel.open_process(
            command, process_group=0, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            for _ in range(2):
                with trio.fail_after(DEADLINE_S):
                    while not peer.came or peer.came[-1].topic != "resource.status":
                        await peer.arrived.wait()
                assert peer.nopen == 2
                peer.came.clear()
                process.send_signal(signal.SIGTSTP)
                await until(lambda: peer.nopen == 1)
                await until(lambda: state_of(process.pid) == "T")
                assert not peer.came
                process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
        finally:
            process.kill()


async def test_an_audit_names_what_stays_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "AGAIN_S", 0.0)
    leak = {"sched.resource-status": {"allocated": holding("0", "n0", core="0")}}
    told_by = answers(**leak)
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await watched.audit(reported.append)
        assert reported == [
            "a node (rank 0): core 0: held by the scheduler, and not by the job manager and "
            "resource module"
        ]
        assert watched.judge.judgement().verdicts[AUDITED] is Verdict.BROKEN
        asked = [each for each in peer.came if getattr(each, "topic", "") == TOPICS[0]]
        assert len(asked) == 2


async def test_an_instance_is_audited_once_each_time_that_it_comes_to_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "REST_S", 0.0)
    async with (
        broker(tmp_path / "local", answers()) as peer,
        watching(peer, audit=True) as (watched, _),
    ):
        await until(lambda: watched.audited_at is not None)
        first = watched.audited_at
        peer.send(Response("module.trace", payload_of(backlog(*HELD)[0]), 0, 1, 0x40))
        await until(lambda: watched.audited_at != first)


async def test_a_difference_of_a_moment_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "AGAIN_S", 0.0)
    held = iter([{"allocated": holding("0", "n0", core="0")}])

    def once(_request: Any) -> Any:
        return next(held, {"allocated": None})

    told_by = answers(**{TOPICS[1]: once})
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await watched.audit(reported.append)
        assert reported == []
        assert watched.judge.judgement().verdicts[AUDITED] is Verdict.KEPT


async def test_a_party_that_is_away_is_no_difference(tmp_path: Path) -> None:
    away = {TOPICS[0]: (38, "No service matching job-manager.resource-status is registered")}
    told_by = answers(**away)
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await watched.audit(reported.append)
        assert "No service matching" in watched.not_audited
        assert watched.audited_at is None


def shown(watched: Monitor, height: int = 30, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(screen(watched, height, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


async def test_the_screen_says_what_is_kept_broken_due_and_known(tmp_path: Path) -> None:
    story = [*backlog(*HELD), *granted()]
    told_by = answers(*story)
    async with broker(tmp_path / "local", told_by) as peer, watching(peer) as (watched, reported):
        await until(lambda: reported)
        text = shown(watched)
        assert "flux-core 0.88.0 at local://" in text
        assert "broken 1 " in text
        assert f"{DOUBLE}     1  sched-simple: job" in text
        assert all(len(line) <= 60 for line in shown(watched, 30, 60).splitlines())
        assert len(shown(watched, 3).splitlines()) == 3
