"""Targets go down and up: by the operator, by the check command, for missing cores."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import ResourceConfig, ResourceEntry, parse_config
from flux_trio.cores.resource import ResourceCore, inventory_from_config
from flux_trio.cores.resource.checks import Checked, NotChecked, RunCheck
from flux_trio.cores.turns import Log, Note, SetTimer, TimerFired
from flux_trio.formats import Idset, parse_eventlog
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages import Event as EventMessage
from flux_trio.services.inventory import core_differences
from flux_trio.trace.kvs import operations_of
from tests.support.asking import asked, asked_by_guest

INVENTORY = inventory_from_config([ResourceEntry("node[0-3]", cores="0-3")])
DOWN, UP = topics.RESOURCE_DOWN, topics.RESOURCE_UP


class Script:
    """A resource core whose kvs answers at once; `eventlog` is what it has kept."""

    def __init__(self, eventlog: str = "", errnum: int = 0, **more: Any) -> None:
        self.eventlog = eventlog
        self.errnum = errnum
        self.core = ResourceCore(INVENTORY, Idset(), **more)
        (lookup,) = self.core.start(1.0)
        found = {"value": eventlog} if eventlog else None
        missing = 0 if eventlog else int(Errno.ENOENT)
        self.first = self(Response(lookup.topic, found, missing, lookup.matchtag), now=1.0)

    def __call__(self, *inputs: Any, now: float = 5.0) -> list[Any]:
        """All actions but the commits."""
        actions = self.core.turn(now, list(inputs))
        stored = [self._store(each) for each in actions if isinstance(each, Request)]
        rest = [each for each in actions if not isinstance(each, Request)]
        return rest + (self(*stored, now=now) if stored else [])

    def _store(self, commit: Request) -> Response:
        assert isinstance(commit.payload, dict)
        if self.errnum:
            return Response(commit.topic, "no room", self.errnum, commit.matchtag)
        self.eventlog += "".join(text for _, _, text in operations_of(commit.payload))
        return Response(commit.topic, {}, 0, commit.matchtag)

    def ask(self, topic: str, now: float = 5.0, **payload: str) -> list[Any]:
        return self(asked(topic, payload), now=now)

    def status(self) -> dict[str, Any]:
        (response,) = self.ask(topics.RESOURCE_STATUS)
        assert isinstance(response.payload, dict)
        return response.payload["down"]

    @property
    def events(self) -> list[tuple[str, Any]]:
        return [(event.name, event.context) for event in parse_eventlog(self.eventlog)]


def published(actions: list[Any]) -> list[tuple[str, Any]]:
    return [(each.topic, each.payload) for each in actions if isinstance(each, EventMessage)]


def down(since: float, reason: str = "", by: str = "operator") -> dict[str, Any]:
    return {"timestamp": since, "by": by, "reason": reason}


# By the operator


def test_word_of_the_operator_is_published_traced_and_kept() -> None:
    script = Script()
    actions = script.ask(DOWN, targets="node[1-2]", reason="psu")
    assert published(actions) == [("resource-offline", {"targets": "1-2", "reason": "psu"})]
    assert Note("resource", {"what": "down", "targets": "1-2"}) in actions
    context = {"idset": "1-2", "nodelist": "node[1-2]", "by": "operator", "reason": "psu"}
    assert script.events == [("offline", context)]
    assert published(script.ask(UP, targets="2")) == [("resource-online", {"targets": "2"})]
    assert script.status() == {"1": down(5.0, "psu")}


def test_target_stays_down_over_a_restart_until_the_operator_says_up() -> None:
    before = Script()
    before.ask(DOWN, targets="1", reason="psu")
    script = Script(before.eventlog)
    assert script.status() == {"1": down(5.0, "psu")}
    assert Note("resource", {"what": "down", "targets": "1"}) in script.first
    script.ask(UP, targets="1")
    assert Script(script.eventlog).status() == {}


def test_second_word_gives_another_reason_and_keeps_the_time() -> None:
    script = Script()
    script.ask(DOWN, targets="1", reason="psu")
    assert published(script.ask(DOWN, now=9.0, targets="0-1", reason="fan")) == [
        ("resource-offline", {"targets": "0", "reason": "fan"})
    ]
    script.ask(DOWN, now=10.0, targets="1")
    assert script.status() == {"0": down(9.0, "fan"), "1": down(5.0, "fan")}


@pytest.mark.parametrize(
    ("topic", "payload", "errnum", "text"),
    [
        (UP, {"targets": "1-2"}, Errno.EINVAL, "ranks 1-2 not down"),
        (DOWN, {"targets": "9"}, Errno.EINVAL, "out of range"),
        (DOWN, {"targets": "nodeX"}, Errno.EINVAL, "invalid hosts: nodeX"),
        (DOWN, {}, Errno.EPROTO, "targets"),
        (DOWN, {"targets": "1", "reason": "x" * 1001}, Errno.EPROTO, "reason"),
    ],
)
def test_wrong_request_is_refused_with_text(
    topic: str, payload: Any, errnum: int, text: str
) -> None:
    script = Script()
    (response,) = script(asked(topic, payload))
    assert (response.errnum, script.status()) == (errnum, {})
    assert text in response.payload


@pytest.mark.parametrize("topic", [DOWN, UP])
def test_guest_is_refused(topic: str) -> None:
    (response,) = Script()(asked_by_guest(topic, {"targets": "1"}))
    assert response.errnum == Errno.EPERM


def test_word_that_cannot_be_kept_is_refused_and_changes_nothing() -> None:
    script = Script(errnum=Errno.EIO)
    (response,) = script.ask(DOWN, targets="1")
    assert (response.errnum, script.status()) == (Errno.EIO, {})


# By the check command


def checking(eventlog: str = "", **more: Any) -> Script:
    return Script(eventlog, check_interval_s=60.0, **more)


def checked(*problems: str | None) -> list[Checked]:
    return [Checked(target, problem) for target, problem in enumerate(problems)]


def test_each_target_is_checked_at_once_and_then_every_interval() -> None:
    script = checking()
    runs = [RunCheck(n, f"node{n}") for n in range(4)]
    assert script.first == runs
    assert script(*checked(None, None, None), now=30.0) == []
    assert script(Checked(3, None), now=31.0) == [SetTimer("check", 61.0)]
    assert script(TimerFired("check"), now=61.0) == runs


def test_sweep_that_takes_longer_than_the_interval_is_not_doubled() -> None:
    script = checking()
    assert script(*checked(None, None, None, None), now=100.0) == [SetTimer("check", 61.0)]
    assert len(script(TimerFired("check"), now=100.0)) == 4


def test_check_that_fails_puts_a_target_down_and_one_that_succeeds_brings_it_up() -> None:
    script = checking()
    actions = script(*checked(None, "fan", None, "fan"))
    assert published(actions) == [("resource-offline", {"targets": "1,3", "reason": "fan"})]
    assert script.status() == {"1,3": down(5.0, "fan", "check")}
    assert published(script(Checked(1, "hot"))) == [], "it is down already"
    assert published(script(Checked(1, None))) == [("resource-online", {"targets": "1"})]
    assert [name for name, _ in script.events] == ["offline", "online"]


def test_check_leaves_alone_what_the_operator_has_put_down() -> None:
    script = checking()
    script.ask(DOWN, targets="1", reason="psu")
    assert published(script(Checked(1, None), Checked(1, "fan"))) == []
    assert script.status() == {"1": down(5.0, "psu")}


def test_operator_takes_over_what_the_check_has_put_down() -> None:
    script = checking()
    script(Checked(1, "fan"))
    assert published(script.ask(DOWN, targets="1", reason="psu")) == []
    script(Checked(1, None))
    assert script.status() == {"1": down(5.0, "psu")}


def test_operator_may_bring_up_what_the_next_check_puts_down_again() -> None:
    script = checking()
    script(Checked(1, "fan"))
    assert published(script.ask(UP, targets="1")) == [("resource-online", {"targets": "1"})]
    assert published(script(Checked(1, "fan"))) != []


def test_what_the_check_has_put_down_stays_so_over_a_restart_until_it_is_well() -> None:
    before = checking()
    before(Checked(1, "fan"))
    script = checking(before.eventlog)
    assert script.status() == {"1": down(5.0, "fan", "check")}
    script(Checked(1, None))
    assert script.status() == {}


def test_without_a_check_nothing_is_down_by_its_word() -> None:
    before = checking()
    before(Checked(1, "fan"))
    before.ask(DOWN, targets="2")
    script = Script(before.eventlog)
    assert list(script.status()) == ["2"]
    assert list(Script(script.eventlog).status()) == ["2"]


def test_check_that_cannot_be_run_says_so_once_a_sweep_and_changes_nothing() -> None:
    script = checking()
    script(Checked(1, "fan"))
    actions = script(*(NotChecked(n, "check: not found") for n in (0, 2, 3)))
    assert [each for each in actions if isinstance(each, Log)] == [
        Log(3, "rank 0: the check cannot be run: check: not found")
    ]
    assert list(script.status()) == ["1"]


def test_what_is_found_while_the_eventlog_is_written_is_not_lost() -> None:
    script = checking()
    commit, *_ = script.core.turn(2.0, [Checked(0, "a")])
    assert script.core.turn(3.0, [Checked(1, "b"), Checked(2, "c"), Checked(1, None)]) == []
    script(script._store(commit), now=4.0)
    assert list(script.status()) == ["0", "2"]


# Missing at the start


def test_target_that_lacks_cores_is_down_from_the_start_and_a_check_does_not_change_that() -> None:
    script = checking(missing={2: "missing resources: cores 2-3"})
    assert script.status() == {"2": down(1.0, "missing resources: cores 2-3", "start")}
    script(Checked(2, None))
    assert list(script.status()) == ["2"]
    assert script.events == [], "each start looks anew"
    script.ask(UP, targets="2")
    assert script.status() == {}


@pytest.mark.parametrize(
    ("hosts", "noverify", "missing"),
    [
        ("here", False, {0: "missing resources: cores 2-3"}),
        ("here", True, {}),
        ("there", False, {}),
    ],
)
def test_only_what_bears_the_name_of_this_machine_is_verified(
    hosts: str, noverify: bool, missing: dict[int, str]
) -> None:
    entry = ResourceEntry(hosts, cores="0-3")
    config = ResourceConfig(config=[entry], noverify=noverify)
    inventory = inventory_from_config([entry])
    assert core_differences(config, inventory, "here", Idset.parse("0-1,7")) == missing


MISSING, EXTRA = "missing resources: cores 2-3", "extra resources: core 7"


@pytest.mark.parametrize(
    ("verify", "text"),
    [
        ("true", f"{MISSING}, {EXTRA}"),
        ("false", ""),
        ("{}", f"{MISSING}, {EXTRA}"),
        ("{ core = 'strict' }", f"{MISSING}, {EXTRA}"),
        ("{ core = 'allow-extra' }", MISSING),
        ("{ core = 'allow-missing' }", EXTRA),
        ("{ core = 'ignore' }", ""),
        ("{ default = 'allow-missing', gpu = 'strict' }", EXTRA),
    ],
)
def test_verify_says_which_differences_make_a_target_unfit(verify: str, text: str) -> None:
    """flux-config-resource(5)"""
    config = parse_config(
        f"[resource]\nverify = {verify}\nconfig = [{{ hosts = 'here', cores = '0-3' }}]"
    ).resource
    inventory = inventory_from_config(config.config)
    found = core_differences(config, inventory, "here", Idset.parse("0-1,7"))
    assert found == ({0: text} if text else {})


def test_machine_that_poses_as_targets_has_what_it_says() -> None:
    assert core_differences(ResourceConfig(), INVENTORY, "node1", Idset()) == {}
