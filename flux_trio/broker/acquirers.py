"""Who has acquired the resources of a module that is to be removed: it leaves first, in order.

A scheduler ends with an error when its acquisition ends with one (RFC 28, Error Response). When the
resource service is unloaded or loaded again by an operator, that need not be: the scheduler's own
disconnect ends the acquisition, and it acquires anew when there is a resource service again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flux_trio.broker.administration import WriteLog
from flux_trio.broker.router import Router
from flux_trio.broker.supervisor import ModuleNotStarted, Supervisor
from flux_trio.messages import FluxError, Level, topics


class Acquirers:
    """Removes them before a module, and loads them after it."""

    def __init__(self, router: Router, supervisor: Supervisor, write_log: WriteLog) -> None:
        self._router = router
        self._supervisor = supervisor
        self._write_log = write_log
        self._removed: dict[str, Callable[[], Awaitable[None]]] = {}  # what loads each of them

    async def remove_before(self, name: str) -> None:
        """Remove the modules that have acquired the resources of the module `name`."""
        holder = self._router.services.get(topics.RESOURCE)
        if holder is None or holder.name != name:
            return
        for sender, requests in list(holder.inflight.items()):
            acquires = any(each.topic == topics.RESOURCE_ACQUIRE for each in requests.values())
            if acquires and sender in self._supervisor:
                self._removed[sender] = self._supervisor.again(sender)
                text = f"module {sender} is removed before {name}, and loaded again after it"
                self._write_log(Level.INFO, topics.MODULE, text)
                await self._supervisor.remove(sender)

    async def load_after(self, name: str) -> None:
        """Load them again, once the module `name` serves resources."""
        holder = self._router.services.get(topics.RESOURCE)
        if holder is None or holder.name != name:
            return
        removed, self._removed = self._removed, {}
        for acquirer, load in removed.items():
            if acquirer not in self._supervisor:
                try:
                    await load()
                except (ModuleNotStarted, FluxError) as error:
                    self._write_log(Level.ERR, topics.MODULE, f"module {acquirer}: {error}")
