"""`config.*`: reads and changes the configuration of the running instance.

A change applies completely or not at all. The instance first parses the new configuration. Then
each service that can apply it at once accepts or refuses it; services that may refuse come first.
Only then does the instance use it. A module that reads its table only when it is loaded uses the
new values after the next load; the answer names these tables. If nothing has changed, the answer
has `refusal`, since the reason may be longer than an error's text (RFC 6, Response Messages).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
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

APPLIED_BY: Final = (topics.JOB_MANAGER, topics.JOB_LIST)
"""Services that apply a new configuration at once; the first asks plugins and may refuse."""

AT_ONCE: Final = ("policy", "queues", topics.JOB_MANAGER)
"""Tables that apply at once, except the scheduler's values in them and the plugins."""


KEYS_LOGGED: Final = 20  # of those that have changed


class ConfigRefused(Exception):
    """Nothing has changed; the text says why, and which value must change."""


class Get(msgspec.Struct):
    """config.get: whether settings that have their default are wanted, too."""

    defaults: bool = False  # our own: the answer has settings with their defaults, too


class Load(msgspec.Struct):
    """config.load: the whole configuration."""

    config: dict[str, Any]


@dataclass
class Configuration:
    """Serves `config`. `read` reads the file again; it is None without a file.

    `on_change` gets each configuration that comes into force. `read` raises ConfigRefused, and
    `check` FormatError for one that does not fit this instance.
    """

    config: Config
    read: Callable[[], Awaitable[Config]] | None
    on_change: Callable[[Config], None]
    check: Callable[[Config], object] = lambda _config: None
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
        """Serve until cancelled. Slow methods run in tasks, so they do not block others."""
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
            handle.answer(respond(request, await method(handle, request)))
        except FluxError as error:
            handle.answer(respond_error(request, error.errnum, error.text))
        except (ConfigRefused, FormatError) as refusal:
            handle.answer(respond(request, {"refusal": str(refusal)}))

    async def _get(self, _handle: Handle, request: Request) -> Payload:
        """Return all settings, or for Flux's own programs, in their form, those that differ."""
        if not self.config.has_native_door or expect_payload(request, Get).defaults:
            return {"config": self.config.to_json()}
        return self.differing()

    def differing(self) -> dict[str, Any]:
        """Return the settings that do not have their default."""
        return _differing(self.config.to_json(), Config().to_json())

    async def _load(self, handle: Handle, request: Request) -> Payload:
        check_owner(request)
        payload = request.payload if isinstance(request.payload, dict) else {}
        if self.config.has_native_door and payload.keys() != {"config"}:
            new = read_config({"edition": self.config.edition, **payload})  # Flux's own programs
        else:
            new = read_config(expect_payload(request, Load).config)
        return await self._change(handle, new)

    async def _reload(self, handle: Handle, request: Request) -> Payload:
        check_owner(request)
        if self.read is None:
            raise FluxError(Errno.ENOENT, "the instance was started without a configuration file")
        return await self._change(handle, await self.read())

    async def _stats(self, _handle: Handle, _request: Request) -> Payload:
        return {"requests": dict(self._counts)}

    async def _change(self, handle: Handle, new: Config) -> Payload:
        """Apply `new`; ConfigRefused if a service refuses, and then the old one stays in force."""
        async with self._changing:
            if new.edition != self.config.edition:
                text = f"expected {self.config.edition!r}, which this instance speaks until its end"
                raise ConfigRefused(f"edition: {text}: got {new.edition!r}")
            self.check(new)
            fills_in = (topics.JOB_INGEST,) if new.edition_value.ingest_fills_in else ()
            for service in (*APPLIED_BY, *fills_in):
                await self._offer(handle, service, new)
            old, self.config = self.config, new
            self.on_change(new)
        changed = list(_changed_keys(old.to_json(), new.to_json()))
        more = f" and {len(changed) - KEYS_LOGGED} more" if len(changed) > KEYS_LOGGED else ""
        handle.log(Level.INFO, f"changed: {', '.join(changed[:KEYS_LOGGED]) or 'nothing'}{more}")
        return {"later": _applied_on_reload(old, new)}

    async def _offer(self, handle: Handle, service: str, new: Config) -> None:
        """Send `new` to a service; a service that is not loaded gets it when it is loaded."""
        topic = topics.config_reload_of(service)
        try:
            answer = await handle.call(topic, {"config": new.to_json()})
        except FluxError as error:
            handle.log(Level.WARNING, f"{service} did not apply the configuration: {error}")
            return
        if "refusal" in answer:
            raise ConfigRefused(answer["refusal"])


def _differing(whole: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not those of `default`."""
    found: dict[str, Any] = {}
    for key, value in whole.items():
        other = default.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            if below := _differing(value, other):
                found[key] = below
        elif value != other:
            found[key] = value
    return found


def _changed_keys(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield the keys whose values differ, with dots; a table that is new or gone is one key."""
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from (f"{key}.{below}" for below in _changed_keys(before, after))
        elif before != after:
            yield key


def _applied_on_reload(old: Config, new: Config) -> list[str]:
    """Return the changed tables that apply only after a reload of their module."""
    before, after = old.to_json(), new.to_json()
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    tables = [name for name in names if name not in AT_ONCE]
    if old.job_manager.plugins != new.job_manager.plugins:
        tables.append("job-manager.plugins")
    if _scheduler_tables(old) != _scheduler_tables(new):
        tables.append("policy.scheduler")
    return tables


def _scheduler_tables(config: Config) -> dict[str | None, object]:
    """Return the scheduler's table of each queue, by queue name."""
    return {name: config.policy_for(name).scheduler for name in (None, *config.queues)}
