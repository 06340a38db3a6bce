"""The open reads for requests that have one response, by sender. Pure."""

from __future__ import annotations

from flux_trio.cores.job_list.exchange import Exchange
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import Matchtag
from flux_trio.messages import Request


class Asked(Part):
    """Forgets the reads of a peer that is gone, without searching others' (6.disconnect.2)."""

    _open: dict[str, set[Matchtag]]

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._open = {}  # by sender; bounded by the requests that senders have open

    def began(self, request: Request, matchtag: int) -> None:
        """Note that a read with this matchtag is under way for `request`."""
        self._open.setdefault(request.sender, set()).add(matchtag)

    def ended(self, request: Request, matchtag: int) -> None:
        """Note that the read is answered."""
        of_sender = self._open[request.sender]
        of_sender.remove(matchtag)
        if not of_sender:
            del self._open[request.sender]

    def forget(self, sender: str) -> None:
        """Ignore the answers to the reads of a peer that is gone."""
        for matchtag in self._open.pop(sender, ()):
            self._exchange.calls.close(matchtag)
