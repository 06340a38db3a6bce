"""`flux-trio view --live`: the records of a running instance, as rows for the viewer's page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from flux_trio.cli.view_server import Feed, ViewServer, lost_line
from flux_trio.judge import NotingMonitor, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import topics
from flux_trio.trace import Record, record_from_json
from flux_trio.views.viewer import Rows, live_page

if TYPE_CHECKING:
    from flux_trio.client import Client

_encode: Final = msgspec.json.Encoder().encode


class LiveRows:
    """Makes lines for the feed from the responses of `module.trace`.

    A monitor notes which clauses speak of each record. Its verdicts are not used: it has not seen
    the beginning of the trace.
    """

    def __init__(self, put: Callable[[bytes], object]) -> None:
        self._put = put
        self._clauses = load_clauses()
        self._begin()

    def _begin(self) -> None:
        """Forget what came before, at the start and after a gap."""
        self._rows = Rows()
        self._monitor = NotingMonitor(ALL_RULES, self._clauses, self._note)

    def take(self, told: dict[str, Any]) -> None:
        """Take the payload of a response."""
        if "lost" in told:
            self._put(lost_line(told["lost"]))
            self._begin()
            return
        self._monitor.observe(record_from_json(told["record"]))
        self._monitor.violations.clear()

    def _note(self, record: Record, clauses: frozenset[str]) -> None:
        row = self._rows.take(record, clauses)
        if row is not None:
            self._put(_encode({"row": row}) + b"\n")


async def serve_live(client: Client, port: int, tell: Callable[[str], object]) -> None:
    """Show the instance's records until it ends or this is cancelled; `tell` gets the address.

    Raises OSError if the port is in use.
    """
    feed = Feed()
    loaded = (await client.call(topics.MODULE_LIST))["modules"]
    names = [each["name"] for each in loaded]
    page, policy = live_page("a running instance", load_clauses(), names)
    server = ViewServer(page, policy, feed)
    rows = LiveRows(feed.put)
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(server.serve, port))
        wanted = {"records": True}
        cancel = topics.MODULE_TRACE_CANCEL
        async with client.stream(topics.MODULE_TRACE, wanted, cancel_topic=cancel) as responses:
            tell(server.url)
            async for told in responses:
                rows.take(told)
        tasks.cancel_scope.cancel()
