"""RFC 28: the resource service's responses to acquire, judged from its own side.

The rules check types and keys of the responses, their agreement with earlier responses, and that
changes by the operator are sent. Left out: the examples, which are formats (tests read them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.r_checks import problem_of
from flux_trio.judge.checks.shapes import IDSET, STRING, idset_of, key_problem, one_of, require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, payload, sent
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.acquiring import NONE, change_of
from flux_trio.judge.views.administered import ADMINISTERED, Administered, administered
from flux_trio.judge.views.calls import client_of
from flux_trio.judge.views.resource_sets import targets_of
from flux_trio.judge.views.resources import AS_SENT, Acquired
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ACQUIRE: Final = sent("request", topics.RESOURCE_ACQUIRE)
TELL: Final = sent("response", topics.RESOURCE_ACQUIRE)
GROUP: Final = "default"


def is_of(type_: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a response to resource.acquire has this type."""
    return lambda content: content.get("type") == type_


def as_sent(record: Record, seen: Seen) -> Acquired | None:
    """Return the resources that the receiver of a response has acquired by the earlier responses
    that were sent to it, received or not.
    """
    found: Acquired | None = seen.at(AS_SENT, client_of(record) or record.peer)
    return found


def _is(record: Record, type_: str) -> bool:
    return not errnum(record) and payload(record).get("type") == type_


def _targets(record: Record, key: str = "targets") -> Idset:
    return idset_of(payload(record).get(key)) or NONE


# --- keys


@RULES.judge("28.acquire.1", ACQUIRE)
def acquire_names_a_group(record: Record, _seen: Seen) -> Finding:
    """The payload is an object, and has the key group, a string."""
    found = getattr(record.message, "payload", None)
    if not isinstance(found, dict):
        return Broken(f"resource.acquire request: expected an object, got {found!r:.80}")
    problem = key_problem(found, "group", STRING)
    return Broken(f"resource.acquire request: {problem}") if problem else True


require_key(
    RULES, "28.acquire.5", TELL, key="type", shape=one_of("grow", "shrink", "online", "offline")
)
require_key(RULES, "28.grow.3", TELL, key="online", shape=IDSET, when=is_of("grow"))
require_key(RULES, "28.grow.4", TELL, key="offline", shape=IDSET, when=is_of("grow"))


@RULES.judge("28.grow.2", TELL)
def grow_has_valid_resources(record: Record, _seen: Seen) -> Finding:
    if not _is(record, "grow"):
        return None
    if "resources" not in payload(record):
        return Broken("grow: expected key resources, an R (RFC 20); it is missing")
    problem = problem_of(payload(record)["resources"], record.t)
    return Broken(f"grow: resources: {problem}") if problem else True


@RULES.judge("28.grow.5", TELL)
def grow_says_of_each_target_whether_it_is_up(record: Record, _seen: Seen) -> Finding:
    if not _is(record, "grow"):
        return None
    if not {"online", "offline"} <= payload(record).keys():
        return None
    targets = targets_of(payload(record).get("resources")) or NONE
    online, offline = _targets(record, "online"), _targets(record, "offline")
    if both := online & offline:
        return Broken(f"grow: targets {both} are in online and in offline")
    if unsaid := targets - online - offline:
        return Broken(f"grow: targets {unsaid} are in resources, but not in online or offline")
    return True


@RULES.judge("28.background.5", TELL)
def targets_are_the_ranks_of_r_lite(record: Record, _seen: Seen) -> Finding:
    change = change_of(payload(record))
    if errnum(record) or change.resources is None:
        return None
    targets = targets_of(change.resources) or NONE
    if others := (change.up | change.down | _targets(record, "offline")) - targets:
        text = f"targets {others} are not among the ranks of resources, {targets}"
        return Broken(f"resource.acquire: {text}")
    return True


def _changes(clause: str, type_: str, before: Callable[[Acquired], Idset], what: str) -> None:
    """`clause`: a response of the type has targets, which are among those that are `what`."""

    @RULES.judge(clause, TELL, views=[AS_SENT])
    def judge(record: Record, seen: Seen) -> Finding:
        if not _is(record, type_):
            return None
        targets = idset_of(payload(record).get("targets"))
        if not targets:
            got = payload(record).get("targets")
            return Broken(f"{type_}: targets: expected an idset of some targets, got {got!r:.80}")
        had = as_sent(record, seen)
        if had is None:
            return None
        if others := targets - before(had):
            return Broken(f"{type_}: targets {others} are not {what}", (had.changed,))
        return True


