"""`config.*`: the configuration of the running instance, asked for and changed.

A new configuration is all or nothing. First it is read; then each service that goes by it takes
it or refuses, those that may refuse first; only then is it the instance's. What a module
reads when it is loaded is in force when it is loaded again: the answer names those tables. It has
`refusal` instead when nothing has changed, for the reason may be longer than an error's text
(RFC 6, Response Messages).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import trio

from flux_trio.broker.handle import Handle
from flux_trio.config import Config, read_config
from flux_trio.formats import FormatError
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Payload,
    Request,
    check_owner,
    expect_payload,
    respond,
    respond_error,
    topics,
    unknown_method,
)

TAKERS: Final = (topics.JOB_MANAGER, topics.JOB_LIST)
"""Services that go by a new configuration at once; the first asks plugins and may refuse."""

AT_ONCE: Final = ("policy", "queues", topics.JOB_MANAGER)
"""Tables that are in force at once, but for what they have for the scheduler, and the plugins."""


class ConfigRefused(Exception):
    """Nothing has changed; the text says why, and what would have to."""


class Load(msgspec.Struct):
    """config.load: the whole configuration."""

    config: dict[str, Any]


@dataclass
class Configuration:
    """Serves `config`. `read` reads the file again, None where there is none.

    `on_change` is told of a configuration that is in force. `read` raises ConfigRefused.
    """

    config: Config
    read: Callable[[], Awaitable[Config]] | None
    on_change: Callable[[Config], None]
    _changing: trio.Lock = field(default_factory=trio.Lock)

    def __post_init__(self) -> None:
        self._methods = {
            topics.CONFIG_GET: self._get,
            topics.CONFIG_LOAD: self._load,
            topics.CONFIG_RELOAD: self._reload,
            topics.stats_of(topics.CONFIG): self._stats,
        }
        self._counts = dict.fromkeys(self._methods, 0)

    async def run(
        self, handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. What takes its time holds up no questions."""
        handle.register(topics.CONFIG)
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                for request in await handle.receive():
                    gone = topics.disconnect_of(topics.CONFIG)
                    if isinstance(request, Request) and request.topic != gone:
                        nursery.start_soon(self._serve, handle, request)

    async def _serve(self, handle: Handle, request: Request) -> None:
        try:
            method = self._methods.get(request.topic)
            if method is None:
                raise unknown_method(topics.CONFIG, request.topic.partition(".")[2])
            self._counts[request.topic] += 1
            answer = respond(request, await method(handle, request))
        except FluxError as error:
            answer = respond_error(request, error.errnum, error.text)
        except (ConfigRefused, FormatError) as refusal:
            answer = respond(request, {"refusal": str(refusal)})
        if answer is not None:
            handle.send(answer)

    async def _get(self, _handle: Handle, _request: Request) -> Payload:
        return {"config": self.config.to_json()}

    async def _load(self, handle: Handle, request: Request) -> Payload:
        check_owner(request)
        return await self._change(handle, read_config(expect_payload(request, Load).config))

    async def _reload(self, handle: Handle, request: Request) -> Payload:
        check_owner(request)
        if self.read is None:
            raise FluxError(Errno.ENOENT, "the instance was started without a configuration file")
        return await self._change(handle, await self.read())

    async def _stats(self, _handle: Handle, _request: Request) -> Payload:
        return {"requests": dict(self._counts)}

    async def _change(self, handle: Handle, new: Config) -> Payload:
        """Raises ConfigRefused when a service refuses; then the old one is in force."""
        async with self._changing:
            for service in TAKERS:
                await self._give(handle, service, new)
            old, self.config = self.config, new
            self.on_change(new)
        return {"later": _later(old, new)}

    async def _give(self, handle: Handle, service: str, new: Config) -> None:
        """Let a service take it; one that is not there gets it when it is loaded."""
        topic = topics.config_reload_of(service)
        try:
            answer = await handle.call(topic, {"config": new.to_json()})
        except FluxError as error:
            handle.log(Level.WARNING, f"{service} has not taken the configuration: {error}")
            return
        if "refusal" in answer:
            raise ConfigRefused(answer["refusal"])


def _later(old: Config, new: Config) -> list[str]:
    """What is in force when its module is loaded again."""
    before, after = old.to_json(), new.to_json()
    tables = [name for name in after if before[name] != after[name] and name not in AT_ONCE]
    if old.job_manager.plugins != new.job_manager.plugins:
        tables.append("job-manager.plugins")
    if _scheduler_tables(old) != _scheduler_tables(new):
        tables.append("policy.scheduler")
    return tables


def _scheduler_tables(config: Config) -> dict[str | None, object]:
    """What the scheduler reads of each queue, and which there are."""
    return {name: config.policy_for(name).scheduler for name in (None, *config.queues)}
