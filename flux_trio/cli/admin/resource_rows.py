"""Rows of `flux-trio resource list`, `status` and `drain` (flux-resource(1)).

A node is down if it is drained or offline; a resource is free if it is not down and no job holds
it. Nodes with the same values in all fields of a format share a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flux_trio.cli.terminal.columns import Field, FieldsRow
from flux_trio.cli.terminal.named_formats import NamedFormat
from flux_trio.config import read_config
from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet
from flux_trio.messages import topics

if TYPE_CHECKING:
    from flux_trio.client import Client

_SHARE: Final = (
    "{state:>10} ?+:{queue:<5} ?:{propertiesx:<10.10+} {nnodes:>6} +:{ncores:>6} ?+:{ngpus:>5} "
)
LIST_FORMATS: Final = {
    "default": NamedFormat(_SHARE + "{nodelist}", "Free, allocated and down resources"),
    "rlist": NamedFormat(_SHARE + "{rlist}", "As default, with cores and gpus by rank"),
}
STATUS_FORMATS: Final = {
    "default": NamedFormat("{state:>12} {up:>2} {nnodes:>6} {nodelist}", "States of nodes"),
    "long": NamedFormat(
        "{state:>12} {up:>2} {nnodes:>6} +:{reason:<30.30} {nodelist}", "As default, with reasons"
    ),
}
DRAIN_FORMATS: Final = {
    "default": NamedFormat(
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {reason:<30.30+} {nodelist}",
        "Drained nodes with time and reason",
    ),
    "long": NamedFormat(
        "{timestamp!d:%b%d %R::<12} {state:<8.8} {ranks:<8.8+} +:{reason:<30.30} {nodelist}",
        "As default, with ranks",
    ),
}

LIST_STATES: Final = ("free", "allocated", "down", "up", "all")
LISTED: Final = ("free", "allocated", "down")  # the default
STATUS_STATES: Final = ("avail", "exclude", "allocated", "draining", "drained")
STATUS_SHOWN: Final = ("avail", "exclude", "draining", "drained")

_Since: TypeAlias = tuple[Idset, float, str]  # ranks, since when, reason


@dataclass(frozen=True)
class Resources:
    """The resources of an instance: all, those that jobs hold, and the ranks by state."""

    all: ResourceSet
    allocated: ResourceSet
    down: Idset
    offline: Idset
    exclude: Idset
    drained: tuple[_Since, ...]
    failed: tuple[_Since, ...]  # of the offline ranks
    queues: Mapping[str, Idset] = field(default_factory=dict)  # the ranks that each may use

    @classmethod
    def read(cls, status: Mapping[str, Any], held: object = None) -> Resources:
        """Read a resource.status response, and the R that jobs hold (None if they hold nothing)."""
        inventory = ResourceSet.parse(status["R"], "R")
        allocated = inventory.restrict(Idset())
        if held is not None:
            allocated = ResourceSet.parse(held, "R")
        offline, exclude = Idset.parse(status["offline"]), Idset.parse(status["exclude"])
        drained, failed = _since(status["drained"]), _since(status.get("down", {}))
        if unexplained := offline - _ranks_of(failed):  # the service sends no reasons
            failed += ((unexplained, 0.0, ""),)
        down = offline | exclude | _ranks_of(drained)
        return cls(inventory, allocated, down, offline, exclude, drained, failed)

    def restrict(self, targets: str) -> Resources:
        """Keep only the nodes of an idset of ranks or of a hostlist. Raises FormatError."""
        try:
            ranks = Idset.parse(targets)
        except FormatError:
            hosts = set(Hostlist.parse(targets))
            ranks = Idset.of(rank for rank, host in self.all.hosts.items() if host in hosts)
        return self._part(ranks)

    def of_queues(self, names: Iterable[str]) -> Resources:
        """Keep only these queues and their nodes. Raises ValueError for an unknown queue."""
        ranks = Idset()
        for name in names:
            if name not in self.queues:
                raise ValueError(f"{name}: no such queue")
            ranks |= self.queues[name]
        return replace(self._part(ranks), queues={name: self.queues[name] for name in names})

    def _part(self, ranks: Idset) -> Resources:
        drained, failed = (
            tuple((each & ranks, since, why) for each, since, why in part if each & ranks)
            for part in (self.drained, self.failed)
        )
        return replace(
            self,
            all=self.all.restrict(ranks),
            allocated=self.allocated.restrict(ranks & self.allocated.ranks),
            down=self.down & ranks,
            offline=self.offline & ranks,
            exclude=self.exclude & ranks,
            drained=drained,
            failed=failed,
        )

    def state(self, name: str) -> ResourceSet:
        """Return the resources in one of LIST_STATES, without the excluded nodes."""
        seen = self.all.without_ranks(self.exclude)
        match name:
            case "all":
                return seen
            case "down":
                return seen.restrict(self.down)
            case "up":
                return seen.without_ranks(self.down)
            case "allocated":
                return seen.intersection(self.allocated)
            case _:
                return seen.without_ranks(self.down).difference(self.allocated)


def _since(states: Mapping[str, Any]) -> tuple[_Since, ...]:
    return tuple(
        (Idset.parse(ranks), each["timestamp"], each["reason"]) for ranks, each in states.items()
    )


def _ranks_of(parts: Iterable[_Since]) -> Idset:
    found = Idset()
    for ranks, _, _ in parts:
        found |= ranks
    return found


@dataclass(frozen=True)
class _Part:
    """Resources in one state, and what else tells them from others."""

    state: str
    resources: ResourceSet
    queues: str = ""
    properties: tuple[str, ...] = ()
    properties_shown: tuple[str, ...] = ()  # without those that have the name of a queue
    online: bool = True
    since: float = 0.0
    reason: str = ""


_LABELS: Final = {
    "timestamp": Field("TIME", lambda part: part.since),
    "state": Field("STATE", lambda part: part.state if part.online else f"{part.state}*"),
    "statex": Field("STATE", lambda part: part.state),
    "status": Field("STATUS", lambda part: "online" if part.online else "offline"),
    "up": Field("UP", lambda part: "✔" if part.online else "✗"),
    "up.ascii": Field("UP", lambda part: "y" if part.online else "n"),
    "reason": Field("REASON", lambda part: part.reason),
    "queue": Field("QUEUE", lambda part: part.queues),
    "properties": Field("PROPERTIES", lambda part: ",".join(part.properties)),
    "propertiesx": Field("PROPERTIES", lambda part: ",".join(part.properties_shown)),
}
"""Fields by which rows differ; the others count what the nodes of a row have."""
_FIELDS: Final = {
    **_LABELS,
    "nnodes": Field("NNODES", lambda part: part.resources.nnodes),
    "ncores": Field("NCORES", lambda part: part.resources.ncores),
    "ngpus": Field("NGPUS", lambda part: part.resources.ngpus),
    "ranks": Field("RANKS", lambda part: str(part.resources.ranks)),
    "nodelist": Field("NODELIST", lambda part: str(Hostlist.of(part.resources.hosts.values()))),
    "rlist": Field("LIST", lambda part: part.resources.summary() if part.resources else ""),
}


def _fields(names: str) -> dict[str, Field]:
    return {name: _FIELDS[name] for name in names.split()}


LIST_FIELDS: Final = _fields(
    "state queue properties propertiesx nnodes ncores ngpus ranks nodelist rlist"
)
STATUS_FIELDS: Final = _fields(
    "timestamp state statex status up up.ascii reason nnodes ranks nodelist"
)


def list_rows(
    resources: Resources,
    states: Iterable[str] = LISTED,
    fields: Collection[str] = tuple(LIST_FIELDS),
    *,
    skip_empty: bool = False,
) -> list[FieldsRow]:
    """Return a row for each state, or several if its nodes differ in `fields`."""
    parts = []
    for state in states:
        part = resources.state(state)
        parts += _alike(state, part, resources.queues) or [_Part(state, part)]
    return _rows(parts, fields, skip_empty)


def status_rows(
    resources: Resources, states: Collection[str], fields: Collection[str], *, skip_empty: bool
) -> list[FieldsRow]:
    """Return rows by state and by online or offline; naming only one of these omits the other."""
    wanted = set(states) - {"online", "offline"} or set(STATUS_SHOWN)
    sides = [online for online in (True, False) if _is_wanted(online, states)]
    parts = []
    for state, ranks, since, reason in _status_parts(resources):
        if state not in wanted and "all" not in wanted:
            continue
        for online, there, at, why in _sides(resources, ranks, since, reason):
            if online in sides and (there or (online and not skip_empty)):
                part = resources.all.restrict(there)
                parts.append(_Part(state, part, online=online, since=at, reason=why))
    return _rows(parts, fields, skip_empty)


def drain_rows(
    resources: Resources, fields: Collection[str] = tuple(STATUS_FIELDS)
) -> list[FieldsRow]:
    """Return a row per time and reason: `draining` while jobs hold the nodes, then `drained`."""
    return status_rows(resources, ("draining", "drained"), fields, skip_empty=True)


def _status_parts(resources: Resources) -> Iterator[tuple[str, Idset, float, str]]:
    """Yield state, ranks, and for drained ranks the time and the reason."""
    busy = resources.allocated.ranks
    drained = _ranks_of(resources.drained)
    yield "avail", resources.all.ranks - resources.exclude - drained, 0.0, ""
    yield "exclude", resources.exclude, 0.0, ""
    yield "allocated", busy, 0.0, ""
    for state in ("draining", "drained"):
        found = False
        for ranks, since, reason in resources.drained:
            if part := ranks & busy if state == "draining" else ranks - busy:
                found = True
                yield state, part, since, reason
        if not found:
            yield state, Idset(), 0.0, ""


def _sides(
    resources: Resources, ranks: Idset, since: float, reason: str
) -> Iterator[tuple[bool, Idset, float, str]]:
    """Yield online and offline ranks with time and reason; a drain's reason has precedence."""
    yield True, ranks - resources.offline, since, reason
    for failed, at, why in resources.failed:
        yield False, ranks & failed, since or at, reason or why


