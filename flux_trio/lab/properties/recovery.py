"""A property across kills: a tool of the operator loses nothing of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.formats import EVENTLOG, FormatError, parse_eventlog
from flux_trio.lab.properties.property import Watcher, watching
from flux_trio.lab.world.backups import Values
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.protocols import InvalidTransition, JobState, replay
from flux_trio.trace import Kind, Record

_RECOVER = "recover"
_FAULT: Final[str] = Kind.FAULT.value
_CONFIG: Final[str] = Kind.CONFIG.value


@watching("recovered")
class Recovered(Watcher):
    """An instance that starts after a kill has every value that was stored when it was killed.

    After a restore all queues are stopped, and a job that had resources has a fatal exception; the
    rest is the same.
    """

    def __init__(self, world: CoresWorld) -> None:
        super().__init__(world)
        self._before: Values | None = None  # when the instance was killed
        self._tool = ""

    def observe(self, record: Record) -> None:
        """Remember what is stored at the fault, and compare it when the next life begins."""
        if record.kind == _FAULT:
            if self.world.is_up and (tool := tool_after(record)):
                self._before, self._tool = self.world.disk.values(), tool
        elif record.kind == _CONFIG and self._before is not None:
            before, self._before = self._before, None
            is_restored = self._tool == "restore" and self.world.disk.is_file
            compare = differences_restored if is_restored else differences
            for each in compare(before, self.world.disk.values()):
                self.found(f"before {self._tool} {each}")


def tool_after(record: Record) -> str:
    """Return the tool of the fault `Recover`, which comes next; "" if another fault does."""
    data = record.data or {}
    return data["tool"] if data.get("type") == _RECOVER else ""


def differences(before: Values, after: Values) -> Iterator[str]:
    """Yield how each key differs that has another value."""
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"{key} was {before.get(key)!r}, after it {after.get(key)!r}"


def differences_restored(before: Values, after: Values) -> Iterator[str]:
    """Yield how a restored store differs from what a restore makes of the values `before`."""
    expected = {key: _ended(key, value, after.get(key)) for key, value in before.items()}
    expected.pop(CHECKPOINT_KEY, None)
    after = dict(after)
    if "all_stopped" not in str(after.pop(CHECKPOINT_KEY, "")):
        yield "not all queues were started, after it not all are stopped"
    yield from differences(expected, after)


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
