"""The states of the cores of a world as lines of text, and what each turn changes in them.

A line is `place = value`: `scheduler.requests[ƒ2] = "PENDING"`. What is empty, 0 or false has no
line, and what only counts has none, so that a state is short and a change is small.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

import msgspec

from flux_trio.cores.state import Plain, StateError
from flux_trio.formats import format_fluid
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.properties.property import Property
from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.lab.stories.running import PlanRun
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.trace import Kind, Record, Sink
from flux_trio.views import Change

CHARS_MAX: Final = 160
"""The most characters of a value; a longer one is cut."""

DEPTH_MAX: Final = 4
"""How deep mappings in mappings have lines of their own; what is deeper is one line."""

_COUNTED: Final = re.compile(r"(\bnow|\blast\w*|\bcounts\[.*|story\.events)$")
"""Places that count what has happened: they change in every turn and decide nothing."""

_JOBID_MIN: Final = 1 << 32  # a job id has a time in its upper bits; other numbers are small
GONE: Final = "the module is not there"
_SHOWN: Final = "(as above)"  # stands for an object that has lines already
_COLLECTIONS: Final = ("list", "deque", "set", "tuple", "array")
_MAPPINGS: Final = ("dict", "ordered", "counter")


def state_lines(dump: Plain) -> dict[str, str]:
    """Return the state in the dump of a core: the value at each place, as text."""
    objects: dict[int, Any] = {}
    lines: dict[str, str] = {}
    for part, held in dump.items():
        for name, value in held.items():
            place = f"{part}.{name}".removeprefix("core.").replace("._", ".").lstrip("_")
            lines.update(_lines(place, _readable(value, objects)))
    return lines


def _lines(place: str, value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield places and values: one line for each item of a mapping, down to DEPTH_MAX."""
    if isinstance(value, dict) and value and depth < DEPTH_MAX:
        for key, held in value.items():
            inner = f"{place}{key}" if key[:1] == "." else f"{place}[{key}]"
            yield from _lines(inner, held, depth + 1)
    elif value not in (None, "", 0, [], {}, False, _SHOWN) and not _COUNTED.search(place):
        text = msgspec.json.encode(value).decode()
        yield place, text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 3]}..."


def _readable(data: Plain, objects: dict[int, Any]) -> Any:
    """Return plain data without what only `take_up` needs: tags, numbers and names of classes.

    The attributes of an object have names with a leading period.
    """
    if isinstance(data, int) and not isinstance(data, bool) and data >= _JOBID_MIN:
        return format_fluid(data, "f58")
    if not isinstance(data, list) or not data:
        return data
    match data:
        case ["same", number]:
            return objects.get(number, _SHOWN)
        case ["tuple", items]:
            return [_readable(each, objects) for each in items]
        case ["enum", _, value]:
            return value
        case [str(tag), number, items, *_] if tag in _MAPPINGS:
            found = {_key(_readable(key, objects)): _readable(held, objects) for key, held in items}
            objects[number] = found
            return found
        case ["array", number, _, items]:
            objects[number] = items
            return items
        case [str(tag), number, items, *_] if tag in _COLLECTIONS:
            objects[number] = [_readable(each, objects) for each in items]
            return objects[number]
        case ["object", number, _, "attributes", held]:
            own = {f".{k.lstrip('_')}": _readable(each, objects) for k, each in held.items()}
            objects[number] = _SHOWN
            return _message(own) if ".topic" in own else own
        case ["object", number, _, _, held]:
            objects[number] = _parts(_readable(held, objects))
            return objects[number]
        case [str(), *rest]:
            return rest[-1] if len(rest) == 1 else rest
    return [_readable(each, objects) for each in data]


def _parts(state: Any) -> Any:
    """Return the state of an object that puts down a tuple of others by place, each with lines."""
    if isinstance(state, list) and any(isinstance(each, dict) for each in state):
        return {str(place): each for place, each in enumerate(state)}
    return state