_changes("28.shrink.1", "shrink", lambda had: had.granted, "acquired")
_changes("28.online.1", "online", lambda had: had.offline, "acquired and offline")
_changes("28.offline.1", "offline", lambda had: had.online, "acquired and online")


# --- whole targets

_PARTS: Final = {"children", "core", "cores", "gpu", "gpus", "R_lite"}


@RULES.judge("28.background.3", TELL)
def availability_is_by_target(record: Record, _seen: Seen) -> Finding:
    change = change_of(payload(record))
    if errnum(record) or change.resources is not None or not (change.up or change.down):
        return None
    parts = sorted(_PARTS.intersection(payload(record)))
    if parts:
        return Broken(f"expected whole targets alone, got also {', '.join(parts)}")
    return True


@RULES.judge("28.background.4", TELL)
def a_target_is_up_or_down_as_a_whole(record: Record, _seen: Seen) -> Finding:
    change = change_of(payload(record))
    if errnum(record) or not (change.up or change.down or change.resources):
        return None
    both = change.up & (change.down | _targets(record, "offline"))
    return Broken(f"targets {both} are up and down at once") if both else True


# --- groups


@RULES.judge("28.acquire.2", TELL, views=[AS_SENT, ADMINISTERED])
def default_is_what_is_in_no_group(record: Record, seen: Seen) -> Finding:
    had = as_sent(record, seen)
    if had is None or not _is(record, "grow") or had.groups != (GROUP,):
        return None
    excluded = administered(seen).excluded
    if others := (targets_of(payload(record).get("resources")) or NONE) & excluded:
        return Broken(
            f"grow of group {GROUP}: targets {others} are in group exclude", (administered(seen).n,)
        )
    return True if excluded else None


# --- what happens to targets is sent

HAS_ALL: Final = ((GROUP,), ("",))
"""The groups of a peer that has acquired all resources; the current edition has no groups."""

Due = Callable[[Administered, Acquired], Idset]


def _down(now: Administered, had: Acquired) -> Idset:
    return (now.down | _drained(now, had)) & had.online


def _up(now: Administered, had: Acquired) -> Idset:
    """Only if the service notes which targets are down for other reasons."""
    known = now.down | now.drained | now.unsure | now.excluded
    return had.offline - known if now.is_noted else NONE


def _drained(now: Administered, had: Acquired) -> Idset:
    return (now.drained - now.unsure) & had.online


def _excluded(now: Administered, had: Acquired) -> Idset:
    return now.excluded & had.granted


def excluded_and_up(now: Administered, had: Acquired) -> Idset:
    """Return what a peer knows as up and is excluded: in the current edition it is told of that."""
    return now.excluded & had.online


def tells(rules: Rules, clause: str, *due: tuple[str, Due]) -> None:
    """Add `clause` to the rules: a change of targets of which the holder of the default group was
    not told yet is sent to it, in a response of a type.
    """

    def debts(seen: Seen) -> list[Broken]:
        now = administered(seen)
        return [
            Broken(f"{peer} was not told {type_} of targets {targets}", (now.n,))
            for peer, had in seen.all(AS_SENT).items()
            if had.groups in HAS_ALL and had.grown
            for type_, missing in due
            if (targets := missing(now, had))
        ]

    @rules.judge(clause, TELL, views=[AS_SENT, ADMINISTERED], debts=debts)
    def judge(record: Record, seen: Seen) -> Finding:
        had = as_sent(record, seen)
        if had is None:
            return None
        now, change = administered(seen), change_of(payload(record))
        said = {"online": change.up, "offline": change.down, "shrink": change.shrunk}
        return any(said[type_] & missing(now, had) for type_, missing in due)


tells(RULES, "28.background.7", ("offline", _down), ("online", _up), ("shrink", _excluded))
tells(RULES, "28.criteria.2", ("offline", _down), ("online", _up))
tells(RULES, "28.criteria.4", ("offline", _drained))
tells(RULES, "28.criteria.5", ("shrink", _excluded))


@RULES.judge("28.offline.6", TELL, views=[AS_SENT, ADMINISTERED])
def crash_and_drain_are_offline(record: Record, seen: Seen) -> Finding:
    now, change = administered(seen), change_of(payload(record))
    gone = (now.down | (now.drained - now.unsure)) - now.excluded
    if shrunk := (change.shrunk - change.down) & gone:
        text = f"expected offline of targets {shrunk}, which are down or drained, got shrink"
        return Broken(text, (now.n,))
    return bool(change.down & gone)
