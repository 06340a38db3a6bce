"""The whole file: decode it from TOML, check it and explain errors.

An unknown key is an error, since a misspelled key would have no effect. What flux-core documents
and has no meaning here (`documented`) is ignored with a warning. The caller reads the file; this
module gets its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from flux_trio.config.foreign import Reasons, unknown_key, without_foreign
from flux_trio.config.policy import Policy, PolicyTable, QueueTable, override, resolve
from flux_trio.config.tables import (
    AccessConfig,
    BrokerConfig,
    CheckConfig,
    ExecConfig,
    FakeResourcesConfig,
    IngestConfig,
    JobManagerConfig,
    KvsConfig,
    ResourceConfig,
    SchedConfig,
    check_policy_name,
)
from flux_trio.editions import CLASSIC, EDITIONS, Edition
from flux_trio.formats import (
    MISSING,
    Constraint,
    FormatError,
    Hostlist,
    Words,
    parse_constraint,
    parse_duration,
    parse_size,
)
from flux_trio.messages import UnfitError, check_object

PLUGIN_LOOP_S_MIN: Final = 1.0  # a lower limit would end a process whose plugins only take long

V = TypeVar("V")
T = TypeVar("T")


ModuleTable = dict[str, Any] | None
"""The table of a module that is not this project's, as it is."""

ALL_HOSTS: Final = "all"

_NO_QUEUE: Final = QueueTable()
_DEFAULT_QUEUE: Final = "policy.jobspec.defaults.system.queue"
_NO_DEFAULT: Final = "no default queue"


def queue_property(name: str) -> str:
    """Return the property of the hosts of a queue that has `hosts` (RFC 33, RFC 20)."""
    return f"+{name}"


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True, dict=True):
    """The whole file; every table is optional."""

    edition: str = CLASSIC.name
    access: AccessConfig = AccessConfig()
    broker: BrokerConfig = BrokerConfig()
    resource: ResourceConfig = ResourceConfig()
    fake_resources: FakeResourcesConfig | None = msgspec.field(default=None, name="fake-resources")
    sched: SchedConfig = SchedConfig()
    exec: ExecConfig = ExecConfig()
    ingest: IngestConfig = IngestConfig()
    kvs: KvsConfig = KvsConfig()
    job_manager: JobManagerConfig = msgspec.field(default=JobManagerConfig(), name="job-manager")
    policy: PolicyTable = PolicyTable()
    queues: dict[str, QueueTable] = {}
    # tables of a scheduler that can be loaded here: it alone knows their keys
    fluxion_feasibility: ModuleTable = msgspec.field(default=None, name="sched-fluxion-feasibility")
    fluxion_qmanager: ModuleTable = msgspec.field(default=None, name="sched-fluxion-qmanager")
    fluxion_resource: ModuleTable = msgspec.field(default=None, name="sched-fluxion-resource")

    @property
    def edition_value(self) -> Edition:
        return EDITIONS[self.edition]

    @property
    def has_native_door(self) -> bool:
        """Return whether Flux's own programs may come in, where there is a state directory."""
        native = self.broker.native
        return self.edition_value.has_native_door if native is None else native

    @property
    def default_queue(self) -> str | None:
        """Return the queue of jobs that name no queue."""
        return self.policy.jobspec.defaults.system.queue

    @property
    def names_resources(self) -> bool:
        """Return whether the file says which resources there are."""
        resource = self.resource
        return bool(resource.config or resource.path or self.fake_resources)

    def policy_for(self, queue: str | None) -> Policy:
        """Return the policy of `queue`, None for the anonymous queue; KeyError if unknown."""
        return self._policies[queue]

    def constraint_for(self, queue: str | None) -> Constraint | None:
        """Return which execution targets `queue` accepts; None for all. KeyError if unknown."""
        if queue is None:
            return None
        real = self.parents.get(queue, queue)
        table = self.queues[real]
        if table.hosts is not None:
            return parse_constraint({"properties": [queue_property(real)]})
        return table.constraint

    @cached_property
    def parents(self) -> dict[str, str]:
        """Return the parent of each virtual queue."""
        return {name: each.parent for name, each in self.queues.items() if each.parent is not None}

    def with_virtual(self, queue: str) -> frozenset[str]:
        """Return `queue`, and the virtual queues whose parent it is."""
        return frozenset({queue, *(name for name, each in self.parents.items() if each == queue)})

    @cached_property
    def _policies(self) -> dict[str | None, Policy]:
        """Return the policy of each queue; the anonymous queue has the general policy."""
        policies: dict[str | None, Policy] = {None: resolve(self.policy)}
        for name, queue in self.queues.items():
            parent = self.queues.get(queue.parent or "", _NO_QUEUE)
            policies[name] = resolve(override(override(self.policy, parent.policy), queue.policy))
        return policies

    def to_json(self) -> dict[str, Any]:
        """Return all settings in force, with defaults; `read_config` reads this object again."""
        tables: dict[str, Any] = _without_none(msgspec.to_builtins(self))
        return tables


