"""The resource core as a script: requests and the kvs's answers in, answers and commits out."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import ResourceCore, inventory_from_config
from flux_trio.cores.turns import Exit, Log, Note
from flux_trio.formats import Idset, ResourceSet, parse_eventlog
from flux_trio.messages import Errno, Flag, Request, Response, topics
from flux_trio.messages import Event as EventMessage
from tests.support.asking import asked, asked_by_guest, gone
from tests.support.resource_script import (
    DOWN,
    DRAINED,
    INVENTORY,
    UNDRAINED,
    UP,
    ResourceScript,
    acquire,
    down,
    drain,
    exclude,
    grown,
    told,
    undrain,
    up,
)

# Acquire


def test_first_response_is_grow_with_all_resources() -> None:
    """28.acquire.3, 28.acquire.5, 28.grow.2, 28.grow.3, 28.grow.4, 28.criteria.1: the group is all
    that a scheduler has to know, and offline is there even if empty.
    """
    script = ResourceScript()
    assert script(acquire()) == [grown("0-3", "")]
    (response,) = [a for a in script.other if isinstance(a, Response)]
    assert response.flags & Flag.STREAMING, "the stream stays open (28.background.6)"
    assert isinstance(response.payload, dict)
    assert ResourceSet.parse(response.payload["resources"]).ranks == Idset.parse("0-3")


def test_grow_splits_its_targets_into_online_and_offline() -> None:
    """28.background.3, 28.background.5, 28.grow.5, 28.grow.6: as in the RFC's example, drained and
    crashed targets are offline.
    """
    script = ResourceScript()
    script(drain("1"), down("3"))
    assert script(acquire()) == [grown("0,2", "1,3")]


def test_default_group_has_all_targets_that_are_not_excluded() -> None:
    """28.acquire.2, 28.acquire.4, 28.criteria.5"""
    script = ResourceScript(exclude="0,3")
    assert script(acquire()) == [grown("1-2")]
    assert script(acquire("exclude", by="other", tag=2)) == [grown("0,3")]


def test_one_scheduler_may_acquire_several_groups() -> None:
    """28.impl.2"""
    script = ResourceScript(exclude="0")
    responses = script(acquire(), acquire("exclude", tag=2))
    assert responses == [grown("1-3"), grown("0")]


@pytest.mark.parametrize("by", ["sched", "other"])
def test_group_that_is_acquired_is_refused_to_a_second(by: str) -> None:
    """28.background.1; recording 45 has flux-core's EBUSY."""
    script = ResourceScript()
    script(acquire())
    text = "resource group default is already acquired by sched"
    assert script(acquire(by=by, tag=2)) == [("acquire", Errno.EBUSY, text)]


@pytest.mark.parametrize(
    ("request_", "errnum", "text"),
    [
        (asked("resource.acquire", {}, streaming=True), Errno.EPROTO, "field `group`"),
        (asked("resource.acquire", {"group": 1}, streaming=True), Errno.EPROTO, "got `int`"),
        (asked("resource.acquire", {"group": "default"}), Errno.EPROTO, "streaming flag"),
        (acquire("gpu"), Errno.ENOENT, "no resource group gpu: there are default and exclude"),
        (acquire("exclude"), Errno.ENOENT, "resource group exclude has no targets"),
        (asked_by_guest("resource.acquire", {"group": "default"}), Errno.EPERM, "owner"),
        (asked("resource.frob"), Errno.ENOSYS, "no method frob in service resource"),
    ],
)
def test_faulty_acquire_is_answered_with_an_error(
    request_: Request, errnum: int, text: str
) -> None:
    """28.error.3, 28.acquire.1, 28.background.6"""
    told = ResourceScript()(request_)
    assert [got for _, got, _ in told] == [errnum]
    assert text in told[0][2]


