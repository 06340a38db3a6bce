"""Editions hold every key: cores name none of a payload that an RFC describes."""

from __future__ import annotations

from pathlib import Path

import pytest

import flux_trio
from flux_trio.editions import rfc21, rfc27, rfc28, rfc32
from tests.support.payload_keys import constants_in, keys_of, named_keys

CORES = Path(flux_trio.__file__).parent / "cores"
CONVERTED = (
    "exec",
    "ingest",
    "job_manager/execution",
    "job_manager/hooks",
    "job_manager/scheduler",
    "resource",
    "sched",
)
OTHER_FORMATS = (
    "exec/attach.py",  # the attach request is this service's own, and names a job
    "exec/output.py",  # RFC 24
    "exec/placement.py",  # shell options of a jobspec
    "exec/redirects.py",  # shell options of a jobspec
    "exec/templates.py",  # names that a user's template may use
)
KEYS = keys_of([rfc21, rfc27, rfc28, rfc32])
FILES = [
    path
    for name in CONVERTED
    for path in sorted((CORES / name).glob("**/*.py"))
    if str(path.relative_to(CORES)) not in OTHER_FORMATS
]
CONSTANTS = constants_in(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CORES)))
def test_core_names_no_payload_key(path: Path) -> None:
    assert named_keys(path.read_text(), KEYS, CONSTANTS) == []


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
    assert len(named_keys(source, KEYS, {"ID": "id"})) == 1


@pytest.mark.parametrize(
    "source",
    [
        "class Call(msgspec.Struct):\n    id: int",
        'key = job_key(1, "R")',
        'Note(kind, {"id": 1})',
        "jobid = free.id",
        'text = "id"',
    ],
)
def test_what_is_no_payload_may_use_the_word(source: str) -> None:
    assert named_keys(source, KEYS, {}) == []
