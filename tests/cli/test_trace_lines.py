from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.cli.admin.trace_lines import size_text, trace_line
from flux_trio.formats import treeobj
from flux_trio.trace.kvs import text_of

REQUEST = {
    "timestamp": 1.0625,
    "prefix": "rx",
    "name": "sched",
    "type": "request",
    "topic": "sched.alloc",
    "payload_size": 456,
}
RESPONSE = {**REQUEST, "prefix": "tx", "type": "response", "errnum": 0, "errstr": ""}


def said(told: dict[str, Any], width: int = 0) -> str:
    """The line without its time, which is local."""
    time, _, rest = trace_line(told, width).partition(" ")
    assert time.endswith(":01.062")
    return rest


def test_a_request_shows_module_direction_type_topic_and_size() -> None:
    assert said(REQUEST) == "sched rx > sched.alloc [456]"
    assert said(REQUEST, 11) == "      sched rx > sched.alloc [456]"
    assert said({**REQUEST, "type": "event"}) == "sched rx e sched.alloc [456]"


def test_a_response_shows_how_it_went() -> None:
    assert said(RESPONSE) == "sched tx < sched.alloc [456] success"
    failed = {**RESPONSE, "errnum": 38, "errstr": "no such thing"}
    assert said(failed) == "sched tx < sched.alloc [456] ENOSYS\nno such thing"
    assert said({**RESPONSE, "errnum": 9999}).endswith("errno 9999")


def test_a_payload_is_below_its_line() -> None:
    assert said({**REQUEST, "payload": {"id": 1}}).endswith('[456]\n{\n  "id": 1\n}')


def test_values_of_flux_cores_kvs_are_shown_as_text() -> None:
    log = '{"timestamp":1.0,"name":"init"}\n'
    told = {**REQUEST, "topic": "kvs.commit", "payload": {"ops": [{"dirent": treeobj.val(log)}]}}
    shown = json.loads(trace_line(told).partition("\n")[2])
    assert shown == {"ops": [{"dirent": {"ver": 1, "type": "val", "text": log}}]}
    assert text_of(shown["ops"][0]["dirent"]) == log  # so that `check` reads what was printed


def test_what_is_missing_is_said() -> None:
    assert trace_line({"lost": 5}) == "(5 messages are missing here: they came too fast)"


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0"), (1023, "1023"), (1024, "1K"), (1536, "1.5K"), (1 << 20, "1M")]
)
def test_sizes_are_in_units_of_1024(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text