def test_disconnect_frees_the_group_without_an_answer() -> None:
    """28.disconnect.2, 28.disconnect.3"""
    script = ResourceScript()
    script(acquire())
    assert script(gone("resource", "sched")) == []
    assert script(drain("1")) == [DRAINED]
    assert script(acquire(by="next", tag=4)) == [grown("0,2-3", "1")]


def test_disconnect_of_another_peer_changes_nothing() -> None:
    script = ResourceScript()
    script(acquire())
    script(gone("resource", "client"))
    assert script(drain("1")) == [DRAINED, told("offline", "1")]


# Availability


def test_drain_and_undrain_are_offline_and_online() -> None:
    """28.background.7, 28.offline.1, 28.online.1, 28.acquire.5, 28.criteria.2, 28.criteria.4; the
    conversation of recording 20.
    """
    script = ResourceScript()
    script(acquire())
    assert script(drain("1")) == [DRAINED, told("offline", "1")]
    assert script(undrain("1")) == [UNDRAINED, told("online", "1")]
    assert script(drain("node[2-3]", "test")) == [DRAINED, told("offline", "2-3")]
    assert script(undrain("2-3")) == [UNDRAINED, told("online", "2-3")]


def test_crash_is_offline_without_distinction() -> None:
    """28.offline.6"""
    script = ResourceScript()
    script(acquire())
    assert script(down("1-2")) == [DOWN, told("offline", "1-2")]
    assert script(up("1")) == [UP, told("online", "1")]
    assert Note("resource", {"what": "up", "targets": "1"}) in script.other


def test_only_changes_are_told() -> None:
    """28.online.1: a target already online is not named; drained and down needs both undone."""
    script = ResourceScript()
    script(acquire())
    script(drain("1"))
    assert script(down("1")) == [DOWN]
    assert script(undrain("1")) == [UNDRAINED]
    assert script(up("1")) == [UP, told("online", "1")]


def test_nobody_is_told_or_answered_before_the_drain_is_durable() -> None:
    script = ResourceScript()
    script(acquire())
    script.hold = True
    assert script(drain("1")) == []
    assert script.release_held() == [DRAINED, told("offline", "1")]


def test_drain_that_cannot_be_stored_is_refused_and_changes_nothing() -> None:
    script = ResourceScript()
    script(acquire())
    script.errnum = Errno.EIO
    assert script(drain("1")) == [("drain", Errno.EIO, "kvs store failed")]


# Shrink and release


# Administration


def test_drain_is_an_event_with_hosts_and_reason() -> None:
    script = ResourceScript()
    script(drain("1-2"), now=12.5)
    script(undrain("2"), now=13.5)
    first, second = parse_eventlog(script.eventlog)
    context = {"idset": "1-2", "nodelist": "node[1-2]", "overwrite": 0, "reason": "bad dimm"}
    assert (first.timestamp, first.name, first.context) == (12.5, "drain", context)
    assert (second.name, second.context) == (
        "undrain",
        {"idset": "2", "nodelist": "node2", "overwrite": 0},
    )
    assert Log(6, "undrain idset=2 nodelist=node2 overwrite=0") in script.other
    assert Note("resource", {"what": "undrain", "targets": "2"}) in script.other


@pytest.mark.parametrize(
    ("request_", "errnum", "text"),
    [
        (drain("0-1"), Errno.EEXIST, "rank 1 already drained"),
        (drain("1-2"), Errno.EEXIST, "ranks 1-2 already drained"),
        (drain("0,3"), Errno.EINVAL, "rank 3 excluded"),
        (drain("2-3"), Errno.EEXIST, "ranks 2-3 already drained or excluded"),
        (drain("9"), Errno.EINVAL, "idset is out of range: 9 not among 0-3"),
        (drain("nodeX"), Errno.EINVAL, "invalid targets: invalid hosts: nodeX"),
        (undrain("0"), Errno.EEXIST, "rank 0 not drained"),
        (undrain("0-1"), Errno.EEXIST, "rank 0 not drained"),
        (undrain(""), Errno.EINVAL, "idset is empty"),
    ],
)
def test_drain_and_undrain_refuse_with_flux_cores_words(
    request_: Request, errnum: int, text: str
) -> None:
    script = ResourceScript(exclude="3")
    script(drain("1-2"))
    assert script(request_) == [(request_.topic.removeprefix("resource."), errnum, text)]