def parse_config(
    text: str,
    where: str = "config",
    warn: Callable[[str], None] | None = None,
    edition: str | None = None,
) -> Config:
    """Decode a TOML configuration.

    `warn` gets a line about what is ignored, and one about several queues without a default.
    `edition` counts more than the key of this name. Raises FormatError that names the table and
    key, what was expected and what came.
    """
    try:
        raw = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        got = Words(f"broken TOML: {error}")
        raise FormatError("TOML", got, where) from None
    return read_config(raw, where, warn, edition)


def read_config(
    raw: object,
    where: str = "config",
    warn: Callable[[str], None] | None = None,
    edition: str | None = None,
) -> Config:
    """Return a configuration from decoded tables; the rest is as in `parse_config`."""
    if edition is not None and isinstance(raw, dict):
        raw = {**raw, "edition": edition}
    raw, ignored = _at(where, without_foreign, raw)
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise _explain(FormatError.of_msgspec(error), raw).at(where) from None
    try:
        check_object(raw)  # a message cannot carry TOML's dates, infinities and large integers
    except UnfitError as error:
        raise FormatError("values that a message can carry", Words(error), where) from None
    _at(where, _check, config)
    if warn is not None:
        for remark in _remarks(config, ignored):
            warn(f"{where}: {remark}")
    return config


def check_edition(name: str) -> None:
    """Raise FormatError unless there is an edition with this name."""
    if name not in EDITIONS:
        raise FormatError(f"one of {', '.join(EDITIONS)}", name, "edition")


def _check(config: Config) -> None:
    """Check rules that the types do not express; FormatError."""
    check_edition(config.edition)
    if config.broker.native and not config.edition_value.has_native_door:
        expected = f"false in the edition {config.edition}, which Flux's programs do not speak"
        raise FormatError(expected, True, "broker.native")
    check_policy_name(config.sched.policy, "sched.policy")
    _at("exec.kill-timeout", parse_duration, config.exec.kill_timeout)
    _at("exec.output-limit", parse_size, config.exec.output_limit)
    _check_target_check(config.resource.check)
    manager = config.job_manager
    if manager.inactive_age_limit is not None:
        _at("job-manager.inactive-age-limit", parse_duration, manager.inactive_age_limit)
    where = "job-manager.plugin-loop-limit"
    if _at(where, parse_duration, manager.plugin_loop_limit) < PLUGIN_LOOP_S_MIN:
        raise FormatError("at least 1s", manager.plugin_loop_limit, where)
    _check_housekeeping(config)
    for index, directive in enumerate(manager.plugins):
        where = f"job-manager.plugins[{index}]"
        if directive.load is None and directive.remove is None:
            raise FormatError("load or remove", MISSING, where)
        if directive.load is None and directive.conf:
            raise FormatError("conf only together with load", directive.conf, f"{where}.conf")
    _at("policy", resolve, config.policy)
    for name, queue in config.queues.items():
        if not name:
            raise FormatError("a name of a queue", name, "queues")
        _check_queue(queue, f"queues.{name}")
        _check_parent(config, name, queue)
        _check_hosts(config, name, queue)
    _check_default_queue(config)


def _check_housekeeping(config: Config) -> None:
    table, where = config.job_manager.housekeeping, "job-manager.housekeeping.release-after"
    if table is None or table.release_after is None:
        return
    _at(where, parse_duration, table.release_after)
    if not config.edition_value.frees_in_parts:
        expected = f"no release-after in the edition {config.edition}, which frees all at once"
        raise FormatError(Words(expected), table.release_after, where)


def _at(where: str, parse: Callable[[V], T], value: V) -> T:
    """Return `parse(value)`; its FormatError names the key `where`."""
    try:
        return parse(value)
    except FormatError as error:
        raise error.at(where) from None


def _check_target_check(table: CheckConfig | None) -> None:
    if table is None:
        return
    for key, text in (("interval", table.interval), ("timeout", table.timeout)):
        seconds = _at(f"resource.check.{key}", parse_duration, text)
        if not 0 < seconds < math.inf:
            raise FormatError("a time above 0", text, f"resource.check.{key}")


def _check_queue(queue: QueueTable, where: str) -> None:
    _at(f"{where}.requires", attrgetter("constraint"), queue)
    _at(f"{where}.policy", resolve, queue.policy)
    default = queue.policy.jobspec.defaults.system.queue
    if default is not None:
        place = f"{where}.policy.jobspec.defaults.system.queue"
        raise FormatError("a default queue only in the general policy", default, place)


