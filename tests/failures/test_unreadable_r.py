"""A scheduler that writes an R which cannot be read, in this process and in one of its own.

RFC 20 is read from the text both times: that the writer is next door excuses nothing.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from trio.testing import MockClock

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import FormatError, Idset, ResourceSet, format_r, job_key
from flux_trio.messages import topics
from flux_trio.policies.shape import Allocation
from flux_trio.testing.fakes import FakeScheduler
from tests.support.breaking import named
from tests.support.failing import scene, settle
from tests.support.instance import ROOT

# the clauses broken; what is changed in an R of one core of rank 0; what the log says
UNREADABLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "more hosts than ranks": (
        "20.nodelist.3",
        {"hostnames": ("node0", "node1")},
        "R.execution.nodelist: expected 1 hosts, one for each rank, got more than 1",
    ),
    "a property of a rank that is not in it": (
        "20.properties.2",
        {"properties": {"big": Idset.parse("0-1")}},
        "R.execution.properties.big: expected ranks that R_lite names, got also 1",
    ),
    "a property whose name has a forbidden character": (
        "20.properties.5",
        {"properties": {"a!b": Idset.parse("0")}},
        "R.execution.properties: expected a property name in UTF-8 without any of "
        """! & ' " ^ ` | ( ), got "a!b\"""",
    ),
    "a time before all times": (
        "20.starttime.3",
        {"starttime": -5.0},
        "R.execution.starttime: expected a number of seconds, at least 0, got -5.0",
    ),
    "a time after all times": (
        "20.expiration.1",
        {"expiration": math.inf},
        "R.execution.expiration: expected a number of seconds, at least 0, got None",
    ),
    "a time that is no number": (
        "20.expiration.1",
        {"expiration": math.nan},
        "R.execution.expiration: expected a number of seconds, at least 0, got None",
    ),
    "a writer that is no URI": (
        "20.scheduling.2",
        {"scheduling": {"writer": "9"}},
        'R.scheduling.writer: expected a URI that begins with a scheme, got "9"',
    ),
}


def resources(what: str) -> ResourceSet:
    """A set that no reader of its text accepts."""
    changed: dict[str, Any] = {
        "groups": ResourceSet.build([(0, 1, 0)], str).groups,
        "hostnames": ("node0",),
        "starttime": 1.0,
    }
    return ResourceSet(**(changed | UNREADABLE[what][1]))


def print_texts() -> None:
    """What a scheduler in a process of its own has written, by name."""
    print(json.dumps({what: format_r(resources(what)) for what in UNREADABLE}))


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, str]:
    program = f"from {__name__} import print_texts; print_texts()"
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    texts: dict[str, str] = json.loads(told.stdout)
    return texts


@pytest.mark.parametrize("what", named(UNREADABLE))
async def test_r_that_cannot_be_read_is_refused_whoever_wrote_it(
    autojump_clock: MockClock, elsewhere: dict[str, str], what: str
) -> None:
    """27.success.1: the writer may still hold the set, and its text is judged all the same."""
    written = resources(what)
    text = format_r(written)
    assert text == elsewhere[what]
    with pytest.raises(FormatError):
        ResourceSet.parse(text.encode())
    refused = await outcome(text)
    assert refused == await outcome(elsewhere[what])
    check_refused(what, *refused)


@pytest.mark.parametrize("what", named(UNREADABLE))
async def test_r_of_the_scheduler_in_this_process_is_judged_by_its_text(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, str], what: str
) -> None:
    """27.success.1: our own scheduler fares as one that has written the same elsewhere."""
    monkeypatch.setattr(Allocation, "resource_set", lambda *_: resources(what))
    async with scene() as s:
        jobid = await s.submit()
        refused = s.log(), await s.events(jobid)
    check_refused(what, *refused)
    assert refused == await outcome(elsewhere[what])


def check_refused(what: str, log: list[str], events: list[str]) -> None:
    """Scheduling is suspended for the reason in the table, and the job stays pending."""
    assert events[-1] == "priority"
    assert [line.partition(": R")[2] for line in log] == [UNREADABLE[what][2].removeprefix("R")]


async def outcome(text: str) -> tuple[list[str], list[str]]:
    """The log, and the events of a job, after a grant of what `text` says."""
    async with scene(("sched",)) as s:
        sched = FakeScheduler()
        await s.load("sched", sched)
        jobid = await s.submit()
        await sched.handle.call(topics.KVS_COMMIT, {"ops": [["put", job_key(jobid, "R"), text]]})
        sched.answer(jobid, AllocType.SUCCESS)
        await settle()
        return s.log(), await s.events(jobid)