@pytest.mark.parametrize("topic", ["resource.drain", "resource.undrain", topics.RESOURCE_EXCLUDE])
def test_guests_may_not_administrate(topic: str) -> None:
    text = "Request requires owner credentials"
    refused = asked_by_guest(topic, {"targets": "1"})
    assert ResourceScript()(refused) == [(topic.removeprefix("resource."), Errno.EPERM, text)]


@pytest.mark.parametrize("reason", ["x" * 1001, "\udc80"])
def test_reason_is_bounded_text(reason: str) -> None:
    ((_, errnum, _),) = ResourceScript()(drain("1", reason))
    assert errnum == Errno.EPROTO


def test_second_drain_of_a_turn_is_judged_after_the_first() -> None:
    responses = ResourceScript()(drain("1"), drain("1"), undrain("1"))
    assert [errnum for _, errnum, _ in responses] == [0, Errno.EEXIST, 0]


def test_reason_can_be_given_later_and_the_time_stays() -> None:
    script = ResourceScript()
    assert script(drain("1", None), now=10.0) == [DRAINED]
    assert status(script)["drained"] == {"1": {"timestamp": 10.0, "reason": ""}}
    assert script(drain("1", "fan"), now=20.0) == [DRAINED]
    assert status(script)["drained"] == {"1": {"timestamp": 10.0, "reason": "fan"}}


def status(script: ResourceScript, request: Request | None = None) -> Any:
    ((_, errnum, payload),) = script(request or asked("resource.status"))
    assert errnum == 0
    return payload


def test_status_tells_resources_and_what_is_wrong_with_them_to_everybody() -> None:
    """20.overview.2"""
    script = ResourceScript(exclude="3")
    script(drain("0", "a"), now=10.0)
    script(down("1"), now=10.0)
    script(drain("2", "b"), now=11.0)
    drained = {"0": {"timestamp": 10.0, "reason": "a"}, "2": {"timestamp": 11.0, "reason": "b"}}
    assert status(script, asked_by_guest("resource.status")) == {
        "R": INVENTORY.to_json(),
        "drained": drained,
        "drain": drained,
        "online": "0,2-3",
        "torpid": "",
        "offline": "1",
        "down": {"1": {"timestamp": 10.0, "by": "operator", "reason": ""}},
        "exclude": "3",
    }


def test_targets_drained_together_are_told_together() -> None:
    script = ResourceScript()
    script(drain("0,2-3", "a"), now=10.0)
    assert status(script)["drained"] == {"0,2-3": {"timestamp": 10.0, "reason": "a"}}


# Restart


def test_drains_are_found_again() -> None:
    before = ResourceScript()
    before(drain("0-2"), undrain("1"))
    script = ResourceScript(eventlog=before.eventlog)
    assert status(script) == status(before)
    assert script(acquire()) == [grown("1,3", "0,2")]


def test_requests_wait_until_the_drains_are_known() -> None:
    before = ResourceScript()
    before(drain("0"))
    script = ResourceScript(eventlog=before.eventlog)
    core = ResourceCore(INVENTORY, Idset())
    core.start(1.0)
    assert core.turn(2.0, [acquire(), drain("1")]) == []
    grow, commit = core.turn(3.0, [script.lookup])[::-1]
    assert grow.payload["offline"] == "0"
    assert commit.topic == "kvs.commit"


def test_drained_host_is_found_under_its_new_number() -> None:
    before = ResourceScript()
    before(drain("1-3"))
    entries = [ResourceEntry("node[3,0,1]", cores="0")]  # node2 is gone
    script = ResourceScript(eventlog=before.eventlog, inventory=inventory_from_config(entries))
    assert list(status(script)["drained"]) == ["0,2"]


