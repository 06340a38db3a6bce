"""Which resources an instance has: R of the kvs, and R that `resource.reload` reads from a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.config import ResourceEntry
from flux_trio.cores.resource import ResourceCore, inventory_from_config
from flux_trio.cores.resource.definition import FileRead, Kept, ReadFile
from flux_trio.cores.turns import Exit
from flux_trio.formats import Idset, ResourceSet, parse_eventlog
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import asked, gone
from tests.support.resource_script import INVENTORY, acquire, drain

OTHER = inventory_from_config([ResourceEntry("fake[0-1]", cores="0-1", properties=["xx"])])
MANY = inventory_from_config([ResourceEntry("fake[0-9]", cores="0-1")])


class Kvs:
    """A core of the resource service with the keys of its kvs, which answers at once."""

    def __init__(
        self,
        kept: Kept | None,
        values: dict[str, str] | None = None,
        *,
        exclude: str = "",
        queues: dict[str, str] | None = None,
    ) -> None:
        self.values = dict(values or {})
        self.core = ResourceCore(INVENTORY, exclude, kept=kept, queues=queues)
        self.actions = self._settled(self.core.start(1.0))

    def __call__(self, *inputs: Any, now: float = 5.0) -> list[tuple[int, Any]]:
        """Return errnum and payload of each response."""
        self.actions = self._settled(self.core.turn(now, list(inputs)))
        return [(each.errnum, each.payload) for each in self.actions if isinstance(each, Response)]

    def _settled(self, actions: list[Any]) -> list[Any]:
        answers = [self._answer(each) for each in actions if isinstance(each, Request)]
        if answers:
            actions = actions + self._settled(self.core.turn(2.0, answers))
        return actions

    def _answer(self, request: Request) -> Response:
        payload: Any = request.payload
        found: Any = {}
        if request.topic == topics.KVS_LOOKUP:
            if payload["key"] not in self.values:
                return Response(request.topic, None, int(Errno.ENOENT), request.matchtag)
            found = {"value": self.values[payload["key"]]}
        else:
            for kind, key, text in payload["ops"]:
                self.values[key] = (self.values.get(key, "") if kind == "append" else "") + text
        return Response(request.topic, found, 0, request.matchtag)

    @property
    def stored(self) -> ResourceSet:
        return ResourceSet.parse(json.loads(self.values["resource.R"]))

    @property
    def told(self) -> ResourceSet:
        ((errnum, status),) = self(asked("resource.status"))
        assert errnum == 0
        return ResourceSet.parse(status["R"])


def written(resources: ResourceSet) -> str:
    return json.dumps(resources.to_json())


def reload(**more: Any) -> Request:
    return asked("resource.reload", {"path": "/R", "xml": False, "force": False} | more, tag=9)


def test_the_first_start_writes_what_the_instance_was_given_over_what_was_there() -> None:
    kvs = Kvs("written", {"resource.R": written(OTHER)})
    assert kvs.stored == kvs.told == INVENTORY


def test_a_later_start_takes_what_a_script_has_put_there() -> None:
    kvs = Kvs("read", {"resource.R": written(OTHER)})
    assert kvs.told == OTHER
    assert kvs.stored == OTHER


def test_a_later_start_without_it_writes_what_the_instance_was_given() -> None:
    kvs = Kvs("read")
    assert kvs.stored == kvs.told == INVENTORY


def test_without_flux_own_programs_there_is_no_key_and_no_reload() -> None:
    kvs = Kvs(None)
    assert "resource.R" not in kvs.values
    assert kvs(reload())[0][0] == Errno.ENOSYS


def test_wrong_r_in_the_kvs_ends_the_module_with_the_key_and_the_place() -> None:
    kvs = Kvs("read", {"resource.R": '{"version":1}'})
    (exit_,) = [each for each in kvs.actions if isinstance(each, Exit)]
    assert exit_.reason.startswith("cannot read resource.R: ")
    assert "execution" in exit_.reason


def test_drains_of_the_eventlog_follow_the_hosts_of_the_new_r() -> None:
    event = (
        '{"timestamp":1.0,"name":"drain","context":'
        '{"idset":"3","nodelist":"fake1","reason":"r","overwrite":0}}\n'
    )
    kvs = Kvs("read", {"resource.R": written(OTHER), "resource.eventlog": event})
    assert str(kvs.core.drained) == "1"


def test_the_exclude_group_is_read_with_the_hosts_of_the_new_r() -> None:
    kvs = Kvs("read", {"resource.R": written(OTHER)}, exclude="fake1")
    assert kvs(asked("resource.status"))[0][1]["exclude"] == "1"


def test_an_excluded_host_that_is_not_in_the_new_r_ends_the_module() -> None:
    kvs = Kvs("read", {"resource.R": written(OTHER)}, exclude="node3")
    (exit_,) = [each for each in kvs.actions if isinstance(each, Exit)]
    assert exit_.reason == "resource.exclude: invalid targets: invalid hosts: node3"


def test_hosts_of_a_queue_have_its_property_which_r_in_the_kvs_has_not() -> None:
    kvs = Kvs("read", {"resource.R": written(OTHER)}, queues={"batch": "fake1"})
    assert kvs.told.properties == {"xx": Idset.parse("0-1"), "+batch": Idset.parse("1")}
    assert kvs.stored == OTHER


def test_reload_takes_r_of_the_file_and_answers_when_it_is_stored() -> None:
    kvs = Kvs("written")
    assert kvs(reload()) == []
    (read,) = [each for each in kvs.actions if isinstance(each, ReadFile)]
    assert kvs(FileRead(read.path, written(OTHER))) == [(0, None)]
    assert kvs.told == kvs.stored == OTHER


def test_reload_keeps_scheduling_in_the_kvs_and_status_does_not_tell_it() -> None:
    kvs = Kvs("written")
    kvs(reload())
    kvs(FileRead("/R", written(OTHER.with_scheduling({"foo": 42}))))
    assert kvs.stored.scheduling == {"foo": 42}
    assert kvs.told.scheduling is None


def test_a_scheduler_gets_the_new_resources_and_then_nothing_can_be_reloaded() -> None:
    kvs = Kvs("written")
    kvs(reload())
    kvs(FileRead("/R", written(OTHER)))
    ((errnum, grown),) = kvs(acquire())
    assert errnum == 0
    assert ResourceSet.parse(grown["resources"]) == OTHER
    assert kvs(reload()) == [(Errno.EBUSY, "resources are busy (unload scheduler?)")]


def test_a_scheduler_that_comes_while_the_file_is_read_keeps_its_resources() -> None:
    kvs = Kvs("written")
    kvs(reload())
    kvs(acquire())
    answer = kvs(FileRead("/R", written(OTHER)))
    assert answer == [(Errno.EBUSY, "resources are busy (unload scheduler?)")]
    assert kvs.stored == kvs.told == INVENTORY


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (FileRead("/R", None, "No such file or directory"), "/R: No such file or directory"),
        (FileRead("/R", "{}"), "/R.version: expected"),
        (FileRead("/R", written(MANY)), "R has ranks 4-9 beyond size=4 (override with -f)"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_and_nothing_changes(
    file: FileRead, text: str
) -> None:
    kvs = Kvs("written")
    kvs(reload())
    ((errnum, said),) = kvs(file)
    assert errnum in (Errno.EINVAL, Errno.ENOENT)
    assert text in said
    assert kvs.stored == kvs.told == INVENTORY
    kvs(reload(force=True))
    assert kvs(FileRead("/R", written(MANY))) == [(0, None)]
    assert kvs.told == MANY


def test_xml_and_a_second_request_at_once_are_refused() -> None:
    kvs = Kvs("written")
    ((errnum, text),) = kvs(reload(xml=True))
    assert (errnum, "hwloc XML is not read" in text) == (Errno.EINVAL, True)
    kvs(reload())
    assert kvs(reload())[0][0] == Errno.EBUSY


def test_whoever_is_gone_gets_no_answer() -> None:
    kvs = Kvs("written")
    request = reload()
    kvs(request)
    kvs(gone("resource", request.sender))
    assert kvs(FileRead("/R", written(OTHER))) == []
    assert kvs.told == OTHER


def test_a_new_expiration_is_an_event_and_stands_in_r() -> None:
    kvs = Kvs("written")
    assert kvs(asked("resource.expiration-update", {"expiration": 60.0})) == [(0, None)]
    assert kvs.stored.expiration == 60.0
    assert (
        '"name":"resource-update","context":{"expiration":60.0}' in kvs.values["resource.eventlog"]
    )
    again = Kvs("read", kvs.values)
    assert again.told.expiration == 60.0


def test_no_event_is_earlier_than_a_new_expiration_if_the_clock_is_set_back() -> None:
    kvs = Kvs("written")
    kvs(asked("resource.expiration-update", {"expiration": 60.0}), now=30.0)
    kvs(drain("1"), now=10.0)
    events = parse_eventlog(kvs.values["resource.eventlog"])
    assert [(each.name, each.timestamp) for each in events[-2:]] == [
        ("resource-update", 30.0),
        ("drain", 30.0),
    ]


def test_a_drain_after_a_reload_is_of_the_new_hosts() -> None:
    kvs = Kvs("written")
    kvs(reload())
    kvs(FileRead("/R", written(OTHER)))
    assert kvs(drain("fake1")) == [(0, None)]
    assert str(kvs.core.drained) == "1"
