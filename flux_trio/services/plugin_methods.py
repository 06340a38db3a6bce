"""Requests about plugins, and those to them: `job-manager.jobtap`, `-list` and `-query`, and the
methods that plugins serve, `job-manager.PLUGIN.METHOD`.

Each is a task, since plugins may take their time; loading and removing wait for one another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec
import trio

from flux_trio.formats import FormatError
from flux_trio.jobtap import (
    ORDERS,
    Loader,
    Plugin,
    PluginError,
    PluginHost,
    PluginMethod,
    ServiceRequest,
)
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    check_owner,
    expect_payload,
    respond,
    respond_error,
    topics,
)

Answer = Callable[[Request], Awaitable[dict[str, Any]]]


class Change(msgspec.Struct):
    """The job-manager.jobtap request: remove by name or glob, then load by name or path.

    `order` is that in which a loaded plugin is told of the active jobs.
    """

    load: str | None = None
    remove: str | None = None
    conf: dict[str, Any] = {}
    order: str = "none"


class Listing(msgspec.Struct):
    """The job-manager.jobtap-list request; `all` is with those that are builtin."""

    all: bool = False


class Query(msgspec.Struct):
    """The job-manager.jobtap-query request."""

    name: str


class PluginMethods:
    """Takes such requests; answers through `send`."""

    def __init__(
        self,
        host: PluginHost,
        loader: Loader,
        send: Callable[[Response], None],
    ) -> None:
        self._host = host
        self._loader = loader
        self._send = send
        self._changing = trio.Lock()
        self._own: Final[dict[str, Answer]] = {
            topics.JOB_JOBTAP: self._change,
            topics.JOB_JOBTAP_LIST: self._list,
            topics.JOB_JOBTAP_QUERY: self._query,
        }

    def take(self, request: Request) -> bool:
        """Whether `request` is one of these: then it will be answered."""
        answer = self._own.get(request.topic)
        if answer is not None:
            self._begin(request, answer, owner_only=True)
            return True
        method = self._host.method(request.topic)
        if method is None:
            return False
        self._begin(request, partial(self._serve, method), owner_only=method.owner_only)
        return True

    def _begin(self, request: Request, answer: Answer, *, owner_only: bool) -> None:
        try:
            if owner_only:
                check_owner(request)
        except FluxError as error:
            self._refuse(request, error.errnum, error.text)
        else:
            self._host.nursery.start_soon(self._answer, request, answer)

    async def _answer(self, request: Request, answer: Answer) -> None:
        try:
            self._respond(respond(request, await answer(request)))
        except FluxError as error:
            self._refuse(request, error.errnum, error.text)
        except FormatError as error:
            self._refuse(request, Errno.EPROTO, f"{request.topic}: {error}")
        except PluginError as error:
            self._refuse(request, Errno.EINVAL, str(error))

    def _refuse(self, request: Request, errnum: int, text: str) -> None:
        self._respond(respond_error(request, errnum, text))

    def _respond(self, response: Response | None) -> None:
        if response is not None:
            self._send(response)

    # --- about plugins

    async def _change(self, request: Request) -> dict[str, Any]:
        change = expect_payload(request, Change)
        async with self._changing:
            found = None if change.load is None else self._find(change.load, change.order)
            removed = await self._host.remove(change.remove) if change.remove is not None else []
            try:
                loaded = {} if found is None else await self._load(*found, change.conf)
            except PluginError:
                if removed:
                    self._host.announce()
                raise
            if loaded:
                await self._host.replay(loaded["name"], change.order)
            elif removed:
                self._host.announce()
        return {"removed": removed} | loaded

    def _find(self, what: str, order: str) -> tuple[Plugin, str]:
        """What is not there, or cannot be run, removes nothing."""
        if order not in ORDERS:
            raise PluginError(f"expected an order of {', '.join(ORDERS)}, got {order}")
        return self._loader.find(what)

    async def _load(self, plugin: Plugin, path: str, conf: dict[str, Any]) -> dict[str, str]:
        await self._host.load(plugin, conf, path)
        return {"name": plugin.name, "path": path}

    async def _list(self, request: Request) -> dict[str, Any]:
        return {"plugins": self._host.names(builtins=expect_payload(request, Listing).all)}

    async def _query(self, request: Request) -> dict[str, Any]:
        return await self._host.query(expect_payload(request, Query).name)

    # --- to plugins

    async def _serve(self, method: PluginMethod, request: Request) -> dict[str, Any]:
        payload = request.payload if isinstance(request.payload, dict) else {}
        asked = ServiceRequest(method.name, payload, request.userid, request.is_owner)
        return await self._host.serve(method, asked)
