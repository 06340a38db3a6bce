"""What real flux-core said, as records for the judge: whole, or changed.

A recording is one JSON object with the messages in router order and the eventlog of each job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_trio.judge import Judgement, judge_trace, load_clauses
from flux_trio.judge.known import load_shipped, sort_known
from flux_trio.judge.rules import CURRENT_RULES, ROUTED_RULES
from flux_trio.trace import Record, Source, read_trace, record_to_json

DATA: Final = Path(__file__).parent.parent / "data" / "messages"
TRACES: Final = DATA.with_name("module-traces")
KNOWN: Final = load_shipped("flux-core-0.88")
FLUXION: Final = load_shipped("fluxion-0.54")
NEED_HEADERS: Final = frozenset({"6.matchtag.3"})
"""Departures that only the trace of a tap shows: `tests/judge/test_tapped.py` has their faults."""
RULES: Final = (*CURRENT_RULES, *ROUTED_RULES)
_CLAUSES: Final = load_clauses()

RecordingJson = dict[str, Any]
"""A recording as decoded JSON."""


def numbers() -> list[str]:
    """The numbers of the recordings, as the files are named."""
    return sorted(path.name.partition("-")[0] for path in DATA.glob("*.json"))


@functools.cache
def text_of(number: str) -> bytes:
    """The recording as JSON."""
    (path,) = DATA.glob(f"{number}-*.json")
    return path.read_bytes()


def recording(number: str) -> RecordingJson:
    """The recording; a new value each time, which may be changed."""
    found: RecordingJson = msgspec.json.decode(text_of(number))
    return found


@functools.cache
def module_trace(name: str) -> str:
    """What `flux module trace --full` printed: a file of `tests/data/module-traces`."""
    return (TRACES / name).read_text(encoding="utf-8")


def lines_of(records: Iterable[Record]) -> list[str]:
    """The records as lines of JSON."""
    return [record_to_json(each).decode() + "\n" for each in records]


def judged(told: RecordingJson, *, at_rest: bool = False) -> Judgement:
    """Judge a recording by the current edition, without what is known of flux-core 0.88."""
    return judged_source(read_trace([msgspec.json.encode(told).decode()]), at_rest=at_rest)


def judged_source(source: Source, *, at_rest: bool = False) -> Judgement:
    """Judge a trace of flux-core in the same way."""
    judgement = judge_trace(source, RULES, _CLAUSES, classic=False, at_rest=at_rest)
    return sort_known(judgement, KNOWN)


def broken(told: RecordingJson, *, at_rest: bool = False) -> set[str]:
    """The clauses that are broken."""
    return {each.clause for each in judged(told, at_rest=at_rest).violations}


def messages(told: RecordingJson, topic: str, type_: str, **keys: Any) -> list[Any]:
    """The messages of a topic that are no errors; `keys` are keys of the payload."""
    return [
        each
        for each in told["messages"]
        if (each["topic"], each["type"]) == (topic, type_)
        and not each.get("errnum")
        and all(each.get("payload", {}).get(key) == value for key, value in keys.items())
    ]


def first(told: RecordingJson, topic: str, type_: str, **keys: Any) -> Any:
    """The payload of the first of them."""
    return messages(told, topic, type_, **keys)[0]["payload"]
