"""A property across kills: a tool of the operator loses nothing of what is stored."""

from __future__ import annotations

from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.formats import EVENTLOG, FormatError, parse_eventlog
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.protocols import InvalidTransition, JobState, replay
from flux_trio.store.stores import Store
from flux_trio.trace import Kind, Record

_RECOVER = "recover"


@watching("recovered")
class Recovered(Watcher):
    """An instance that starts after a kill has every value that was stored when it was killed.

    After a restore all queues are stopped, and a job that had resources has a fatal exception; the
    rest is the same.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._before: dict[str, object] | None = None  # values, when the instance was killed
        self._tool = ""

    def observe(self, record: Record) -> None:
        """Remember what is stored at the fault, and compare it when the next life begins."""
        if record.kind == Kind.FAULT and record.data and record.data["type"] == _RECOVER:
            if self.world.is_up:
                self._before = _values(self.world.disk.store)
                self._tool = record.data["tool"]
        elif record.kind == Kind.CONFIG and self._before is not None:
            before, self._before = self._before, None
            self._compare(before, _values(self.world.disk.store))

    def _compare(self, before: dict[str, object], after: dict[str, object]) -> None:
        if self._tool == "restore" and self.world.disk.is_file:
            before = {key: _ended(key, value, after.get(key)) for key, value in before.items()}
            before.pop(CHECKPOINT_KEY, None)
            if "all_stopped" not in str(after.pop(CHECKPOINT_KEY, "")):
                self.found("after a restore not all queues are stopped")
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                said = f"{before.get(key)!r}, after it {after.get(key)!r}"
                self.found(f"before {self._tool} {key} was {said}")


def _values(store: Store) -> dict[str, object]:
    keys = store.dir("")
    return dict(zip(keys, store.lookup(keys), strict=True))


def _ended(key: str, value: object, after: object) -> object:
    """Return what a restore makes of a value: the job of an eventlog in RUN gets an exception."""
    if not (key.endswith(f".{EVENTLOG}") and isinstance(value, str) and isinstance(after, str)):
        return value
    try:
        if replay(0, parse_eventlog(value)).state is not JobState.RUN:
            return value
        added = parse_eventlog(after.removeprefix(value))
    except (FormatError, InvalidTransition):
        return value
    is_ended = len(added) == 1 and (added[0].context or {}).get("severity") == 0
    return after if is_ended else f"{value}, and a fatal exception"
