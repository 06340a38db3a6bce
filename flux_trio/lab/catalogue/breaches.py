"""How a party breaks a chosen clause: a table from the clause to a lie in a message of the party.

A row is of a clause that binds the scheduler, the execution service or the resource service, and
that shows in a message which this party sends. Clauses that say nearly the same are broken too, and
so may be others, since the rest of what the party does no longer fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flux_trio.cores.turns import Outgoing
from flux_trio.lab.catalogue.base import LieInPlaceOf
from flux_trio.lab.catalogue.lies import (
    AlsoAsked,
    AlsoSaid,
    ChangedKey,
    ErrorAnswer,
    GrantOverlap,
    NoObject,
    NotStreaming,
    RemovedKey,
    Repeated,
    StrayAnswer,
    Withheld,
    WrongType,
)
from flux_trio.lab.catalogue.places import SentMessage
from flux_trio.messages import topics


@dataclass(frozen=True)
class Breach:
    """How a clause is broken: by `lie`, in place of a message whose payload has the keys and values
    in `has`.

    `needs` says in words what else has to be so for the lie to break the clause.
    """

    lie: LieInPlaceOf
    has: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    def fits(self, message: Outgoing) -> bool:
        """Return whether a payload has the keys and values in `has`."""
        found = message.payload if isinstance(message.payload, dict) else {}
        return self.has.items() <= found.items()


# --- messages of the scheduler

ANSWER: Final = SentMessage(topics.SCHED_ALLOC, type="response", party="sched")
SUCCESS: Final = {"type": 0}
ANNOTATE: Final = {"type": 1}
DENY: Final = {"type": 2}
CANCEL: Final = {"type": 3}
FREED: Final = SentMessage(topics.SCHED_FREE, type="response", party="sched")
PROLONGED: Final = SentMessage(topics.SCHED_EXPIRATION, type="response", party="sched")
HELLO: Final = SentMessage(topics.SCHED_HELLO, party="sched")
READY: Final = SentMessage(topics.SCHED_READY, party="sched")
ACQUIRE: Final = SentMessage(topics.RESOURCE_ACQUIRE, party="sched")
RELEASE: Final = SentMessage(topics.RESOURCE_RELEASE, party="sched")
RAISED: Final = SentMessage(topics.JOB_RAISE, party="sched")
STORED: Final = SentMessage(topics.KVS_COMMIT, party="sched")

TIMEOUT: Final = {"id": 1, "type": "timeout", "severity": 0, "note": "time is over"}
RELEASED_0: Final = {"group": "default", "targets": "0"}
EARLY_READY: Final = AlsoAsked(HELLO, topics.SCHED_READY, {"mode": "unlimited"})

# --- of the others

TOLD: Final = SentMessage("job-exec.start", type="response", party="job-exec")
START: Final = {"type": "start"}
EXCEPTION: Final = {"type": "exception"}
FINISH: Final = {"type": "finish"}
RELEASES: Final = {"type": "release"}
EXEC_HELLO: Final = SentMessage(topics.EXEC_HELLO, party="job-exec")

GIVEN: Final = SentMessage(topics.RESOURCE_ACQUIRE, type="response", party="resource")
GROW: Final = {"type": "grow"}
SHRINK: Final = {"type": "shrink"}
ONLINE: Final = {"type": "online"}
OFFLINE: Final = {"type": "offline"}
TAKEN_BACK: Final = SentMessage(topics.RESOURCE_RELEASE, type="response", party="resource")

NO_TARGET: Final = "99999"
"""A target that no world of a test has."""
LASTING: Final = "The nodes stay so, and no scheduler comes that acquires them anew."


def _in_answer(key: str, value: Any) -> Breach:
    """The annotations of a SUCCESS have `value` for `key`."""
    return Breach(ChangedKey(ANSWER, f"annotations.{key}", value), SUCCESS)


_ALLOCATION: Final = {
    "27.background.1": Breach(StrayAnswer(ANSWER)),
    "27.impl.5": Breach(RemovedKey(ANSWER, "id")),
    "27.impl.7": Breach(RemovedKey(FREED, "id")),
    "27.impl.10": Breach(ErrorAnswer(ANSWER)),
    "27.impl.11": Breach(ErrorAnswer(FREED)),
    "27.hello.1": Breach(AlsoAsked(ACQUIRE, topics.JOB_RAISE, TIMEOUT)),
    "27.hello.2": Breach(ChangedKey(HELLO, "partial-ok", True)),
    "27.hello.3": Breach(NotStreaming(HELLO)),
    "27.hello.12": Breach(
        GrantOverlap(STORED),
        needs="A job has core 0 of node 0 since before the scheduler said hello.",
    ),
    "27.hello.14": Breach(EARLY_READY),
    "27.ready.1": Breach(Withheld(READY)),
    "27.ready.2": Breach(EARLY_READY),
    "27.ready.3": Breach(NoObject(READY)),
    "27.ready.4": Breach(RemovedKey(READY, "mode")),
    "27.ready.5": Breach(ChangedKey(READY, "mode", "single")),
    "27.ready.9": Breach(ChangedKey(READY, "mode", "limited"), {"mode": "unlimited"}),
    "27.ready.10": Breach(ChangedKey(READY, "limit", 0), {"mode": "limited"}),
    "27.alloc.7": Breach(ChangedKey(ANSWER, "note", "the jobspec has no environment"), DENY),
    "27.alloc.9": Breach(ChangedKey(ANSWER, "id", "f1")),
    "27.alloc.10": Breach(WrongType(ANSWER)),
    "27.alloc.11": Breach(ChangedKey(ANSWER, "type", 3), DENY),
    "27.success.1": Breach(ChangedKey(STORED, "ops.0.1", "job.0000.0000.0000.0001.R")),
    "27.success.2": Breach(ChangedKey(ANSWER, "annotations", "rank0/core0"), SUCCESS),
    "27.success.8": Breach(Repeated(ANSWER), SUCCESS),
    "27.annotate.1": Breach(AlsoSaid(ANSWER, ANNOTATE | {"annotations": {}}), SUCCESS),
    "27.annotate.2": Breach(RemovedKey(ANSWER, "annotations"), ANNOTATE),
    "27.annotate.10": _in_answer("sched", "t_estimate"),
    "27.annotate.11": _in_answer("sched.t_estimate", "soon"),
    "27.annotate.12": _in_answer("sched.reason_pending", {}),
    "27.annotate.13": _in_answer("sched.resource_summary", ["rank0"]),
    "27.annotate.14": _in_answer("sched.queue", 1),
    "27.deny.1": Breach(Withheld(ANSWER), DENY),
    "27.deny.2": Breach(ChangedKey(ANSWER, "note", 5), DENY),
    "27.deny.6": Breach(Repeated(ANSWER), DENY),
    "27.alloccancel.1": Breach(Withheld(ANSWER), CANCEL),
    "27.alloccancel.2": Breach(ChangedKey(ANSWER, "note", "as you wish"), CANCEL),
    "27.alloccancel.4": Breach(Repeated(ANSWER), CANCEL, "The job waits on, or waits again."),
    "27.cancel.4": Breach(AlsoSaid(ANSWER, topic=topics.SCHED_CANCEL), CANCEL),
    "27.cancel.5": Breach(Withheld(ANSWER), CANCEL),
    "27.cancel.8": Breach(
        ChangedKey(ANSWER, "type", 2), SUCCESS, "The job's request was canceled before."
    ),
    "27.prioritize.8": Breach(AlsoSaid(ANSWER, topic=topics.SCHED_PRIORITIZE)),
    "27.expiration.5": Breach(ChangedKey(PROLONGED, "expiration", 0)),
    "27.expiration.9": Breach(Withheld(PROLONGED)),
    "27.expiration.13": Breach(AlsoAsked(ANSWER, topics.JOB_RAISE, TIMEOUT), SUCCESS),
    "27.free.6": Breach(Withheld(FREED)),
    "27.free.7": Breach(ChangedKey(FREED, "id", "f1")),
}

_ACQUISITION: Final = {
    "28.acquire.1": Breach(RemovedKey(ACQUIRE, "group")),
    "28.criteria.3": Breach(
        ChangedKey(ANSWER, "type", 2),
        SUCCESS,
        "A node is offline, and the job would fit on one node.",
    ),
    "28.shrink.3": Breach(GrantOverlap(STORED), needs="Node 0 is excluded."),
    "28.shrink.4": Breach(Withheld(RAISED)),
    "28.shrink.5": Breach(ErrorAnswer(FREED), needs="The job has a node that is excluded."),
    "28.shrink.6": Breach(
        AlsoAsked(ANSWER, topics.RESOURCE_RELEASE, RELEASED_0),
        SUCCESS,
        "A job has a core of node 0.",
    ),
    "28.shrink.7": Breach(
        Withheld(ANSWER), DENY, "The job waited when the nodes were excluded that it needs."
    ),
    "28.offline.3": Breach(GrantOverlap(STORED), needs="Node 0 is offline."),
    "28.release.1": Breach(Withheld(RELEASE)),
    "28.release.2": Breach(RemovedKey(RELEASE, "group")),
    "28.release.3": Breach(RemovedKey(RELEASE, "targets")),
    "28.release.5": Breach(ChangedKey(RELEASE, "group", "exclude")),
    "28.release.6": Breach(ChangedKey(RELEASE, "targets", f"0-{NO_TARGET}")),
    "28.release.7": Breach(
        AlsoAsked(FREED, topics.RESOURCE_RELEASE, RELEASED_0), needs="Node 0 is not excluded."
    ),
    "28.background.3": Breach(ChangedKey(GIVEN, "core", "0"), OFFLINE),
    "28.background.4": Breach(ChangedKey(GIVEN, "offline", "0"), GROW, "Node 0 is online."),
    "28.background.5": Breach(ChangedKey(GIVEN, "offline", NO_TARGET), GROW),
    "28.background.6": Breach(NotStreaming(GIVEN)),
    "28.background.7": Breach(Withheld(GIVEN), OFFLINE, LASTING),
    "28.criteria.1": Breach(Withheld(GIVEN), GROW, LASTING),
    "28.criteria.2": Breach(Withheld(GIVEN), ONLINE, LASTING),
    "28.criteria.4": Breach(Withheld(GIVEN), OFFLINE, f"A node is drained. {LASTING}"),
    "28.criteria.5": Breach(Withheld(GIVEN), SHRINK, LASTING),
    "28.acquire.3": Breach(ErrorAnswer(GIVEN), GROW),
    "28.acquire.5": Breach(ChangedKey(GIVEN, "type", "up")),
    "28.grow.2": Breach(RemovedKey(GIVEN, "resources"), GROW),
    "28.grow.3": Breach(RemovedKey(GIVEN, "online"), GROW),
    "28.grow.4": Breach(RemovedKey(GIVEN, "offline"), GROW),
    "28.grow.5": Breach(ChangedKey(GIVEN, "online", ""), GROW, "A node is online."),
    "28.shrink.1": Breach(ChangedKey(GIVEN, "targets", NO_TARGET), SHRINK),
    "28.online.1": Breach(ChangedKey(GIVEN, "targets", NO_TARGET), ONLINE),
    "28.offline.1": Breach(ChangedKey(GIVEN, "targets", NO_TARGET), OFFLINE),
    "28.offline.6": Breach(ChangedKey(GIVEN, "type", "shrink"), OFFLINE),
    "28.release.4": Breach(ErrorAnswer(TAKEN_BACK)),
    "28.release.8": Breach(ChangedKey(TAKEN_BACK, "targets", "0")),
    "28.disconnect.3": Breach(ErrorAnswer(GIVEN, 16), GROW),
}

_EXECUTION: Final = {
    "32.background.1": Breach(StrayAnswer(TOLD), START),
    "32.criteria.5": Breach(Withheld(TOLD), FINISH),
    "32.impl.3": Breach(RemovedKey(TOLD, "id")),
    "32.impl.5": Breach(ErrorAnswer(TOLD)),
    "32.hello.3": Breach(NoObject(EXEC_HELLO)),
    "32.hello.4": Breach(RemovedKey(EXEC_HELLO, "service")),
    "32.start.3": Breach(StrayAnswer(TOLD), FINISH),
    "32.start.10": Breach(
        Withheld(TOLD), FINISH, "The job was started again with `reattach`, after a reload."
    ),
    "32.start.12": Breach(NoObject(TOLD)),
    "32.start.13": Breach(ChangedKey(TOLD, "id", "1")),
    "32.start.14": Breach(ChangedKey(TOLD, "type", 1)),
    "32.start.15": Breach(RemovedKey(TOLD, "data")),
    "32.start.16": Breach(ChangedKey(TOLD, "type", "started"), START),
    "32.start.18": Breach(ChangedKey(TOLD, "data.pid", 7), START),
    "32.start.20": Breach(ChangedKey(TOLD, "data.ranks", "all"), RELEASES),
    "32.start.21": Breach(ChangedKey(TOLD, "data.final", False), RELEASES),
    "32.start.25": Breach(ChangedKey(TOLD, "data.severity", 8), EXCEPTION),
    "32.start.26": Breach(RemovedKey(TOLD, "data.type"), EXCEPTION),
    "32.start.27": Breach(ChangedKey(TOLD, "data.note", 5), EXCEPTION),
    "32.start.31": Breach(ChangedKey(TOLD, "data.status", "0"), FINISH),
    "32.start.35": Breach(Withheld(TOLD), START),
    "32.start.36": Breach(Withheld(TOLD), RELEASES),
    "32.start.37": Breach(Repeated(TOLD), RELEASES),
}

# --- an R that the scheduler stores

_R: Final = "ops.0.2"
_EXECUTION_OF_R: Final = f"{_R}.execution"
_ENTRY: Final = f"{_EXECUTION_OF_R}.R_lite.0"
_TWICE: Final = [{"rank": "0", "children": {"core": "0"}}] * 2


def _without(key: str) -> Breach:
    return Breach(RemovedKey(STORED, key))


def _with(key: str, value: Any) -> Breach:
    return Breach(ChangedKey(STORED, key, value))


_RESOURCE_SETS: Final = {
    "14.vertex.1": Breach(GrantOverlap(STORED), needs="The job asks for more than one node."),
    "14.attributes.2": Breach(
        ChangedKey(STORED, f"{_EXECUTION_OF_R}.expiration", 0.0), needs="The job has a time limit."
    ),
    "20.overview.1": _with(f"{_ENTRY}.children.memory", 4),
    "20.overview.3": _with(f"{_ENTRY}.children.core", NO_TARGET),
    "20.format.1": _with(_R, "[]"),
    "20.format.2": _without(f"{_R}.version"),
    "20.format.3": _without(_EXECUTION_OF_R),
    "20.format.4": _with(f"{_EXECUTION_OF_R}.R_lite", []),
    "20.format.6": _with(f"{_ENTRY}.rank", 0),
    "20.format.7": _without(f"{_ENTRY}.children"),
    "20.format.8": _without(f"{_ENTRY}.children.core"),
    "20.format.9": _with(f"{_ENTRY}.children.gpu", ""),
    "20.format.10": _with(f"{_EXECUTION_OF_R}.R_lite", _TWICE),
    "20.nodelist.1": _without(f"{_EXECUTION_OF_R}.nodelist"),
    "20.nodelist.2": _with(f"{_EXECUTION_OF_R}.nodelist", ["node[0"]),
    "20.nodelist.3": _with(f"{_EXECUTION_OF_R}.nodelist", []),
    "20.nslots.1": _with(f"{_EXECUTION_OF_R}.nslots", "1"),
    "20.nslots.2": Breach(ChangedKey(GIVEN, "resources.execution.nslots", 4), GROW),
    "20.nslots.3": Breach(
        RemovedKey(STORED, f"{_EXECUTION_OF_R}.nslots"), needs="It is not the scheduler's first R."
    ),
    "20.nslots.4": _with(f"{_EXECUTION_OF_R}.nslots", 0),
    "20.properties.1": _with(f"{_EXECUTION_OF_R}.properties", {"big": ["0"]}),
    "20.properties.2": _with(f"{_EXECUTION_OF_R}.properties", {"big": "node0"}),
    "20.properties.5": _with(f"{_EXECUTION_OF_R}.properties", {"a|b": "0"}),
    "20.starttime.1": _with(f"{_EXECUTION_OF_R}.starttime", "now"),
    "20.starttime.3": _with(f"{_EXECUTION_OF_R}.starttime", 1e12),
    "20.expiration.1": _with(f"{_EXECUTION_OF_R}.expiration", "never"),
    "20.expiration.4": _with(f"{_EXECUTION_OF_R}.expiration", 60.0),
    "20.expiration.5": _with(f"{_EXECUTION_OF_R}.expiration", 1.0),
    "20.scheduling.1": _with(f"{_R}.scheduling", []),
    "20.scheduling.2": _with(f"{_R}.scheduling", {"writer": "//here"}),
    "20.scheduling.7": _with(f"{_R}.scheduling", {"rack": {"rank": "0"}}),
    "25.resources.7": Breach(
        ChangedKey(STORED, f"{_ENTRY}.children.core", "0-1"),
        needs="A node has two cores, and the job asks for one.",
    ),
}

BREACHES: Final[Mapping[str, Breach]] = _RESOURCE_SETS | _ALLOCATION | _ACQUISITION | _EXECUTION
"""By clause: how a party breaks it."""

_ENDED: Final = "A party breaks it after an error; then the parties of a world send nothing more."
_OTHERS: Final = "It allows or shows something, and is broken by who does not accept it."

UNBREAKABLE: Final[Mapping[str, str]] = {
    "14.submit.4": "It is broken by what the execution service does with processes.",
    "14.vertex.3": "The jobs of a plan ask for no exclusive nodes.",
    "14.vertex.6": "The jobs of a plan have slots of one core.",
    "14.attributes.3": "A plan has neither a default duration nor an end of the instance.",
    "20.goals.3": "The key of the R depends on the job, and a lie has fixed values.",
    "20.nodelist.4": _OTHERS,
    "20.overview.6": "It is broken by what the execution service does with processes.",
    "20.properties.3": _OTHERS,
    "20.properties.4": "No text of a plan is anything else than UTF-8.",
    "20.scheduling.6": "The inventory of a world has no key `scheduling`.",
    "27.background.2": "It is broken by the name that the scheduler registers.",
    "27.hello.17": _ENDED,
    "27.ready.11": _OTHERS,
    "27.ready.15": _ENDED,
    "27.success.5": _OTHERS,
    "27.cancel.6": "The scheduler says nothing to such a cancel, so that no lie has a place.",
    "27.prioritize.7": "The scheduler says nothing to `sched.prioritize`; 27.prioritize.8 is near.",
    "27.expiration.6": "The job manager asks for no such job.",
    "27.expiration.8": "The instance of a world has no end.",
    "27.exceptions.4": "It depends on what comes first, a job's exception or its `sched.cancel`.",
    "28.background.1": "It needs a second group, or a second scheduler that is served.",
    "28.impl.1": "Without an acquire the scheduler gets no resources that it could allocate.",
    "28.impl.2": "The scheduler of a world acquires one group.",
    "28.acquire.2": "The R of an inventory depends on the world, and a lie has fixed values.",
    "28.grow.7": "No job is asked for before the first grow.",
    "28.offline.4": "The scheduler says nothing when a node goes, so that no lie has a place.",
    "28.offline.5": "It is broken by what the execution service does with processes.",
    "28.error.2": _ENDED,
    "28.error.3": "The scheduler of a world sends no wrong acquire, unless it lies itself.",
    "28.release.10": _ENDED,
    "28.disconnect.1": "The broker sends the disconnect.",
    "28.disconnect.2": "The resource service says nothing then, so that no lie has a place.",
    "28.disconnect.4": "It is broken by what becomes of jobs.",
    "28.disconnect.5": "The job manager asks nothing of a scheduler that has not said hello.",
    "32.background.4": "The job manager breaks it, in a start request.",
    "32.start.32": "The jobs of a world have no shells, and no log says how each has ended.",
    "32.criteria.3": "It takes two messages: withhold `start` and `finish` of a job.",
    "32.criteria.4": "The event of the job manager shows it.",
    "32.impl.8": "The job manager breaks it, in its answer.",
    "32.hello.1": "The job manager starts no job at a service that has not said hello.",
    "32.hello.5": _OTHERS,
    "32.hello.9": _ENDED,
    "32.start.17": "The event of the job manager shows it.",
}
"""By clause that the judge can find broken, but for which there is no lie: the reason why there is
none."""
