"""Who has acquired the resources of a module that ends: he is loaded again after it.

A scheduler ends with an error when its acquisition ends with one (RFC 28, Error Response). When the
resource service is unloaded or loaded again by an operator, that need not be: the scheduler leaves
first, in order, and its own disconnect ends the acquisition. Either way it is loaded again, as it
was, when a resource service is loaded, and acquires anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flux_trio.broker.administration import WriteLog
from flux_trio.broker.router import Router
from flux_trio.broker.supervisor import ModuleNotStarted, Supervisor
from flux_trio.messages import FluxError, Level, topics


class Acquirers:
    """Removes them before a module, and loads them after it; notes them when it crashes."""

    def __init__(self, router: Router, supervisor: Supervisor, write_log: WriteLog) -> None:
        self._router = router
        self._supervisor = supervisor
        self._write_log = write_log
        self._gone: dict[str, Callable[[], Awaitable[None]]] = {}  # what loads each of them

    async def remove_before(self, name: str) -> None:
        """Remove the modules that have acquired the resources of the module `name`."""
        for acquirer in self._note(name):
            text = f"module {acquirer} is removed before {name}, and loaded again after it"
            self._write_log(Level.INFO, topics.MODULE, text)
            await self._supervisor.remove(acquirer)

    def note_crash(self, name: str) -> None:
        """Note those who end with an error since the module `name` has ended by itself."""
        for acquirer in self._note(name):
            text = f"module {acquirer} loses {name}, and is loaded again after it"
            self._write_log(Level.ERR, topics.MODULE, text)

    def _note(self, name: str) -> list[str]:
        """Note the modules that have acquired the resources of the module `name`; return them."""
        if not self._serves_resources(name):
            return []
        open_requests = self._router.services[topics.RESOURCE].inflight
        found = [
            sender
            for sender, requests in open_requests.items()
            if sender in self._supervisor
            and any(each.topic == topics.RESOURCE_ACQUIRE for each in requests.values())
        ]
        for sender in found:
            self._gone[sender] = self._supervisor.again(sender)
        return found

    def _serves_resources(self, name: str) -> bool:
        holder = self._router.services.get(topics.RESOURCE)
        return holder is not None and holder.name == name

    async def load_after(self, name: str) -> None:
        """Load them again, once the module `name` serves resources."""
        if not self._serves_resources(name):
            return
        gone, self._gone = self._gone, {}
        for acquirer, load in gone.items():
            if acquirer not in self._supervisor:
                try:
                    await load()
                except (ModuleNotStarted, FluxError) as error:
                    self._write_log(Level.ERR, topics.MODULE, f"module {acquirer}: {error}")
