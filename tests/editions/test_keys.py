"""Editions hold every key: cores and services name none of a payload that an RFC describes."""

from __future__ import annotations

from pathlib import Path

import pytest

import flux_trio
from flux_trio.editions import rfc21, rfc24, rfc27, rfc28, rfc32, rfc33
from tests.support.payload_keys import (
    codecs_named,
    constants_in,
    keys_of,
    named_keys,
    payloads_by_hand,
)

ROOT = Path(flux_trio.__file__).parent
JOBSPEC = "attributes of a jobspec (RFC 14, 25), which is a format and no payload"
RESOURCE_LOG = "contexts of the resource eventlog in the kvs, which none of these RFCs describes"
TURNS = "turns of cores in a trace, which is a format of our own"
OTHER_FORMATS = {
    "cores/exec/placement.py": ({"type", "count"}, JOBSPEC),
    "cores/exec/tasks.py": ({"type"}, JOBSPEC),
    "cores/exec/templates.py": ({"name"}, "tags that a user may put into a command"),
    "cores/job_index.py": ({"name"}, JOBSPEC),
    "cores/job_manager/jobs/jobspecs.py": ({"queue"}, JOBSPEC),
    "cores/turn_records.py": ({"version"}, TURNS),
    "cores/recorded_plugins.py": ({"priority"}, TURNS),
    "cores/resource/core.py": ({"reason"}, RESOURCE_LOG),
    "cores/resource/downs.py": ({"reason"}, RESOURCE_LOG),
    "cores/resource/administration.py": ({"reason"}, RESOURCE_LOG),
    "services/recorded_core.py": ({"version"}, TURNS),
}
KEYS = keys_of([rfc21, rfc24, rfc27, rfc28, rfc32, rfc33])
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in ("cores", "services")
    for path in sorted((ROOT / package).glob("**/*.py"))
}
ALL_FILES = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def constants() -> dict[str, set[str]]:
    """Those of all rooms, from any of which a constant may be imported."""
    return constants_in(ROOT.rglob("*.py"))


@ALL_FILES
def test_nobody_names_a_payload_key(name: str, constants: dict[str, set[str]]) -> None:
    others, _reason = OTHER_FORMATS.get(name, (set(), ""))
    named = {each.partition(": ")[2] for each in named_keys(FILES[name], KEYS, constants)}
    assert named == others


@ALL_FILES
def test_every_payload_is_of_a_type_of_editions(name: str) -> None:
    assert payloads_by_hand(FILES[name]) == []


@ALL_FILES
def test_what_editions_differ_in_is_asked_of_an_edition(name: str) -> None:
    """A core that named one of the codecs itself would speak one edition only."""
    assert codecs_named(FILES[name], [rfc27, rfc28, rfc32]) == []


def test_a_codec_that_is_named_is_found() -> None:
    source = "from flux_trio.editions.rfc27 import ALLOC, Alloc\nrfc28.ACQUIRE.write(each)"
    assert codecs_named(source, [rfc27, rfc28]) == ["rfc27.ALLOC", "rfc28.ACQUIRE"]


@pytest.mark.parametrize(
    "source",
    [
        "expect_payload(request, Named)",
        "jobid = request.payload",
        'respond(request, {"count": 1})',
        'self._outbox.ask(topics.KVS_COMMIT, {"ops": ops}, Stored())',
        'payload = {"count": 1}\nrespond(request, payload)',
        'payload: Payload = {"count": 1}\nrespond(request, payload)',
    ],
)
def test_a_payload_that_is_read_or_written_by_hand_is_found(source: str) -> None:
    assert payloads_by_hand(source) != []


def test_keys_of_the_rfcs_are_known() -> None:
    assert {"id", "t_submit", "partial-ok", "R", "targets", "shrink", "reattach"} <= KEYS


@pytest.mark.parametrize(
    "source",
    [
        'payload = {"id": 1}',
        "payload = {ID: 1}",
        "payload = dict(id=1)",
        'jobid = payload["id"]',
        "jobid = payload[ID]",
        'jobid = payload.get("id", 0)',
        'named = "id" in payload',
        'jobid = getattr(payload, "id")',
        "class Named(msgspec.Struct):\n    id: int\nexpect_payload(request, Named)",
        'class Named(Struct):\n    job: int = field(name="id")\nmsgspec.convert({}, list[Named])',
        "class In(Struct):\n    id: int\nclass Out(Struct):\n    x: In\nasdict(Out(In(1)))",
        "class Named(TypedDict):\n    id: int",
        'match payload:\n    case {"id": jobid}: pass',
    ],
)
def test_a_key_that_is_named_is_found(source: str) -> None:
    assert len(named_keys(source, KEYS, {"ID": {"id"}})) == 1


def test_a_key_in_a_constant_of_another_room_is_found(constants: dict[str, set[str]]) -> None:
    source = "from flux_trio.editions.journal import ANNOTATIONS\nfound = payload[ANNOTATIONS]"
    assert named_keys(source, KEYS, constants) == ["2: annotations"]


@pytest.mark.parametrize(
    "source",
    [
        "class Call(msgspec.Struct):\n    id: int",
        'key = job_key(1, "R")',
        'Note(kind, {"id": 1})',
        'self.notes.append((kind, {"id": 1}))',
        "class Row(Struct, array_like=True):\n    id: int\nDecoder(Row)",
        "jobid = free.id",
        'text = "id"',
    ],
)
def test_what_is_no_payload_may_use_the_word(source: str) -> None:
    assert named_keys(source, KEYS, {}) == []