def _check_parent(config: Config, name: str, queue: QueueTable) -> None:
    """Check a virtual queue, as flux-config-queues(5) defines it."""
    if queue.parent is None:
        return
    real = [each for each in config.queues if each not in config.parents]
    if queue.parent not in real:
        words = Words(f"a queue without a parent: {', '.join(real) or 'there is none'}")
        raise FormatError(words, queue.parent, f"queues.{name}.parent")
    taken = (
        ("hosts", queue.hosts),
        ("requires", queue.requires),
        ("policy.scheduler", queue.policy.scheduler or None),
    )
    for key, value in taken:
        if value is not None:
            expected = f"no {key} beside parent, whose resources and scheduler it has"
            raise FormatError(expected, value, f"queues.{name}.{key}")


def _check_hosts(config: Config, name: str, queue: QueueTable) -> None:
    """Check `hosts` without the inventory, which `add_queue_properties` needs."""
    if queue.hosts is None:
        return
    where = f"queues.{name}.hosts"
    if not config.edition_value.queues_have_hosts:
        expected = f"no hosts in the edition {config.edition}: requires is a constraint there"
        raise FormatError(Words(expected), queue.hosts, where)
    if queue.requires is not None:
        raise FormatError("no requires beside hosts", queue.requires, f"queues.{name}.requires")
    if queue.hosts != ALL_HOSTS and not _at(where, Hostlist.parse, queue.hosts):
        raise FormatError(f"a hostlist, or {ALL_HOSTS!r}", queue.hosts, where)


def _check_default_queue(config: Config) -> None:
    """Check that the default queue is one of the queues."""
    name = config.default_queue
    if name is not None and name not in config.queues:
        known = f"one of the queues {', '.join(config.queues)}" if config.queues else _NO_DEFAULT
        raise FormatError(known, name, _DEFAULT_QUEUE)


def _remarks(config: Config, ignored: Reasons) -> Iterator[str]:
    """Yield what a site should know of a configuration that is taken."""
    if ignored:
        names = "; ".join(f"{', '.join(each)} ({why})" for why, each in ignored.items())
        yield f"these have no meaning here and are ignored: {names}"
    if config.default_queue is None and len(config.queues) > 1:
        yield f"{_NO_DEFAULT} in {_DEFAULT_QUEUE}: a job that names no queue is refused"


# a key or an index of a path such as resource.config[0]; [] stands for a key of a table of names
_STEP: Final = re.compile(r"[^.\[\]]+|\[\]")


def _explain(error: FormatError, raw: Any) -> FormatError:
    """Return the error with the value that came and the allowed keys or words."""
    shape, value, where = inspect.type_info(Config), raw, error.where
    for step in _STEP.findall(error.where):
        if isinstance(shape, inspect.StructType):
            shape = next(field.type for field in shape.fields if field.encode_name == step)
            value = value[step]
        elif isinstance(shape, inspect.ListType):
            shape, value = shape.item_type, value[int(step)]
        elif isinstance(shape, inspect.DictType):
            shape = shape.value_type
            name = _invalid_name(shape, value)
            where, value = where.replace("[]", f".{name}", 1), value[name]
        if isinstance(shape, inspect.UnionType):
            shape = _member(shape, value)
    if isinstance(shape, inspect.StructType) and isinstance(value, dict):
        keys = [field.encode_name for field in shape.fields]
        for key in value:
            if key not in keys:
                return unknown_key(key, keys, where)
        return error
    if isinstance(shape, inspect.LiteralType):
        words = ", ".join(str(word) for word in shape.values)
        return FormatError(f"one of {words}", value, where)
    return FormatError(error.expected, value, where)


def _member(union: inspect.UnionType, value: object) -> inspect.Type:
    """Return the type of the union that `value` was read as; null means that it is optional."""
    types = [each for each in union.types if not isinstance(each, inspect.NoneType)]
    tables, lists = (inspect.StructType, inspect.DictType), (inspect.ListType,)
    wanted = tables if isinstance(value, dict) else lists if isinstance(value, list) else ()
    return next((each for each in types if isinstance(each, wanted)), types[0])


def _invalid_name(shape: inspect.Type, named: dict[str, Any]) -> str:
    """Return the name whose table is wrong: msgspec's path does not contain it."""
    assert isinstance(shape, inspect.StructType)  # all tables are structs
    for name, table in named.items():
        try:
            msgspec.convert(table, shape.cls)
        except msgspec.ValidationError:
            return name
    raise AssertionError("one of them was refused before")


def _without_none(value: Any) -> Any:
    """Remove keys whose value is None: TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
