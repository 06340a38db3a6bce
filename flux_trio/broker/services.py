"""The broker's own services: `broker.*` for the instance, `module.*` for modules, `log.*`.

broker.stats-get returns the same counts as that of every service, for all three, plus `peers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, TypeVar

import msgspec
import trio

from flux_trio.broker.acquirers import Acquirers
from flux_trio.broker.administration import WriteLog
from flux_trio.broker.dmesg import LogService
from flux_trio.broker.handle import Handle
from flux_trio.broker.log import LogBook
from flux_trio.broker.module_file import ModuleFiles
from flux_trio.broker.router import SUBSCRIPTIONS_MAX, Peer, Router, Subscriptions
from flux_trio.broker.supervisor import ModuleInfo, ModuleNotStarted, ModuleStatus, Supervisor
from flux_trio.broker.tokens import TOKEN_REVOKED, Tokens
from flux_trio.broker.tracing import TraceStreams
from flux_trio.formats import FormatError
from flux_trio.messages import (
    USERID_UNKNOWN,
    Errno,
    FluxError,
    Message,
    Payload,
    Request,
    check_owner,
    expect_payload,
    respond,
    respond_error,
    service_of,
    topics,
    unknown_method,
)

T = TypeVar("T")

# These methods take long, because a module takes time to start and stop: each runs in a task.
SLOW: Final = (topics.MODULE_LOAD, topics.MODULE_RELOAD, topics.MODULE_REMOVE, topics.MODULE_KILL)


class Topic(msgspec.Struct):
    """broker.subscribe and broker.unsubscribe: a glob."""

    topic: str


class Service(msgspec.Struct):
    """broker.register and broker.unregister: a service name, the part of a topic before its dot."""

    service: Annotated[str, msgspec.Meta(pattern=r"\A[\w-]+\Z")]


Userid = Annotated[int, msgspec.Meta(ge=0, lt=USERID_UNKNOWN)]


class TokenFor(msgspec.Struct):
    """broker.token: the user who gets a new token."""

    userid: Userid
    name: str


class TokensOf(msgspec.Struct):
    """broker.token-revoke: the user whose tokens are revoked."""

    userid: Userid


class ModuleName(msgspec.Struct):
    """module.remove and kill."""

    name: str  # of the module
    cancel: bool = False  # it is not asked to end, but ended at once


class ModuleStart(msgspec.Struct):
    """module.load and reload: `exec` asks for a process of its own.

    Flux's own programs send `path`: a name of flux-core's, or with a slash a file, which may have
    another `name` and `loader`. `args` are those of the module (`config.module_arguments`).
    """

    name: str = ""  # of the module
    exec: bool = False  # it runs in a process of its own
    path: str = ""  # a name of flux-core, or with a slash a file of its modules
    args: list[str] = []  # of the module
    loader: str = ""  # a program that loads the file

    @property
    def is_file(self) -> bool:
        """Return whether a module of flux-core is wanted."""
        return "/" in self.path

    @property
    def module(self) -> str:
        """Return the name of the module here. Raises FluxError."""
        named = self.path or self.name
        if not named:
            raise FluxError(Errno.EPROTO, f"{topics.MODULE}: payload: expected name or path")
        if self.loader:
            text = f"{named}: expected a module's file, or its name without loader"
            raise FluxError(Errno.EINVAL, text)
        return OURS.get(named, named)


BUILTIN: Final = "builtin"
"""The path of a module of flux-core's broker that is no file."""
FLUX_STATUSES: Final = {ModuleStatus.STARTING: 0, ModuleStatus.RUNNING: 1, ModuleStatus.STOPPING: 2}
"""flux-core's numbers (module.h)."""

OURS: Final = {"sched-simple": "sched", "job-info": "job-list"}
"""Names of flux-core's modules, and what does their work here."""


class BackupTo(msgspec.Struct):
    """broker.backup: a directory on the machine of the instance; it is empty or not there."""

    directory: str


class LogLine(msgspec.Struct):
    """broker.log: a log line of a module in another process."""

    level: Annotated[int, msgspec.Meta(ge=0, le=7)]
    text: str


