"""A broker with a supervisor, and modules that do what a test asks of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from flux_trio.broker import (
    BrokerServices,
    Handle,
    LocalHandle,
    LogEntry,
    ModuleSpec,
    Supervisor,
    Tokens,
)
from flux_trio.messages import (
    ROLE_USER,
    Request,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
)
from flux_trio.trace import Kind, Record
from tests.support.asking import GUEST_USERID, OWNER_USERID
from tests.support.serving import World

Main = Callable[..., Awaitable[None]]


class ModuleWorld(World):
    """A broker whose modules run in `nursery`; its trace is kept."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.router.trace.add_sink(self.records.append)
        self.supervisor = Supervisor(self.router, nursery, self.now, self.log, OWNER_USERID)

    def knows(self, name: str, main: Main, *, essential: bool = False) -> None:
        """From now on the module `name` can be loaded."""
        self.supervisor.specs[name] = ModuleSpec(name, main, essential=essential)

    async def load(self, name: str, main: Main, *, essential: bool = False) -> None:
        """`main` runs as the module `name`."""
        self.knows(name, main, essential=essential)
        await self.supervisor.load(name)

    async def serve_broker(self, tokens: Tokens | None = None, **more: Any) -> None:
        """The broker's own services run; `more` are further arguments of `BrokerServices`."""
        tokens = tokens or Tokens(lambda: "secret", lambda _: None)
        given = {"info": {}, "shutdown": trio.Event(), "write_log": self.write_log, **more}
        services = BrokerServices(self.router, self.supervisor, tokens, **given)
        await self.load("broker", services.run, essential=True)

    def guest(self, name: str = "guest") -> LocalHandle:
        """A new peer without the owner's role."""
        return LocalHandle(name, self.router, self.now, self.log, GUEST_USERID, ROLE_USER)

    def write_log(self, level: int, party: str, text: str) -> None:
        self.log.write(LogEntry(self.now(), level, party, text))

    def told(self) -> list[dict[str, Any] | None]:
        """What the trace has about modules."""
        return [record.data for record in self.records if record.kind == Kind.MODULE]

    def drops(self) -> list[Record]:
        """The messages that reached nobody."""
        return [record for record in self.records if record.kind == Kind.DROP]


async def echo(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    """The service `echo`, whose methods do what they are called."""
    handle.register("echo")
    task_status.started()
    while True:
        for request in await handle.receive():
            if isinstance(request, Request):
                if request.topic == "echo.return":
                    return
                _answer(handle, request)


def _answer(handle: Handle, request: Request) -> None:
    method = request.topic.removeprefix("echo.")
    if method == "back":
        send(handle, respond(request, request.payload))
    elif method == "refuse":
        send(handle, respond_error(request, 22, "not today"))
    elif method == "count":  # 0, 1, 2, then the end
        for n in range(3):
            send(handle, respond_stream(request, {"n": n}))
        send(handle, end_of_stream(request))
    elif method == "open":  # one response, and the stream stays open
        send(handle, respond_stream(request, {"n": 0}))
    elif method == "crash":
        raise ZeroDivisionError("as asked")


def send(handle: Handle, message: Any) -> None:
    """Send a response that there must be."""
    assert message is not None
    handle.send(message)


def listener(service: str, heard: list[Any]) -> Main:
    """A module that holds `service`, keeps what comes in `heard`, and answers nothing."""

    async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register(service)
        task_status.started()
        while True:
            heard.extend(await handle.receive())

    return main
