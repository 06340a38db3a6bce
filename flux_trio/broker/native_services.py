"""What Flux's own programs ask of a broker itself: attributes, its state, groups, published events.

An instance has these services where it has a native door. Left out, since one broker is the whole
instance: the overlay network (`overlay.*`), remote execution (`rexec.*`), the content store
(`content.*`) and cron. A request to one of these is answered with ENOSYS and a text that says so.
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import trio

from flux_trio.broker.handle import Handle
from flux_trio.broker.log import LOG_RING_SIZE
from flux_trio.broker.router import Router
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Level,
    Payload,
    Request,
    check_owner,
    expect_payload,
    respond,
    respond_error,
    respond_stream,
    service_of,
    unknown_method,
)
from flux_trio.messages.types import PRIVATE

FLUX_VERSION: Final = "0.88.0"
"""The version of flux-core whose clients are spoken to: `flux proxy` wants it to be its own."""
HEARTBEAT: Final = "heartbeat.pulse"
HEARTBEAT_S: Final = 2.0  # as in flux-core
STATE_RUN: Final = 5  # flux-core, state_machine.h: the initial program runs
STATE_EXIT: Final = 11

LEFT_OUT: Final = {
    "overlay": "one broker is the whole instance: there is no overlay network",
    "rexec": "no processes are run outside of jobs: submit a job",
    "content": "the kvs is a database: there is no content store",
    "cron": "there is no cron",
}
"""Services of a broker of flux-core that are not here, and why."""

_LEVEL: Final = "log-stderr-level"
_LEVELS: Final = range(-1, Level.DEBUG + 1)  # -1: nothing is written
_SETTABLE: Final = (_LEVEL, "test.", "conf.shell_")
"""The beginning of the names of attributes that a client may set."""


class Named(msgspec.Struct):
    """attr.get and attr.rm, and groups.get: a name."""

    name: str  # of the attribute or the group


class AttributeSet(msgspec.Struct):
    """attr.set: the new value; `force` is for attributes that a client may otherwise not set."""

    name: str  # of the attribute
    value: str  # the new one, as text
    force: bool = False  # sets also what clients do not set otherwise, if it may change at all


class Publish(msgspec.Struct):
    """event.publish: a payload is the base64 of its bytes, with the NUL of a JSON text."""

    topic: str  # of the event
    flags: int  # 32: only the owner and the sender get the event; otherwise 0
    # base64 of the event's JSON with its NUL; none: the event has no payload
    payload: str | None = None


class Mapped(msgspec.Struct):
    """content.mmap-remove, of `flux archive remove`: files that the content store looks up."""

    tag: str  # of the files


class Monitor(msgspec.Struct):
    """state-machine.monitor: the stream ends when the state is `final`."""

    final: int = STATE_EXIT  # the stream ends with this state


class NativeServices:
    """`attr`, `state-machine`, `groups` and `event`; `attributes` are those that never change.

    `ranks` is how many ranks the instance has.
    """

    def __init__(self, router: Router, attributes: Mapping[str, str], ranks: int) -> None:
        self._router = router
        self._immutable = dict(attributes)
        self._set: dict[str, str] = {}  # by clients, or values that may change
        self._set[_LEVEL] = "3"
        self._ranks = ranks
        self._began = trio.current_time()
        self._methods: Final[dict[str, Callable[[Request], Payload]]] = {
            "attr.get": self._get,
            "attr.list": self._list,
            "attr.set": self._set_one,
            "attr.rm": self._remove,
            "state-machine.get": self._state,
            "state-machine.wait": self._wait,
            "groups.get": self._group,
            "event.publish": self._publish,
            "content.mmap-remove": self._unmap,
        }

    async def run(
        self, handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        for service in {service_of(topic) for topic in self._methods} | LEFT_OUT.keys():
            handle.register(service)
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, handle)
            while True:
                for request in await handle.receive():
                    if isinstance(request, Request):
                        self._serve(handle, request)

    async def _beat(self, handle: Handle) -> None:
        """Publish the heartbeat by which `flux top` looks anew, while somebody listens."""
        while True:
            await trio.sleep(HEARTBEAT_S)
            if any(peer.subscriptions.match(HEARTBEAT) for peer in self._router.peers.values()):
                handle.send(Event(HEARTBEAT, {}))

    def _serve(self, handle: Handle, request: Request) -> None:
        service = service_of(request.topic)
        try:
            method = self._methods.get(request.topic)
            if service in LEFT_OUT and method is None:
                raise FluxError(Errno.ENOSYS, f"{request.topic}: {LEFT_OUT[service]}")
            if request.topic == "state-machine.monitor":
                self._monitor(handle, request)
            else:
                if method is None:
                    raise unknown_method(service, request.topic.partition(".")[2])
                handle.answer(respond(request, method(request)))
        except FluxError as error:
            handle.answer(respond_error(request, error.errnum, error.text))

    def _get(self, request: Request) -> Payload:
        name = expect_payload(request, Named).name
        if name in self._immutable:
            return {"value": self._immutable[name], "flags": 1}
        if name in self._set:
            return {"value": self._set[name], "flags": 0}
        raise FluxError(Errno.ENOENT, "")

    def _list(self, _request: Request) -> Payload:
        return {"names": sorted({**self._immutable, **self._set})}

    def _set_one(self, request: Request) -> Payload:
        check_owner(request)
        wanted = expect_payload(request, AttributeSet)
        if wanted.name in self._immutable:
            raise FluxError(Errno.EINVAL, "attribute may not be updated")
        if not wanted.name.startswith(_SETTABLE) and not wanted.force:
            raise FluxError(Errno.ENOENT, "unknown attribute")
        if wanted.name == _LEVEL and wanted.value not in map(str, _LEVELS):
            text = f"{_LEVEL}: expected {_LEVELS[0]} to {_LEVELS[-1]}, got {wanted.value}"
            raise FluxError(Errno.EINVAL, text)
        self._set[wanted.name] = wanted.value
        return None

    def _remove(self, request: Request) -> Payload:
        check_owner(request)
        name = expect_payload(request, Named).name
        if name in self._immutable:
            raise FluxError(Errno.EPERM, "")
        if self._set.pop(name, None) is None:
            raise FluxError(Errno.ENOENT, "")
        return None

    def _state(self, _request: Request) -> Payload:
        return {"state": "run", "duration": trio.current_time() - self._began}

    def _wait(self, _request: Request) -> Payload:
        return None  # it is asked for the state `run`, in which the instance is

    def _monitor(self, handle: Handle, request: Request) -> None:
        """Tell the state. A stream stays open: the connection ends with the instance."""
        final = expect_payload(request, Monitor).final if request.payload else STATE_EXIT
        if final < STATE_RUN:
            raise FluxError(Errno.ENODATA, "")
        answer = respond_stream if request.is_streaming else respond
        handle.answer(answer(request, {"state": STATE_RUN}))
        if request.is_streaming and final == STATE_RUN:
            raise FluxError(Errno.ENODATA, "")

    def _group(self, request: Request) -> Payload:
        name = expect_payload(request, Named).name
        if name not in ("broker.online", "broker.torpid"):
            raise FluxError(Errno.ENOENT, f"no group {name}")
        last = self._ranks - 1
        online = f"0-{last}" if last > 0 else "0"
        return {"members": online if name == "broker.online" else ""}

    def _unmap(self, request: Request) -> Payload:
        """Forget mapped files: there are none, which is no error in flux-core either."""
        check_owner(request)
        expect_payload(request, Mapped)
        return None

    def _publish(self, request: Request) -> Payload:
        wanted = expect_payload(request, Publish)
        if wanted.flags & ~PRIVATE:
            raise FluxError(Errno.EPROTO, f"flags: expected 0 or {PRIVATE}, got {wanted.flags}")
        payload = None if wanted.payload is None else _decoded(wanted.payload)
        publisher = self._router.peers.get(request.sender)
        if publisher is not None:  # the sender's credentials are those of the event
            self._router.route(publisher, Event(wanted.topic, payload, flags=wanted.flags))
        return {"seq": self._router.sequence}


def _decoded(payload: str) -> dict[str, Any]:
    try:
        data = base64.b64decode(payload, validate=True).removesuffix(b"\0")
        decoded = msgspec.json.decode(data)
    except (binascii.Error, msgspec.DecodeError, UnicodeError) as error:
        raise FluxError(Errno.EPROTO, f"payload: expected base64 of JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise FluxError(Errno.EPROTO, f"payload: expected an object, got {type(decoded).__name__}")
    return decoded


class Around(msgspec.Struct, frozen=True):
    """The jobs that an instance is in: their ids, the outermost first, and how many they are.

    `parent` has what is to be told of the instance around it: its URI, and the job in it.
    """

    jobid_path: str = "/"
    level: int = 0
    parent: dict[str, str] = {}


NOWHERE: Final = Around()


def attributes_of(
    *,
    owner: int,
    hostlist: str,
    ranks: int,
    uri: str,
    statedir: str,
    started: float,
    around: Around = NOWHERE,
) -> dict[str, str]:
    """Return the attributes of a broker of flux-core that never change, as its programs read them.

    `uri` is that of the native door; `started` is in seconds since the Unix epoch.
    """
    return {
        "rank": "0",
        "size": str(ranks),
        "version": FLUX_VERSION,
        "security.owner": str(owner),
        "hostlist": hostlist,
        "hostname": socket.gethostname(),
        "local-uri": uri,
        "instance-level": str(around.level),
        "jobid-path": around.jobid_path,
        **around.parent,
        "broker.starttime": repr(started),
        "log-ring-size": str(LOG_RING_SIZE),
        "broker.pid": str(os.getpid()),
        "broker.mapping": f"[[0,{ranks},1,1]]",
        "statedir": statedir,
        "rundir": statedir,
        "content.hash": "sha1",
        "tbon.interface-hint": "default-route",
    }
