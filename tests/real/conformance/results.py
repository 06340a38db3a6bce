"""What the last run has found, as it is kept in `results.json` beside this file."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from flux_trio import __version__
from tests.support.live_scheduling import FLUXION_MODULES

FILE: Final = Path(__file__).with_name("results.json")


class Broken(msgspec.Struct, frozen=True):
    """A clause that a party has broken: how often, and what the judge says of the first time.

    `known` is the reason of the known departure that this is; "" for another fault of the clause.
    """

    clause: str
    count: int
    text: str
    known: str = ""


class Found(msgspec.Struct):
    """What a testee's stories show of one party; `all` has the clauses that can be judged."""

    kept: set[str] = msgspec.field(default_factory=set)
    broken: list[Broken] = msgspec.field(default_factory=list)
    all: set[str] = msgspec.field(default_factory=set)

    def add(self, other: Found) -> None:
        """Take in what other stories have shown."""
        found = {(each.clause, each.known): each for each in self.broken}
        for each in other.broken:
            mine = found.get((each.clause, each.known))
            count = each.count + (mine.count if mine else 0)
            found[each.clause, each.known] = msgspec.structs.replace(mine or each, count=count)
        self.broken = list(found.values())
        self.kept |= other.kept
        self.kept -= self.clauses_broken
        self.all |= other.all

    @property
    def clauses_broken(self) -> set[str]:
        return {each.clause for each in self.broken}

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many clauses are kept, broken and not exercised."""
        broken = self.clauses_broken
        return len(self.kept), len(broken), len(self.all - self.kept - broken)


class Examined(msgspec.Struct):
    """What was seen of a testee: by party, and what of the stories it did not play to the end."""

    date: str
    parties: dict[str, Found] = {}
    wrong: dict[str, str] = {}
    njobs: int = 0
    nrecords: int = 0

    def summary(self) -> str:
        counts = ", ".join(f"{name} {found.counts}" for name, found in self.parties.items())
        return f"{counts}; {self.njobs} jobs, {len(self.wrong)} kinds that did not end"


class Loaded(msgspec.Struct):
    """How a scheduler of others has done much work: what the monitor says, by party and clause."""

    date: str
    njobs: int
    nsuccessful: int
    seconds: float
    broken: dict[str, dict[str, Broken]] = {}


class Speeds(msgspec.Struct):
    """The rates of each scheduler, in jobs a second, by so many jobs; what the machine was."""

    machine: str
    jobs: int
    rates: dict[str, list[float]]


class Results(msgspec.Struct):
    """All that the page says."""

    versions: dict[str, str] = {}
    testees: dict[str, Examined] = {}
    loads: dict[str, Loaded] = {}
    speeds: Speeds | None = None


def read() -> Results:
    """Return what was found last."""
    if not FILE.exists():
        return Results()
    return msgspec.json.decode(FILE.read_bytes(), type=Results)


def write(results: Results) -> None:
    """Keep what was found."""
    encoded = msgspec.json.encode(results, order="deterministic")
    FILE.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def machine() -> str:
    """Return what else the machine has to do."""
    busy = os.getloadavg()[0]
    return f"{os.cpu_count()} processors, load {busy:.1f} at the beginning, {today()}"


def versions() -> dict[str, str]:
    """Return the versions of what is examined."""
    return {
        "flux-trio": __version__,
        "flux-core": _said_by("flux", "version").partition("\n")[0].split()[-1],
        **_fluxion(),
    }


def _fluxion() -> dict[str, str]:
    """Return the version of fluxion, by git where its modules are built in a checkout."""
    places = os.environ.get(FLUXION_MODULES, "")
    if not places:
        return {}
    place = places.partition(":")[0]
    found = _said_by("git", "-C", place, "log", "-1", "--format=%h of %cs")
    return {"fluxion": found.strip() or "unknown"}


def _said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout
