"""Requests that plugins help to answer: `job-manager.jobtap`, `-list` and `-query`, the methods
that plugins serve, `job-manager.PLUGIN.METHOD`, and `job-manager.explain`.

Each request is a task, since a plugin may take long; loads and removals wait for each other. A new
configuration is refused if one of its plugins cannot be found: no job manager could start with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio

from flux_trio.cores.methods import configuration_in
from flux_trio.editions import flux, plugin_requests
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
    Payload,
    Request,
    Response,
    check_owner,
    respond,
    respond_error,
    topics,
    unanswered,
)

Answer = Callable[[Request], Awaitable[Payload]]

_GONE: Final = topics.disconnect_of(topics.JOB_MANAGER)
_CONFIGURE: Final = topics.config_reload_of(topics.JOB_MANAGER)


@contextmanager
def named_directive(index: int) -> Iterator[None]:
    """Let a PluginError in this block name its directive of the configuration."""
    try:
        yield
    except PluginError as error:
        raise PluginError(f"job-manager.plugins[{index}]: {error}") from None


class PluginMethods:
    """Takes these requests; answers through `send`, which gets None for no response."""

    def __init__(
        self,
        host: PluginHost,
        loader: Loader,
        send: Callable[[Response | None], None],
        explain: Answer,
    ) -> None:
        self._host = host
        self._loader = loader
        self._send = send
        self._explain = explain
        self._changing = trio.Lock()
        self._open: dict[int, Request] = {}  # requests that are not answered, by their number
        self._last = 0
        self._own: Final[dict[str, Answer]] = {
            topics.JOB_JOBTAP: self._change,
            topics.JOB_JOBTAP_LIST: self._list,
            topics.JOB_JOBTAP_QUERY: self._query,
        }

    def serve(self, request: Request) -> bool:
        """Return whether `request` is one of these requests; then it is answered here.

        Requests of a peer that is gone get no response (6.disconnect.2).
        """
        if request.topic == _GONE:
            for number, asked in self._open.items():
                self._open[number] = unanswered(asked, request.sender)
            return False
        if request.topic == _CONFIGURE:
            return self._refuses(request)
        answer = self._own.get(request.topic)
        if answer is not None:
            self._begin(request, answer, owner_only=True)
            return True
        if request.topic == topics.JOB_EXPLAIN:
            self._begin(request, self._explain, owner_only=False)
            return True
        method = self._host.method(request.topic)
        if method is None:
            return False
        self._begin(request, partial(self._serve, method), owner_only=method.owner_only)
        return True

    def _refuses(self, request: Request) -> bool:
        """Refuse a configuration if one of its plugins cannot be found; return whether it was
        refused.

        The core takes all other configurations, also invalid ones.
        """
        try:
            check_owner(request)
            for index, directive in enumerate(configuration_in(request).job_manager.plugins):
                with named_directive(index):
                    if directive.load is not None:
                        self._host.find_code(self._loader, directive.load)
        except FluxError:
            return False  # the core says what is wrong
        except PluginError as error:
            self._send(respond(request, flux.REFUSED.write(flux.Refused(str(error)))))
            return True
        return False

    def _begin(self, request: Request, answer: Answer, *, owner_only: bool) -> None:
        try:
            if owner_only:
                check_owner(request)
        except FluxError as error:
            self._refuse(request, error.errnum, error.text)
        else:
            self._last += 1
            self._open[self._last] = request
            self._host.nursery.start_soon(self._answer, self._last, request, answer)

    async def _answer(self, number: int, request: Request, answer: Answer) -> None:
        try:
            payload = await answer(request)
            self._send(respond(self._open[number], payload))
        except FluxError as error:
            self._refuse(self._open[number], error.errnum, error.text)
        except FormatError as error:
            self._refuse(self._open[number], Errno.EPROTO, f"{request.topic}: {error}")
        except PluginError as error:
            self._refuse(self._open[number], Errno.EINVAL, str(error))
        finally:
            del self._open[number]

    def _refuse(self, request: Request, errnum: int, text: str) -> None:
        self._send(respond_error(request, errnum, text))

    # --- about plugins

    async def _change(self, request: Request) -> Payload:
        change = plugin_requests.CHANGE.read(request)
        if change.query_only:
            names = self._host.names(builtins=True)
            return plugin_requests.NAMES.write(plugin_requests.Names(names))
        async with self._changing:
            if change.load is None:
                if change.remove is None:
                    return plugin_requests.CHANGED.write(plugin_requests.Changed([]))
                removed = await self._host.remove(change.remove)
                if removed.plugins:
                    self._host.announce()
                changed = plugin_requests.Changed(
                    removed.plugins, abandoned=removed.abandoned or None
                )
                return plugin_requests.CHANGED.write(changed)
            plugin, path = self._find(change.load, change.order)
            removed = await self._host.load(plugin, change.conf, path, remove=change.remove)
            await self._host.replay(plugin.name, change.order)
            changed = plugin_requests.Changed(
                removed.plugins, plugin.name, path, removed.abandoned or None
            )
        return plugin_requests.CHANGED.write(changed)

    def _find(self, what: str, order: str) -> tuple[Plugin, str]:
        if order not in ORDERS:
            raise PluginError(f"expected an order of {', '.join(ORDERS)}, got {order}")
        return self._host.find_code(self._loader, what)

    async def _list(self, request: Request) -> Payload:
        names = self._host.names(builtins=plugin_requests.LISTING.read(request).all)
        return plugin_requests.LISTED.write(plugin_requests.Listed(names))

    async def _query(self, request: Request) -> Payload:
        return await self._host.query(plugin_requests.QUERY.read(request).name)

    # --- to plugins

    async def _serve(self, method: PluginMethod, request: Request) -> Payload:
        arguments = plugin_requests.arguments_in(request)
        asked = ServiceRequest(method.name, arguments, request.userid, request.is_owner)
        return await self._host.serve(method, asked)
