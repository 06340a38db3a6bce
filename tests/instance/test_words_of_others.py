"""What a guest at the socket may write and hear: one line of the log, and the guest's own jobs."""

from __future__ import annotations

from pathlib import Path

import trio
import trio_websocket

from flux_trio.messages import topics
from tests.instance.test_users import ME, OPEN_TO_ALL, SOMEBODY, SPEC, connected, instance_of
from tests.support.instance import DEADLINE_S

FORGED = "bye\nsched.err: forged\x1b[2J\u202e"
SHOWN = r"bye\nsched.err: forged\x1b[2J\u202e"
PROTOCOL_ERROR = 1002


async def test_a_close_reason_stays_in_its_line_of_the_log(tmp_path: Path) -> None:
    async with instance_of(SOMEBODY, tmp_path, OPEN_TO_ALL) as instance:
        stream = await trio.open_unix_socket(tmp_path / "local")
        async with trio.open_nursery() as nursery:
            socket = await trio_websocket.wrap_client_stream(
                nursery, stream, host="localhost", resource="/"
            )
            await socket.aclose(PROTOCOL_ERROR, FORGED)
        async with instance.connect("owner") as owner:
            with trio.fail_after(DEADLINE_S):
                while not (lost := [e for e in instance.log if "connection lost" in e.text]):
                    await owner.call(topics.BROKER_INFO)
        assert lost[0].text.endswith(SHOWN)
        assert not [line for line in str(lost[0]).splitlines() if line.startswith("sched.err")]


async def test_a_guest_hears_of_exceptions_of_own_jobs_and_not_of_a_purge(tmp_path: Path) -> None:
    """The private events of another's job and of the purge come before that of the guest's own."""
    async with (
        instance_of(SOMEBODY, tmp_path, OPEN_TO_ALL) as instance,
        instance.connect("owner") as owner,
        connected(tmp_path) as client,
        client.subscribe("*") as events,
    ):
        theirs = int((await owner.call(topics.INGEST_SUBMIT, {"jobspec": SPEC}))["id"])
        await owner.call(topics.JOB_RAISE, {"id": theirs, "severity": 0, "type": "cancel"})
        with trio.fail_after(DEADLINE_S):
            count = 0
            while not count:  # until the job is inactive
                purge = {"num_limit": 0, "force": True}
                count = (await owner.call(topics.JOB_PURGE, purge))["count"]
            mine = await client.submit(SPEC)
            await mine.cancel()
            heard = []
            async for event in events:
                heard.append(event.topic)
                if event.topic == topics.JOB_EXCEPTION_EVENT:
                    break
        assert topics.JOB_PURGE_EVENT not in heard
        assert event.payload is not None
        assert (event.payload["id"], event.userid) == (mine.id, ME)