class TraceNote(msgspec.Struct):
    """broker.note: a record for the trace."""

    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class BrokerServices:
    """The broker's services and what they use; `info` is broker.info without the requester."""

    router: Router
    supervisor: Supervisor
    tokens: Tokens
    info: dict[str, Any]
    shutdown: trio.Event
    write_log: WriteLog
    log: LogBook = field(default_factory=LogBook)
    back_up: Callable[[str], Awaitable[Payload]] | None = None
    module_files: ModuleFiles | None = None
    has_native_door: bool = False

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Number of received requests, by topic."""
        return {}

    @cached_property
    def _acquirers(self) -> Acquirers:
        return Acquirers(self.router, self.supervisor, self.write_log)

    @cached_property
    def _backups(self) -> list[tuple[str, trio.CancelScope]]:
        """The backups that are being made: the client of each, and the scope that stops it."""
        return []

    @cached_property
    def _traces(self) -> TraceStreams:
        return TraceStreams(self.router.trace, self.supervisor.__contains__)

    async def run(
        self, handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. Requests are served in order, except the slow methods."""
        handle.register(topics.BROKER)
        handle.register(topics.MODULE)
        handle.register(topics.LOG)
        logs = LogService(self.log, handle, as_lines=self.has_native_door)
        others = (topics.MODULE_TRACE, topics.BROKER_NOTE)
        self._counts.update(dict.fromkeys([*self._methods, *logs.methods, *others], 0))
        self.supervisor.crashing.append(self._acquirers.note_crash)
        self._handle_notes_when_sent(self.router.peers[handle.name])
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    for request in await handle.receive():
                        if isinstance(request, Request):
                            await self._answer(nursery, handle, logs, request)
        finally:
            logs.close()

    async def _answer(
        self, nursery: trio.Nursery, handle: Handle, logs: LogService, request: Request
    ) -> None:
        if request.topic in self._counts:
            self._counts[request.topic] += 1
        if service_of(request.topic) == topics.LOG:
            logs.serve(request)
        elif request.topic == topics.MODULE_TRACE:
            self._trace(nursery, handle, request)
        elif request.topic == topics.BROKER_BACKUP:
            nursery.start_soon(self._serve_until_gone, handle, request)
        elif request.topic in SLOW:
            nursery.start_soon(self._serve, handle, request)
        else:
            await self._serve(handle, request)

    async def _serve(self, handle: Handle, request: Request) -> None:
        try:
            handle.answer(respond(request, await self._method(request)(request)))
        except FluxError as error:
            handle.answer(respond_error(request, error.errnum, error.text))

    async def _serve_until_gone(self, handle: Handle, request: Request) -> None:
        """Serve a request; stop when its sender disconnects, which then gets no answer."""
        with trio.CancelScope() as scope:
            served = (request.sender, scope)
            self._backups.append(served)
            try:
                await self._serve(handle, request)
            finally:
                self._backups.remove(served)

    def _handle_notes_when_sent(self, broker: Peer) -> None:
        """Take each broker.note when it is sent; other messages wait in the broker's inbox.

        A module in a process of its own writes a note between two of its messages, and the record
        must stand there: the next messages may change what the note tells.
        """
        put_in_inbox = broker.deliver

        def deliver(ref: int, message: Message) -> None:
            if isinstance(message, Request) and message.topic == topics.BROKER_NOTE:
                self.router.trace.received(broker.name, "", message, ref)
                self._note(broker, message)
            else:
                put_in_inbox(ref, message)

        broker.deliver = deliver

    def _note(self, broker: Peer, request: Request) -> None:
        self._counts[topics.BROKER_NOTE] += 1
        try:
            check_owner(request)
            note = expect_payload(request, TraceNote)
            self.router.trace.note(note.kind, request.sender, note.data)
            answer = respond(request)
        except FluxError as error:
            answer = respond_error(request, error.errnum, error.text)
        if answer is not None:
            self.router.route(broker, answer)

    def _trace(self, nursery: trio.Nursery, handle: Handle, request: Request) -> None:
        """Open a stream at once, so that its cancel can find it; a task feeds it."""
        try:
            check_owner(request)
            feed = self._traces.open(handle, request)
        except FluxError as error:
            handle.answer(respond_error(request, error.errnum, error.text))
        else:
            nursery.start_soon(feed)

    @cached_property
    def _methods(self) -> dict[str, Callable[[Request], Awaitable[Payload]]]:
        return {
            topics.BROKER_INFO: self._info,
            topics.BROKER_SUBSCRIBE: self._subscribe,
            topics.BROKER_UNSUBSCRIBE: self._unsubscribe,
            topics.BROKER_REGISTER: self._owner_only(self._register),
            topics.BROKER_UNREGISTER: self._owner_only(self._unregister),
            topics.BROKER_TOKEN: self._owner_only(self._token),
            topics.BROKER_REVOKE: self._owner_only(self._revoke),
            topics.BROKER_SHUTDOWN: self._owner_only(self._shutdown),
            topics.BROKER_BACKUP: self._owner_only(self._backup),
            topics.MODULE_LIST: self._list,
            topics.MODULE_LOAD: self._owner_only(self._load),
            topics.MODULE_RELOAD: self._owner_only(self._reload),
            topics.MODULE_REMOVE: self._owner_only(self._remove),
            topics.MODULE_KILL: self._owner_only(self._kill),
            topics.MODULE_TRACE_CANCEL: self._end_trace,
            topics.BROKER_LOG: self._owner_only(self._log),
            topics.disconnect_of(topics.BROKER): self._stop_backups,
            topics.disconnect_of(topics.MODULE): self._forget,
            topics.stats_of(topics.BROKER): self._stats,
        }

    def _method(self, request: Request) -> Callable[[Request], Awaitable[Payload]]:
        method = self._methods.get(request.topic)
        if method is None:
            service = service_of(request.topic)
            name = request.topic.removeprefix(f"{service}.")
            raise unknown_method(service, name)
        return method

    def _owner_only(
        self, method: Callable[[Request], Awaitable[Payload]]
    ) -> Callable[[Request], Awaitable[Payload]]:
        async def checked(request: Request) -> Payload:
            check_owner(request)
            return await method(request)

        return checked

    async def _stats(self, _request: Request) -> Payload:
        return {"requests": dict(self._counts), "peers": len(self.router.peers)}

    async def _info(self, request: Request) -> Payload:
        return {**self.info, "requester": request.userid}

    async def _register(self, request: Request) -> Payload:
        """Give the sender a service name; it gets the requests until it unregisters or leaves."""
        self.router.register(self._sender(request), expect_payload(request, Service).service)
        return None

    async def _unregister(self, request: Request) -> Payload:
        self.router.unregister(self._sender(request), expect_payload(request, Service).service)
        return None

    def _sender(self, request: Request) -> Peer:
        peer = self.router.peers.get(request.sender)
        if peer is None:
            raise FluxError(Errno.ENOENT, f"{request.sender} is gone")  # it does not get this
        return peer

    async def _subscribe(self, request: Request) -> Payload:
        pattern = expect_payload(request, Topic).topic
        if self.router.subscriptions_of(request.userid) >= SUBSCRIPTIONS_MAX:
            text = f"a user may have {SUBSCRIPTIONS_MAX} subscriptions"
            raise FluxError(Errno.ENOSPC, text)
        try:
            self._subscriptions(request).add(pattern)
        except FormatError as error:
            raise FluxError(Errno.EPROTO, f"{request.topic}: topic: {error}") from None
        return None

    async def _unsubscribe(self, request: Request) -> Payload:
        pattern = expect_payload(request, Topic).topic
        try:
            self._subscriptions(request).remove(pattern)
        except ValueError:
            raise FluxError(Errno.ENOENT, f"not subscribed to {pattern}") from None
        return None

    def _subscriptions(self, request: Request) -> Subscriptions:
        """Return the sender's subscriptions; if the sender is gone, an unused object."""
        peer = self.router.peers.get(request.sender)
        return Subscriptions() if peer is None else peer.subscriptions

    async def _token(self, request: Request) -> Payload:
        user = expect_payload(request, TokenFor)
        try:
            return {"token": self.tokens.issue(user.userid, user.name, owner=False)}
        except OSError as error:
            raise FluxError(Errno.EIO, f"cannot store the token: {error}") from error

    async def _revoke(self, request: Request) -> Payload:
        userid = expect_payload(request, TokensOf).userid
        try:
            revoked = self.tokens.revoke(userid)
        except OSError as error:
            raise FluxError(Errno.EIO, f"cannot revoke the tokens: {error}") from error
        self.router.drop_tokens(revoked, TOKEN_REVOKED)
        return {"count": len(revoked)}

    async def _shutdown(self, _request: Request) -> Payload:
        self.shutdown.set()
        return None

    async def _backup(self, request: Request) -> Payload:
        directory = expect_payload(request, BackupTo).directory
        if self.back_up is None:
            raise FluxError(Errno.EINVAL, "the instance has no state directory")
        return await self.back_up(directory)

    async def _list(self, _request: Request) -> Payload:
        modules = [
            {
                "name": each.name,
                "services": list(each.services),
                "t_loaded": each.t_loaded,
                "waiting": each.waiting,
                "idle": each.idle,
                "status": each.status.value,
                "pid": each.pid,
            }
            for each in self.supervisor.list()
        ]
        return {"modules": modules, "mods": [_for_flux(each) for each in self.supervisor.list()]}

    async def _load(self, request: Request) -> Payload:
        wanted = expect_payload(request, ModuleStart)
        if wanted.is_file:
            if self.module_files is None:
                text = f"{wanted.path}: modules of flux-core need the native door"
                raise FluxError(Errno.EINVAL, text)
            spec = self.module_files.spec(wanted.path, wanted.name, wanted.args, wanted.loader)
            await self._start(self.supervisor.load_spec(spec))
        else:
            await self._start(
                self.supervisor.load(wanted.module, wanted.args, as_process=wanted.exec)
            )
            await self._acquirers.load_after(wanted.module)
        return None

    async def _reload(self, request: Request) -> Payload:
        wanted = expect_payload(request, ModuleStart)
        name = self._named(wanted.module)
        self.supervisor.check_removable(name)
        await self._acquirers.remove_before(name)
        try:
            abandoned = await self._start(
                self.supervisor.reload(name, wanted.args, as_process=wanted.exec)
            )
        finally:
            await self._acquirers.load_after(name)
        return _abandoned_answer(abandoned)

    async def _remove(self, request: Request) -> Payload:
        wanted = expect_payload(request, ModuleName)
        name = self._named(wanted.name)
        self.supervisor.check_removable(name)
        await self._acquirers.remove_before(name)
        if wanted.cancel:
            await self.supervisor.kill(name)
            return None
        return _abandoned_answer(await self.supervisor.remove(name))

    def _named(self, name: str) -> str:
        """Return the module that is called `name`: a loaded one, or ours that does its work."""
        return name if name in self.supervisor else OURS.get(name, name)

    async def _kill(self, request: Request) -> Payload:
        name = expect_payload(request, ModuleName).name
        self.supervisor.check_removable(name)
        await self.supervisor.kill(name)
        return None

    async def _start(self, starting: Awaitable[T]) -> T:
        try:
            return await starting
        except ModuleNotStarted as error:
            errnum = getattr(error.__cause__, "errnum", 0) or Errno.EINVAL
            raise FluxError(errnum, str(error)) from error

    async def _end_trace(self, request: Request) -> Payload:
        self._traces.cancel(request)
        return None

    async def _forget(self, request: Request) -> Payload:
        self._traces.forget(request.sender)
        return None

    async def _log(self, request: Request) -> Payload:
        line = expect_payload(request, LogLine)
        self.write_log(line.level, request.sender, line.text)
        return None

    async def _stop_backups(self, request: Request) -> Payload:
        for client, scope in self._backups:
            if client == request.sender:
                scope.cancel()
        return None


def _for_flux(module: ModuleInfo) -> dict[str, Any]:
    """Return a module as Flux's own programs read it; `idle` is in whole seconds."""
    services = [name for name in module.services if name != module.name]
    return {
        "name": module.name,
        "path": module.path or BUILTIN,
        "idle": int(module.idle),
        "status": FLUX_STATUSES[module.status],
        "services": services,
        "sendqueue": 0,
        "recvqueue": module.waiting,
    }


def _abandoned_answer(abandoned: list[str]) -> Payload:
    """Return the answer about a module that has ended; None if nothing of it goes on."""
    return {"abandoned": abandoned} if abandoned else None
