"""RFC 20, R Format: properties, times and scheduling, of each resource set that a trace shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from flux_trio.formats import Idset
from flux_trio.judge.checks.r_checks import Found, each_r, optional, wanted
from flux_trio.judge.checks.shapes import idset_of, part
from flux_trio.judge.engine.rule import Rules
from flux_trio.judge.views.resource_sets import execution, hosts_of, number_of, targets_of

RULES: Final = Rules()

# --- properties

_ILLEGAL: Final = frozenset("!&'\"^`|()")


def _names(r: Any) -> list[str]:
    return list(part(execution(r), "properties", dict))


@each_r(RULES, "20.properties.1")
def properties_are_idsets(r: Any, _t: float) -> Found:
    found = execution(r).get("properties")
    if found is None:
        return None
    fits = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return fits or f"execution.properties: {wanted('an object of idset strings', found)}"


@each_r(RULES, "20.properties.2")
def properties_are_of_targets(r: Any, _t: float) -> Found:
    texts, targets = part(execution(r), "properties", dict), targets_of(r) or Idset()
    for name, text in texts.items():
        ids = idset_of(text)
        if isinstance(text, str) and (ids is None or not ids <= targets):
            expected = f"an idset of the targets {targets}"
            return f"execution.properties: {name}: {wanted(expected, text)}"
    return True if texts else None


@each_r(RULES, "20.properties.4")
def property_names_are_utf8(r: Any, _t: float) -> Found:
    for name in _names(r):
        try:
            name.encode()
        except UnicodeEncodeError:
            return f"execution.properties: {wanted('a name that is valid UTF-8', name)}"
    return True if _names(r) else None


@each_r(RULES, "20.properties.5")
def property_names_are_legal(r: Any, _t: float) -> Found:
    for name in _names(r):
        if illegal := _ILLEGAL.intersection(name):
            return f"execution.properties: {name!r} must not contain {' '.join(sorted(illegal))}"
    return True if _names(r) else None


# --- times

_EARLY_S: Final = 1e8  # 1973: a time of a trace before it counts from another beginning


def _since_the_epoch(r: Any, key: str, t: float, earliest: float) -> Found:
    value = number_of(r, key)
    if value == 0:
        return None
    latest = 100 * max(t, _EARLY_S)  # milliseconds are a thousand times too many
    fits = earliest <= value <= latest
    return fits or f"execution.{key}: {wanted('seconds since the Unix epoch', value)}"


@each_r(RULES, "20.starttime.1")
def starttime_is_a_number(r: Any, _t: float) -> Found:
    return optional(execution(r), "starttime", (int, float), "a number")


@each_r(RULES, "20.starttime.3")
def starttime_is_since_the_epoch(r: Any, t: float) -> Found:
    return _since_the_epoch(r, "starttime", t, 0.0)


@each_r(RULES, "20.expiration.1")
def expiration_is_a_number(r: Any, _t: float) -> Found:
    return optional(execution(r), "expiration", (int, float), "a number")


@each_r(RULES, "20.expiration.4")
def expiration_is_since_the_epoch(r: Any, t: float) -> Found:
    """The expiration is in seconds since the Unix epoch. One that is so early that it looks like a
    duration is right only after an early starttime.
    """
    start = number_of(r, "starttime")
    return _since_the_epoch(r, "expiration", t, min(start or _EARLY_S, t, _EARLY_S))


@each_r(RULES, "20.expiration.5")
def expiration_is_after_starttime(r: Any, _t: float) -> Found:
    start, end = number_of(r, "starttime"), number_of(r, "expiration")
    if not start or not end:
        return None
    return start < end or f"execution.expiration: {wanted(f'more than starttime {start}', end)}"


# --- scheduling

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(:.*)?", re.DOTALL)
_RANK_KEYS: Final = {"rank", "ranks", "target", "targets"}


def _scheduling(r: Any) -> dict[str, Any]:
    found: dict[str, Any] = part(r, "scheduling", dict)
    return found


@each_r(RULES, "20.scheduling.1")
def scheduling_is_an_object(r: Any, _t: float) -> Found:
    return optional(r, "scheduling", dict, "an object")


@each_r(RULES, "20.scheduling.2")
def writer_is_a_uri(r: Any, _t: float) -> Found:
    """The writer is a URI. A text without a colon counts as a scheme alone, as `fluxion` in the
    RFC's own example.
    """
    if "writer" not in _scheduling(r):
        return None
    writer = _scheduling(r)["writer"]
    fits = isinstance(writer, str) and _SCHEME.fullmatch(writer) is not None
    return fits or f"scheduling.writer: {wanted('a URI with a scheme', writer)}"


def _keys(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        yield from found
    for each in found.values() if isinstance(found, dict) else found:
        if isinstance(each, (dict, list)):
            yield from _keys(each)


@each_r(RULES, "20.scheduling.7")
def scheduling_names_hosts(r: Any, _t: float) -> Found:
    """The scheduling key names hosts. It may name ranks as well, as long as the hosts identify
    them.
    """
    found = _scheduling(r)
    if not found:
        return None
    text = json.dumps(found)
    if any(host in text for host in hosts_of(r) or []):
        return True
    used = sorted(_RANK_KEYS.intersection(_keys(found)))
    return f"scheduling: expected hostnames, got only {', '.join(used)}" if used else None