def test_excluded_target_is_no_longer_drained() -> None:
    before = ResourceScript()
    before(drain("1-2"))
    script = ResourceScript(eventlog=before.eventlog, exclude="1")
    assert list(status(script)["drained"]) == ["2"]
    script(exclude("1-2"))
    assert status(script)["drained"] == {}
    assert status(ResourceScript(eventlog=script.eventlog))["drained"] == {}


def test_excluded_target_is_undrained_once() -> None:
    script = ResourceScript()
    script(drain("1"))
    script.hold = True
    script(exclude("1"))
    script(exclude("1-2"))
    script.release_held()
    assert [e.name for e in parse_eventlog(script.eventlog)] == ["drain", "undrain"]


@pytest.mark.parametrize(
    ("eventlog", "text"),
    [
        ('{"timestamp":1,"name":"drain"}\n', "line 1: expected the key idset"),
        ('{"timestamp":1,"name":"drain","context":{"idset":"1-","nodelist":"a"}}\n', "line 1"),
        ("nonsense\n", "line 1"),
    ],
)
def test_unreadable_eventlog_ends_the_service_with_a_reason(eventlog: str, text: str) -> None:
    ((exit_),) = [a for a in ResourceScript(eventlog=eventlog).other if isinstance(a, Exit)]
    assert exit_.reason.startswith("cannot read resource.eventlog: ")
    assert text in exit_.reason


def test_events_of_other_names_mean_nothing() -> None:
    script = ResourceScript(eventlog='{"timestamp":1,"name":"restart","context":{"ranks":"0-3"}}\n')
    assert status(script)["drained"] == {}


def test_kvs_that_fails_ends_the_service_with_a_reason() -> None:
    core = ResourceCore(INVENTORY, Idset())
    (lookup,) = core.start(1.0)
    failed = Response(lookup.topic, "kvs is gone", Errno.ENOSYS, lookup.matchtag)
    assert core.turn(2.0, [failed]) == [Exit("cannot read resource.eventlog: kvs is gone")]


def test_new_expiration_is_told_by_a_grow_that_adds_nothing_and_by_an_event() -> None:
    """20.execution: R has the expiration; who acquires later gets the same R."""
    script = ResourceScript()
    script(acquire(), drain("3"))
    told = script(asked("resource.expiration-update", {"expiration": 100}))
    assert told == [("acquire", 0, told[0][2]), ("expiration-update", 0, None)]
    grow = told[0][2]
    assert (grow["type"], grow["online"], grow["offline"]) == ("grow", "0-2", "3")
    assert grow["resources"]["execution"]["expiration"] == 100
    (event,) = [each for each in script.other if isinstance(each, EventMessage)]
    assert (event.topic, event.payload) == ("resource-expiration", {"expiration": 100})
    script(gone("resource", "sched"))
    (((_, _, again)),) = script(acquire())
    assert again["resources"]["execution"]["expiration"] == 100


@pytest.mark.parametrize("wrong", [-1.0, "soon", None, 5.0])
def test_what_is_no_end_of_the_instance_is_refused(wrong: Any) -> None:
    script = ResourceScript(inventory=INVENTORY.with_times(10.0, 20.0))
    ((_, errnum, _),) = script(asked("resource.expiration-update", {"expiration": wrong}))
    assert errnum in (Errno.EPROTO, Errno.EINVAL)


def test_all_ranks_of_an_instance_are_online_and_no_more() -> None:
    script = ResourceScript()
    assert script(asked("resource.monitor-waitup", {"up": 4})) == [("monitor-waitup", 0, None)]
    ((_, errnum, text),) = script(asked("resource.monitor-waitup", {"up": 5}))
    assert (errnum, text) == (Errno.EINVAL, "5 ranks are never online: this instance has 4")
