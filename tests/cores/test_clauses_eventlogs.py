"""RFC 16 and RFC 18: how the job manager writes eventlogs."""

from __future__ import annotations

from typing import Any

from flux_trio.formats import format_event, parse_eventlog
from flux_trio.messages import topics
from tests.support.eventlogs import event
from tests.support.manager_script import ManagerScript, key


def test_an_eventlog_is_only_appended_to(m: ManagerScript) -> None:
    """16.schema.4, 18.format.4: nothing that it or others have written is lost or changed."""
    log = f"{key(1)}.eventlog"
    m.submit(1)
    m.kvs.commit(["append", log, format_event(event("memo", note="of somebody else"))])
    before = m.kvs.value(log) or ""
    m.raise_(1, 3)
    after = m.kvs.value(log) or ""
    assert after.startswith(before)
    assert [each.name for each in parse_eventlog(after.removeprefix(before))] == ["exception"]


def test_each_append_is_of_whole_events(m: ManagerScript) -> None:
    """18.format.3: those who watch the log never see a part of a line."""
    m.running(1)
    m.execute(1, "finish", "release final")
    commits: list[Any] = [each for each in m.kvs_asked if each.topic == topics.KVS_COMMIT]
    ops = [op for each in commits for op in each.payload["ops"]]
    appended = [op[2] for op in ops if op[1] == f"{key(1)}.eventlog"]
    assert len(appended) > 1
    assert {text[:1] + text[-2:] for text in appended} == {"{}\n"}
