"""What libflux answers in every module of flux-core; here the native door answers for a module.

`NAME.ping` echoes the keys of the request. `NAME.rusage` tells what the process has used that the
module is a part of. `NAME.debug` keeps the flags of a module, which change nothing here.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec

from flux_trio.broker.router import Peer, Router
from flux_trio.broker.services import OURS
from flux_trio.messages import (
    NODEID_ANY,
    ROLE_OWNER,
    Errno,
    FluxError,
    Payload,
    Request,
    expect_payload,
    service_of,
)

WHO: Final = {
    "self": resource.RUSAGE_SELF,
    "children": resource.RUSAGE_CHILDREN,
    "thread": resource.RUSAGE_THREAD,
}
_TIMES: Final = ("utime", "stime")


class Rusage(msgspec.Struct):
    """MODULE.rusage: getrusage(2) of the process, of its children or of this thread."""

    who: Literal["self", "children", "thread"] = "self"  # whose usage is told


class Debug(msgspec.Struct):
    """MODULE.debug; the response has the flags that the module has then."""

    op: Literal["setbit", "clrbit", "set", "clr"]  # what is done to the flags that are kept
    flags: int = 0  # a mask; for `clr` it is ignored


class Found(NamedTuple):
    """Who is asked, and what answers in its place."""

    holder: Peer
    method: Callable[[Request], Payload]


class ModuleMethods:
    """Answers in place of the modules in this process, for all clients."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._flags: dict[str, int] = {}  # by service; only of services that there are

    def find(self, request: Request, sender: Peer) -> Found | None:
        """Return what answers `request` of `sender`; None if its service does so itself."""
        service, _, method = request.topic.partition(".")
        holder = self._holder(service)
        if holder is None or holder.drop is not None:  # of a client, which answers itself
            return None
        match method:
            case "ping":
                return Found(holder, partial(self._ping, sender))
            case "rusage":
                return Found(holder, self._rusage)
            case "debug":
                return Found(holder, partial(self._debug, sender))
        return None

    def _holder(self, service: str) -> Peer | None:
        """Return who serves `service`, or does the work of flux-core's module of that name."""
        held = self._router.services
        return held.get(service) or held.get(OURS.get(service, ""))

    def _ping(self, sender: Peer, request: Request) -> Payload:
        if not isinstance(request.payload, dict):
            raise FluxError(Errno.EPROTO, "")
        holder = self._holder(service_of(request.topic))
        assert holder is not None  # `find` has found it
        return {
            **request.payload,
            "route": "!".join([*request.routes, sender.name, holder.name]),
            "userid": sender.userid,
            "rolemask": sender.rolemask,
            "rank": 0 if request.nodeid == NODEID_ANY else request.nodeid,
        }

    def _rusage(self, request: Request) -> Payload:
        used = resource.getrusage(WHO[expect_payload(request, Rusage).who])
        names = (name.removeprefix("ru_") for name in dir(used) if name.startswith("ru_"))
        return {name: _number(name, getattr(used, f"ru_{name}")) for name in names}

    def _debug(self, sender: Peer, request: Request) -> Payload:
        if not sender.rolemask & ROLE_OWNER:
            raise FluxError(Errno.EPERM, "Request requires owner credentials")
        wanted = expect_payload(request, Debug)
        service = service_of(request.topic)
        service = OURS.get(service, service)
        flags = self._flags.get(service, 0)
        match wanted.op:
            case "setbit":
                flags |= wanted.flags
            case "clrbit":
                flags &= ~wanted.flags
            case "set":
                flags = wanted.flags
            case "clr":
                flags = 0
        self._flags[service] = flags
        return {"flags": flags}


def _number(name: str, value: float) -> Any:
    return value if name in _TIMES else int(value)
