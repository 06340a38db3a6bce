"""`flux-trio view --live`: the records of a running instance, as rows for the viewer's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from flux_trio.cli.judge.monitor_process import REPORTED_MAX
from flux_trio.cli.judge.view_server import Feed, ViewServer, lost_line
from flux_trio.judge import Monitor, load_clauses
from flux_trio.judge.rules import CLASSIC, NEED_THE_BEGINNING, rules_of_instance
from flux_trio.messages import topics
from flux_trio.trace import Record, record_from_json
from flux_trio.views.viewer import Broken, Rows, broken_at, live_page

if TYPE_CHECKING:
    from flux_trio.client import Client

_encode: Final = msgspec.json.Encoder().encode


class LiveRows:
    """Makes lines for the feed from the responses of `module.trace`.

    `put` takes a line for each record, with the clauses that speak of it, and for each gap. `keep`
    takes a line for each violation, at most REPORTED_MAX of a clause. The monitor has not seen the
    beginning of the trace, so rules that need it wait until the module that they are about is
    loaded again. The monitor begins anew after a gap.
    """

    def __init__(
        self,
        put: Callable[[bytes], object],
        keep: Callable[[bytes], object],
        *,
        edition: str = CLASSIC,
    ) -> None:
        self._put = put
        self._keep = keep
        self._clauses = load_clauses()
        self._rules = rules_of_instance(edition, self._clauses)
        self._reported: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        """Forget what came before, at the start and after a gap."""
        self._rows = Rows()
        self._monitor = Monitor(self._rules, self._clauses, self._note, begins=False)

    def add(self, payload: dict[str, Any]) -> None:
        """Take the payload of a response."""
        if "lost" in payload:
            self._put(lost_line(payload["lost"]))
            self._begin()
            return
        found = self._monitor.observe(record_from_json(payload["record"]))
        found += self._monitor.unexplained
        # they are told, and an instance may run for months
        self._monitor.violations.clear()
        self._monitor.unexplained.clear()
        for broken in broken_at(found):
            self._report(broken)

    def _report(self, broken: Broken) -> None:
        self._reported[broken.clause] += 1
        count = self._reported[broken.clause]
        if count <= REPORTED_MAX:
            broken.is_last = count == REPORTED_MAX
            self._keep(_encode({"broken": broken}) + b"\n")

    def _note(self, record: Record, clauses: frozenset[str]) -> None:
        row = self._rows.add(record, clauses)
        if row is not None:
            self._put(_encode({"row": row}) + b"\n")


async def serve_live(
    client: Client, port: int, show: Callable[[str], object], *, edition: str | None
) -> None:
    """Show the instance's records until it ends or this is cancelled; `show` gets the address.

    They are judged by the clauses of the edition; None is the one that the instance speaks.

    Raises OSError if the port is in use.
    """
    feed = Feed()
    loaded = (await client.call(topics.MODULE_LIST))["modules"]
    names = [each["name"] for each in loaded]
    left_out = sorted(NEED_THE_BEGINNING)
    page, policy = live_page("a running instance", load_clauses(), names, left_out)
    server = ViewServer(page, policy, feed)
    spoken = edition or (await client.call(topics.BROKER_INFO))["edition"]
    rows = LiveRows(feed.put, feed.keep, edition=spoken)
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(server.serve, port))
        wanted = {"records": True}
        cancel = topics.MODULE_TRACE_CANCEL
        async with client.stream(topics.MODULE_TRACE, wanted, cancel_topic=cancel) as responses:
            show(server.url)
            async for payload in responses:
                rows.add(payload)
        tasks.cancel_scope.cancel()
