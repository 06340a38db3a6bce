"""Damaged values that the kvs has met: the log and an event tell of each once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from flux_trio.cores.kvs.ops import Damaged, KvsOutbox
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import kvs
from flux_trio.messages import Event, Level, topics


class Damages(Part):
    """Clients may read a damaged value many times, so the texts that were logged are kept."""

    _reported: set[str]  # texts; bounded by the number of keys

    def __init__(self, outbox: KvsOutbox) -> None:
        self._outbox = outbox
        self._reported = set()

    def __len__(self) -> int:
        return len(self._reported)

    def report(self, found: Iterable[Damaged]) -> None:
        for damaged in found:
            if damaged.text not in self._reported:
                self._reported.add(damaged.text)
                self._outbox.send(Log(Level.CRIT, f"damaged: {damaged.text}"))
                payload = kvs.DAMAGE.write(kvs.Damage(damaged.key, damaged.text))
                self._outbox.send(Event(topics.KVS_DAMAGED_EVENT, payload))
