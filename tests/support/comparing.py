"""How an eventlog of flux-core is held against ours: what may differ, each with its reason, once.

Programs do not run here: a job pretends to do what its command does (`BEHAVIOUR`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_trio.config import Config, ExecConfig, read_config
from flux_trio.formats import Idset, ResourceSet
from flux_trio.instance import Surroundings
from flux_trio.store.stores import MemoryStore
from tests.support.recordings import Player, Recording

Entry = tuple[str, dict[str, Any]]

EPOCH = 1_000_000.0
SIMULATED = Config(exec=ExecConfig(simulate=True))

# What each command of the scenarios does when it really runs: seconds, and the wait(2) status.
BEHAVIOUR: dict[tuple[str, ...], tuple[float, int]] = {
    ("true",): (0.02, 0),
    ("sh", "-c", "exit 3"): (0.02, 3 << 8),
    ("sleep", "60"): (60.0, 0),
    ("sleep", "30"): (30.0, 0),
    ("sh", "-c", "kill -SEGV $$"): (0.02, 11),
}


def pretend(jobspec: dict[str, Any]) -> dict[str, Any]:
    """The jobspec with the test attributes that make it behave as its command would."""
    system = jobspec["attributes"]["system"]
    if "exec" in system:
        return jobspec
    seconds, status = BEHAVIOUR[tuple(jobspec["tasks"][0]["command"])]
    test = {"run_duration": seconds, "wait_status": status}
    attributes = {"system": system | {"exec": {"test": test}}}
    return jobspec | {"attributes": attributes}


# --- what may differ


def ranks_of_release(entry: Entry) -> Entry:
    """0.88's own exec service writes "all"; RFC 32 has an idset (editions: release)."""
    name, context = entry
    if name != "release" or not context["final"]:
        return entry
    return name, {"final": True}


def wait_status(entry: Entry) -> Entry:
    """0.88 writes a signal as exit code 128+n (readings: finish status)."""
    name, context = entry
    if name != "finish":
        return entry
    code = context["status"] >> 8
    return name, {"status": code - 128 if code > 128 else context["status"]}


def words_of_a_denial(entry: Entry) -> Entry:
    """Why a request can never be granted is said in each scheduler's own words."""
    name, context = entry
    if name != "exception" or context["type"] != "alloc":
        return entry
    return name, context | {"note": bool(context["note"])}


def time_of_expiration(entry: Entry) -> Entry:
    """Recorded times are relative, and ours are whole seconds (RFC 21, Resource-update Event)."""
    return (entry[0], {}) if entry[0] == "resource-update" else entry


def time_of_begin(entry: Entry) -> Entry:
    """Recorded times are relative."""
    description = str(entry[1].get("description", ""))
    return (entry[0], {}) if description.startswith("begin-time=") else entry


def nodes_of_choice(entry: Entry) -> Entry:
    """Of several nodes that will do, sched-simple takes the least used, ours the first."""
    name, context = entry
    if name != "alloc":
        return entry
    summary = context["annotations"]["sched"]["resource_summary"]
    parts = [part.partition("/core") for part in summary.split()]
    ncores = [len(Idset.parse(cores)) * len(Idset.parse(rank[4:])) for rank, _, cores in parts]
    return name, {"ncores": sum(ncores)}


PERMITTED: list[Callable[[Entry], Entry]] = [
    ranks_of_release,
    wait_status,
    words_of_a_denial,
    time_of_expiration,
    time_of_begin,
]


def is_their_own(entry: Entry) -> bool:
    """What only 0.88 logs: debug events, and that `after` is deprecated, which RFC 26 does not say.

    Debug events are optional (RFC 21, Debug Event), and ours posts none.
    """
    return entry[0].startswith("debug.") or "is deprecated" in str(entry[1].get("note", ""))


# What may differ in some scenarios only: where there is a choice of nodes.
PERMITTED_IN: dict[str, list[Callable[[Entry], Entry]]] = {"22": [nodes_of_choice]}


def comparable(events: list[dict[str, Any]], scenario: str = "") -> list[Entry]:
    """Names and contexts of an eventlog after what may differ has been made the same."""
    entries = [(event["name"], event.get("context", {})) for event in events]
    entries = [entry for entry in entries if not is_their_own(entry)]
    for permit in (*PERMITTED, *PERMITTED_IN.get(scenario, ())):
        entries = [permit(entry) for entry in entries]
    return entries


# --- the comparison


def our_config(theirs: dict[str, Any]) -> Config:
    """The recorded configuration as RFC 33 has it."""
    queues = {
        name: table
        | {"started": False}
        | ({"requires": {"properties": table["requires"]}} if "requires" in table else {})
        for name, table in theirs.get("queues", {}).items()
    }
    policy = theirs.get("policy", {})
    return read_config({"exec": {"simulate": True}, "policy": policy, "queues": queues})


def given_of(recording: Recording, store: MemoryStore | None = None) -> Surroundings:
    inventory = ResourceSet.parse(recording.resources)
    kept = MemoryStore() if store is None else store
    return Surroundings(inventory=inventory, userid=0, epoch=EPOCH, store=lambda: kept)


async def compare(player: Player, jobs: list[Any], but: frozenset[str] = frozenset()) -> None:
    scenario = player.recording.name[:2]
    compared = [job for job in jobs if job.label not in but]
    assert compared
    for job in compared:
        ours = comparable(await player.eventlog(job.label), scenario)
        theirs = comparable(player.with_our_names(job.eventlog), scenario)
        assert ours == theirs, job.label
