"""Violations of RFC 28 by the resource service, in what it says."""

from __future__ import annotations

import functools

from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support.judged import REMOVED, Trace, drop, edit_payload, find
from tests.support.planted import Planted

PLANTED = Planted()


def told(trace: Trace, type_: str, nth: int = 0) -> Record:
    """A response of a type."""
    return find(trace, topics.RESOURCE_ACQUIRE, "response", type=type_, nth=nth)


first_acquire = functools.partial(find, topic=topics.RESOURCE_ACQUIRE, type_="request")
first_grow = functools.partial(told, type_="grow")
second_grow = functools.partial(told, type_="grow", nth=2)
first_shrink = functools.partial(told, type_="shrink")
first_online = functools.partial(told, type_="online")
first_offline = functools.partial(told, type_="offline")

PLANTED.bad_key("28.acquire.1", "two_groups", first_acquire, "group", [REMOVED, 1])
PLANTED.bad_key("28.acquire.5", "drains", first_offline, "type", [REMOVED, "down"])
PLANTED.bad_key("28.grow.2", "excludes", second_grow, "resources", [REMOVED, {"version": 1}])
PLANTED.bad_key("28.grow.3", "excludes", second_grow, "online", [REMOVED, ["1"]])
PLANTED.bad_key("28.grow.4", "excludes", second_grow, "offline", [REMOVED, None])
PLANTED.bad_key("28.grow.5", "excludes", second_grow, "online", [""])
PLANTED.bad_key("28.background.5", "excludes", second_grow, "offline", ["9"])
PLANTED.bad_key("28.background.4", "excludes", second_grow, "offline", ["1"])
PLANTED.bad_key("28.shrink.1", "excludes", first_shrink, "targets", [REMOVED, "", "0,9", 0])
PLANTED.bad_key("28.online.1", "drains", first_online, "targets", [REMOVED, "", "0,9", ["0"]])
PLANTED.bad_key("28.offline.1", "drains", first_offline, "targets", [REMOVED, "", "0,9", "x"])
PLANTED.bad_key("28.background.3", "drains", first_offline, "core", ["0"])
PLANTED.bad_key("28.offline.6", "drains", first_offline, "type", ["shrink"])


@PLANTED.violation("28.acquire.2", "excludes")
def an_excluded_target_is_in_default(trace: Trace) -> Trace:
    grow = told(trace, "grow", 1)  # of the scheduler that was reloaded
    execution = grow.message.payload["resources"]["execution"]
    execution = {
        **execution,
        "R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}],
        "nodelist": ["node[0-1]"],
    }
    resources = {"version": 1, "execution": execution}
    return edit_payload(trace, grow, resources=resources, online="0-1")


@PLANTED.violation("28.background.7", "excludes")
def an_exclusion_is_not_told(trace: Trace) -> Trace:
    return drop(trace, told(trace, "shrink", -1))


@PLANTED.violation("28.criteria.2", "drains")
def the_last_online_is_not_told(trace: Trace) -> Trace:
    return drop(trace, told(trace, "online", -1))


@PLANTED.violation("28.background.7", "failing_nodes")
def a_node_that_goes_down_is_not_told(trace: Trace) -> Trace:
    """The trace ends before the other one goes down, too."""
    second = find(trace, topics.RESOURCE_DOWN, "request", targets="0")
    return drop(trace[: second.n - 1], told(trace, "offline"))


@PLANTED.violation("28.criteria.4", "drains")
def a_drain_is_not_told(trace: Trace) -> Trace:
    """The trace ends before the node comes back."""
    offline = told(trace, "offline", -1)
    back = find(trace, topics.RESOURCE_UNDRAIN, "request")
    return drop(trace[: back.n - 1], offline)


@PLANTED.violation("28.criteria.5", "excludes")
def an_excluded_target_is_not_taken_back(trace: Trace) -> Trace:
    return drop(trace, told(trace, "shrink", -1))