def _message(fields: dict[str, Any]) -> str:
    """Return a message that a core keeps: its topic, its sender and the job it is about."""
    payload = fields.get(".payload")
    jobid = payload.get("id") if isinstance(payload, dict) else None
    about = f" about {jobid}" if jobid else ""
    sender = "".join(f" of {each}" for each in fields.get(".routes", [])[-1:])
    return f"{fields['.topic']}{sender}{about}"


def _key(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def changed_lines(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """Yield a line for each place whose value differs between two states."""
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place), after.get(place)
        if old == new:
            continue
        if old is None:
            yield f"{place} = {new}"
        elif new is None:
            yield f"{place}: {old} is gone"
        else:
            yield f"{place}: {old} -> {new}"


class Watch:
    """Looks at the cores of a world, and keeps what changes in them.

    It has to get the records of the trace, so that it looks only at cores that may have changed.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.states: dict[str, dict[str, str]] = {}
        """The state of each core at the last look, by module."""
        self._dumps: dict[str, Plain] = {}
        self.last = 0  # place of a record
        self._since = 0  # place of the last record before this step
        self._acted: set[str] = set()  # parties of records since the last look

    def begin(self, world: CoresWorld) -> None:
        """Look at all cores for the first time: `changes` begins with their whole states."""
        self.look(world)
        self.changes[:] = [
            Change(0, 0, name, (), state_text(lines)) for name, lines in self.states.items()
        ]
        self._since = self.last

    def observe(self, record: Record) -> None:
        """Note that the party of the next record may have changed."""
        self.last = record.n
        self._acted.add(record.party)
        if record.kind == Kind.MODULE and record.data is not None:
            self._acted.add(record.data["module"])

    def look_at_actors(self, world: CoresWorld) -> None:
        """Look at the cores of all parties that have done something since the last look.

        A party whose turn was interrupted is looked at again after the next step.
        """
        self.look(world, self._acted)
        self._since = self.last
        if not world.is_in_turn:
            self._acted.clear()

    def look(self, world: CoresWorld, modules: Container[str] | None = None) -> None:
        """Look at the cores of these modules, by default of all, and keep what has changed."""
        for name in world.modules:
            if modules is not None and name not in modules:
                continue
            station = world.stations.get(name)
            dump = None if station is None else _dump_of(station.core)
            if dump == self._dumps.get(name):
                continue
            self._dumps[name] = dump
            before = self.states.get(name, {})
            self.states[name] = after = {} if dump is None else state_lines(dump)
            lines = (GONE,) if dump is None else changed_lines(before, after)
            if shown := tuple(lines):
                state = GONE if dump is None else state_text(after)
                self.changes.append(Change(self._since, self.last, name, shown, state))


def _dump_of(core: Any) -> Plain:
    """Return the state of a core, or why it cannot be put down: a policy is the user's."""
    try:
        return core.dump()
    except StateError as error:
        return {"core": {"state": str(error)}}


class WatchedRun(PlanRun):
    """A run of a plan that keeps how each step changes the states of the cores.

    `changes` begins with the first state of each core.
    """

    def __init__(
        self,
        plan: Plan,
        sinks: Iterable[Sink] = (),
        properties: Iterable[Property] = (),
        *,
        judge: WorldJudge | None = None,
    ) -> None:
        self._watch = Watch()
        self.changes = self._watch.changes
        self.states = self._watch.states
        self.right_after = 0
        """The number of the last record before everything was put right."""
        super().__init__(plan, [*sinks, self._watch.observe], properties, judge=judge)
        self._watch.begin(self.world)

    def step(self) -> bool:
        """Let one thing happen, and look at what it has changed; False if nothing is left."""
        is_alive = super().step()
        self._watch.look_at_actors(self.world)
        return is_alive

    def put_right(self) -> None:
        self.right_after = self._watch.last
        super().put_right()

    def look(self) -> None:
        """Look at the cores of all modules."""
        self._watch.look(self.world)


def state_text(lines: dict[str, str]) -> str:
    """Return a state as text: a line for each place."""
    return "\n".join(f"{place} = {value}" for place, value in lines.items())
