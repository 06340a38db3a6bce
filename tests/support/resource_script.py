"""A resource core with a kvs, what it is asked in tests, and what it says."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import ResourceCore, inventory_from_config
from flux_trio.formats import Idset
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import asked

INVENTORY: Final = inventory_from_config([ResourceEntry("node[0-3]", cores="0-3")])


class ResourceScript:
    """A core with a kvs that answers at once, unless `hold` is set."""

    def __init__(self, exclude: str = "", eventlog: str = "", inventory: Any = INVENTORY) -> None:
        self.eventlog = eventlog
        self.hold = False
        self.errnum = 0
        self.held: list[Response] = []
        self.core = ResourceCore(inventory, Idset.parse(exclude))
        lookup: Any = self.core.start(1.0)[0]
        assert (lookup.topic, lookup.payload) == ("kvs.lookup", {"key": "resource.eventlog"})
        found = {"value": eventlog} if eventlog else None
        errnum = 0 if eventlog else int(Errno.ENOENT)
        self.lookup = Response(lookup.topic, found, errnum, lookup.matchtag)
        self.other: list[Any] = self.core.turn(1.0, [self.lookup])
        self.other = self._settle(self.other)

    def __call__(self, *inputs: Any, now: float = 5.0) -> list[tuple[str, int, Any]]:
        """(topic, errnum, payload) of each response."""
        self.other = self._settle(self.core.turn(now, list(inputs)))
        responses = [a for a in self.other if isinstance(a, Response)]
        return [(a.topic.removeprefix("resource."), a.errnum, a.payload) for a in responses]

    def _settle(self, actions: list[Any]) -> list[Any]:
        for action in actions:
            if isinstance(action, Request):
                assert action.topic == "kvs.commit"
                commit: Any = action.payload
                ((_, key, text),) = commit["ops"]
                assert key == "resource.eventlog"
                self.eventlog += text if self.errnum == 0 else ""
                payload: Any = {} if self.errnum == 0 else "kvs store failed"
                self.held.append(Response(action.topic, payload, self.errnum, action.matchtag))
        if self.held and not self.hold:
            stored, self.held = self.held, []
            actions = actions + self._settle(self.core.turn(6.0, stored))
        return actions

    def release_held(self) -> list[tuple[str, int, Any]]:
        self.hold = False
        stored, self.held = self.held, []
        return self(*stored)


def acquire(group: str = "default", by: str = "sched", tag: int = 1) -> Request:
    return asked("resource.acquire", {"group": group}, by=by, tag=tag, streaming=True)


def release(targets: str, group: str = "default", by: str = "sched") -> Request:
    return asked("resource.release", {"group": group, "targets": targets}, by=by, tag=7)


def drain(targets: str, reason: str | None = "bad dimm") -> Request:
    reasons = {} if reason is None else {"reason": reason}
    return asked("resource.drain", {"targets": targets, **reasons})


def undrain(targets: str) -> Request:
    return asked("resource.undrain", {"targets": targets})


def down(targets: str, reason: str | None = None) -> Request:
    reasons = {} if reason is None else {"reason": reason}
    return asked(topics.RESOURCE_DOWN, {"targets": targets, **reasons}, tag=3)


def up(targets: str) -> Request:
    return asked(topics.RESOURCE_UP, {"targets": targets}, tag=3)


def exclude(targets: str) -> Request:
    return asked(topics.RESOURCE_EXCLUDE, {"targets": targets})


def told(kind: str, targets: str) -> tuple[str, int, Any]:
    return ("acquire", 0, {"type": kind, "targets": targets})


def grown(online: str, offline: str = "") -> tuple[str, int, Any]:
    targets = Idset.parse(online) | Idset.parse(offline)
    resources = INVENTORY.restrict(targets).to_json()
    return (
        "acquire",
        0,
        {"type": "grow", "resources": resources, "online": online, "offline": offline},
    )


DRAINED: Final = ("drain", 0, None)
DOWN: Final = ("targets-down", 0, None)
UP: Final = ("targets-up", 0, None)
UNDRAINED: Final = ("undrain", 0, None)
EXCLUDED: Final = ("exclude", 0, None)
RELEASED: Final = ("release", 0, None)
