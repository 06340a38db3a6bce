"""The instance's TOML configuration as typed values.

Tables and keys are flux-core's where it has them (`[resource]`, `[sched]`, `[exec]`, `[kvs]`); an
unknown key is an error, since a misspelled one would be silently without effect. Reading the file
is the caller's; this decodes its text.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import inspect

from flux_trio.editions import CLASSIC, EDITIONS, Edition
from flux_trio.formats import FormatError, Words, parse_duration

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ResourceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[resource.config]]`: what the named hosts have. Idsets and a hostlist, as text."""

    hosts: str
    cores: str | None = None
    gpus: str | None = None
    properties: list[str] = []


class ResourceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[resource]`: the inventory. Without `config` it is this machine, posing as `targets`."""

    config: list[ResourceEntry] = []
    targets: Positive = 1
    exclude: str = ""  # an idset or a hostlist
    noverify: bool = False


class SchedConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sched]`: which policy, and how many requests the job manager may have outstanding."""

    policy: Literal["fifo", "easy", "conservative"] = "fifo"
    mode: Literal["unlimited", "limited"] = "unlimited"
    limit: Annotated[int, msgspec.Meta(ge=1, le=2147483647)] = 8


class ExecConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[exec]`: `kill-timeout` (FSD) from SIGTERM to SIGKILL; `simulate` runs no processes."""

    kill_timeout: str = msgspec.field(default="5s", name="kill-timeout")
    simulate: bool = False


class KvsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kvs]`: what durable means: survives SIGKILL (normal) or power loss as well (full)."""

    synchronous: Literal["normal", "full"] = "normal"


class BrokerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[broker]`: where commands reach the instance; port 0 is any that is free."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file; every table may be left out."""

    edition: str = CLASSIC.name
    broker: BrokerConfig = BrokerConfig()
    resource: ResourceConfig = ResourceConfig()
    sched: SchedConfig = SchedConfig()
    exec: ExecConfig = ExecConfig()
    kvs: KvsConfig = KvsConfig()

    @property
    def edition_value(self) -> Edition:
        """The edition that the name means."""
        return EDITIONS[self.edition]


def parse_config(text: str, where: str = "config") -> Config:
    """Decode a TOML configuration.

    Raises FormatError that names the table and key, what was expected and what came.
    """
    try:
        raw = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise FormatError("TOML", Words(error), where) from None
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise _explain(FormatError.of_msgspec(error), raw).at(where) from None
    if config.edition not in EDITIONS:
        raise FormatError(f"one of {', '.join(EDITIONS)}", config.edition, f"{where}.edition")
    try:
        parse_duration(config.exec.kill_timeout)
    except FormatError as error:
        raise error.at(f"{where}.exec.kill-timeout") from None
    return config


_STEP: Final = re.compile(r"[^.\[\]]+")  # a key or an index of a path such as resource.config[0]


def _explain(error: FormatError, raw: Any) -> FormatError:
    """The same error with the value that came, and which keys or words there are."""
    shape, value = inspect.type_info(Config), raw
    for step in _STEP.findall(error.where):
        if isinstance(shape, inspect.StructType):
            shape = next(field.type for field in shape.fields if field.encode_name == step)
            value = value[step]
        elif isinstance(shape, inspect.ListType):
            shape, value = shape.item_type, value[int(step)]
    if isinstance(shape, inspect.StructType) and isinstance(value, dict):
        keys = [field.encode_name for field in shape.fields]
        for key in value:
            if key not in keys:
                return FormatError(f"the keys {', '.join(keys)}", key, error.where)
        return error
    if isinstance(shape, inspect.LiteralType):
        words = ", ".join(str(word) for word in shape.values)
        return FormatError(f"one of {words}", value, error.where)
    return FormatError(error.expected, value, error.where)
