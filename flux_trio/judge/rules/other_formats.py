"""RFC 19, 22, 29 and 31: how job ids, idsets, hostlists and constraints are spelled in messages.

The texts are read character by character, because our own parser would accept its own mistakes. Ids
are judged in keys of the KVS, constraints in the jobspec that is sent to the scheduler.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from flux_trio.judge.checks.jobspecs import system
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, once, payload, sent, topic_of
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.execution import START, data_of
from flux_trio.judge.views.kvs import commit_ops
from flux_trio.judge.views.resource_sets import ALLOCATING, allocated, children, entries, execution
from flux_trio.judge.views.traits import says
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

COMMIT: Final = sent("request", *topics.COMMITS)
ACQUIRED: Final = sent("response", topics.RESOURCE_ACQUIRE)
RELEASED: Final = sent("response", START, mark=says("release"))

_TARGETS: Final = ("targets", "up", "down", "shrink")
"""The keys of targets in responses to acquire, of either edition."""

Text = tuple[str, str]
"""A text to check, after words that say what it is."""


# --- where they are


@once
def _sets_of_resources(record: Record) -> list[tuple[str, Any]]:
    """What each is of, and its JSON value."""
    grown = payload(record).get("resources")
    if grown is not None:
        return [] if errnum(record) else [("resources in resource.acquire", grown)]
    return [(r.what, r.value) for r in allocated(record)]


def _idsets(record: Record, _seen: Seen) -> Iterator[Text]:
    for what, r in _sets_of_resources(record):
        for entry in entries(r):
            owners = ((entry, "rank"), (children(entry), "core"), (children(entry), "gpu"))
            yield from _texts(what, owners)
    content, data = payload(record), data_of(record)
    keys = [(content, key) for key in _TARGETS if content.get(key) != "all"]
    keys += [(data, "ranks")] if data.get("ranks") != "all" else []
    yield from _texts(f"{topic_of(record)} response", keys)


def _texts(what: str, owners: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Text]:
    for owner, key in owners:
        if isinstance(owner.get(key), str):
            yield f"{what}: {key}", owner[key]


def _hostlists(record: Record, _seen: Seen) -> Iterator[Text]:
    for what, r in _sets_of_resources(record):
        found = execution(r).get("nodelist")
        for each in found if isinstance(found, list) else ():
            if isinstance(each, str):
                yield f"{what}: nodelist", each


def _constraints(record: Record, _seen: Seen) -> Iterator[tuple[str, Any]]:
    found = system(payload(record).get("jobspec"))
    if "constraints" in found:
        yield f"jobspec of job {job_id(record)}: constraints", found["constraints"]


# --- their forms


def _spelled(
    clause: str,
    selectors: Iterable[Any],
    of: Callable[[Record, Seen], Iterator[Text]],
    fits: Callable[[str], bool],
    expected: str,
) -> None:
    """Register `clause`: each of these texts fits; `expected` describes a fitting text."""

    @RULES.each(clause, selectors, of=of)
    def check(subject: Text) -> Finding:
        what, text = subject
        return fits(text) or Broken(f"{what}: expected {expected}, got {text!r:.80}")


IDS: Final = (*ALLOCATING, *ACQUIRED, *RELEASED)
HOSTS: Final = (*ALLOCATING, *ACQUIRED)

DIGITS_MAX: Final = 20  # more than any id has

_NUMBERS: Final = re.compile("[0-9]+")


def _numbers(text: str) -> list[int]:
    return [int(each[:DIGITS_MAX]) for each in _NUMBERS.findall(text)]


def _ascends(text: str) -> bool:
    """Whether the ids ascend without duplicates."""
    numbers = _numbers(text)
    return all(left < right for left, right in itertools.pairwise(numbers))


def _is_separated(text: str) -> bool:
    ids = text.removeprefix("[").removesuffix("]")
    return not ids or all(re.fullmatch("[^,-]+(-[^,-]+)?", each) for each in ids.split(","))


_spelled(
    "22.idset.1",
    IDS,
    _idsets,
    lambda text: len(set(_numbers(text))) == len(_numbers(text)),
    "each id once",
)
_spelled(
    "22.idset.2",
    IDS,
    _idsets,
    lambda text: _ascends(text) and _is_separated(text),
    "ids in ascending order, with commas between them",
)
_spelled(
    "22.idset.3",
    IDS,
    _idsets,
    lambda text: re.search("[^0-9,\\[\\]-]", text) is None,
    "decimal numbers",
)
_spelled(
    "22.idset.4",
    IDS,
    _idsets,
    lambda text: not any(len(each) > 1 and each[0] == "0" for each in _NUMBERS.findall(text)),
    "no leading zeroes",
)
_spelled(
    "22.idset.7",
    IDS,
    _idsets,
    lambda text: set(text) <= set("0123456789,-[]"),
    "digits, commas, hyphens and brackets alone",
)

_EXPRESSION: Final = re.compile(r"[^\[\],]*(\[[^\[\]]*\][^\[\],]*)?")
_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")


def _expressions(text: str) -> list[str] | None:
    """Split at commas outside brackets; None if the brackets do not match."""
    parts = re.split(r",(?![^\[]*\])", text)
    return parts if all(_EXPRESSION.fullmatch(part) for part in parts) else None


def _id_lists(text: str) -> list[str]:
    return [each for found in _BRACKETS.findall(text) for each in found.split(",")]


_spelled(
    "29.hostlist.2",
    HOSTS,
    _hostlists,
    lambda text: not text or all(_expressions(text) or ("",)),
    "hostlist expressions with commas between them",
)
_spelled(
    "29.hostlist.3",
    HOSTS,
    _hostlists,
    lambda text: _expressions(text) is not None,
    "prefix[idlist]suffix for each expression",
)
_spelled(
    "29.hostlist.5",
    HOSTS,
    _hostlists,
    lambda text: re.fullmatch("[!-~]*", _BRACKETS.sub("", text)) is not None,
    "names of printable ASCII without blanks",
)
_spelled(
    "29.hostlist.6",
    HOSTS,
    _hostlists,
    lambda text: all(re.fullmatch("[0-9]+(-[0-9]+)?", each) for each in _id_lists(text)),
    "numbers and ranges in the brackets",
)
_spelled(
    "29.hostlist.10",
    HOSTS,
    _hostlists,
    lambda text: text.count("[") == text.count("]"),
    "the ids of an expression in brackets",
)
_JOB_KEY: Final = re.compile(r"job(\.[0-9a-f]{4}){4}(\.|$)")
KEYS_MAX: Final = 1024  # keys that are remembered: those of a job come again and again


@functools.lru_cache(maxsize=KEYS_MAX)
def _is_job_key(key: str) -> bool:
    return _JOB_KEY.match(key) is not None


@RULES.judge("19.fluid.6", COMMIT)
def keys_of_jobs_have_their_ids(record: Record, _seen: Seen) -> Finding:
    kept = None
    for _, found, _ in commit_ops(record):
        key = str(found)
        if not key.startswith("job."):
            continue
        if not _is_job_key(key):
            expected = "16 hex digits in groups of four with periods between them"
            return Broken(f"key of a job: expected {expected}, got {key!r:.80}")
        kept = True
    return kept


@RULES.each("31.constraints.1", sent("request", topics.SCHED_ALLOC), of=_constraints)
def an_operator_with_its_values(subject: tuple[str, Any]) -> Finding:
    what, found = subject
    fits = isinstance(found, dict) and all(isinstance(each, list) for each in found.values())
    return fits or Broken(f"{what}: expected an object {{operator: [values]}}, got {found!r:.80}")