def _is_wanted(online: bool, states: Collection[str]) -> bool:
    name, other = ("online", "offline") if online else ("offline", "online")
    return name in states or other not in states


def _rows(parts: Iterable[_Part], fields: Collection[str], skip_empty: bool) -> list[FieldsRow]:
    """Merge parts with equal labels in `fields` into one row."""
    shown = [_LABELS[field] for field in fields if field in _LABELS]
    alike: dict[tuple[object, ...], _Part] = {}
    for part in parts:
        if skip_empty and not part.resources:
            continue
        look = tuple(field.value(part) for field in shown)
        if look in alike:
            part = replace(part, resources=alike[look].resources.union(part.resources))
        alike[look] = part
    return [FieldsRow(_FIELDS, part) for part in alike.values()]


def _alike(state: str, resources: ResourceSet, queues: Mapping[str, Idset]) -> list[_Part]:
    """Group ranks by queues, properties, and the properties that are not a queue's name."""
    ranks_of: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for rank in resources.ranks:
        names = sorted(name for name, ranks in resources.properties.items() if rank in ranks)
        labels = (
            ",".join(name for name, ranks in queues.items() if rank in ranks),
            tuple(names),
            tuple(name for name in names if name not in queues),
        )
        ranks_of.setdefault(labels, []).append(rank)
    return [
        _Part(state, resources.restrict(Idset.of(ranks)), *labels)
        for labels, ranks in ranks_of.items()
    ]


# --- what the instance answers


async def fetch_resources(
    client: Client, *, with_jobs: bool = True
) -> tuple[dict[str, Any], Resources]:
    """Return the resource.status response and the resources; `with_jobs` adds what jobs hold."""
    status = await client.call(topics.RESOURCE_STATUS)
    held = (await client.call(topics.JOB_RESOURCE_STATUS))["allocated"] if with_jobs else None
    return status, Resources.read(status, held)


async def fetch_with_queues(client: Client) -> Resources:
    """Return the resources, the resources that jobs hold, and the ranks that each queue may use."""
    _, resources = await fetch_resources(client)
    config = read_config((await client.call(topics.CONFIG_GET, {"defaults": True}))["config"])
    queues = {}
    for name in config.queues:
        constraint = config.constraint_for(name)
        every = resources.all
        queues[name] = every.ranks if constraint is None else constraint.select(every.targets)
    return replace(resources, queues=queues)
