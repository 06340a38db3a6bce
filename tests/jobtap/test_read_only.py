"""What plugins are given of a job: values that no plugin can change for the others."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from flux_trio import jobtap
from flux_trio.formats import Jobspec
from flux_trio.jobtap import NotAllowed
from tests.support.plugin_host import JOB, PRIORITY, chain, handling, rig

SPOILED: dict[str, Callable[[Any], object]] = {
    "append": lambda tasks: tasks.append({}),
    "clear": lambda tasks: tasks.clear(),
    "extend": lambda tasks: tasks.extend([{}]),
    "insert": lambda tasks: tasks.insert(0, {}),
    "pop": lambda tasks: tasks.pop(),
    "remove": lambda tasks: tasks.remove(tasks[0]),
    "reverse": lambda tasks: tasks.reverse(),
    "sort": lambda tasks: tasks.sort(key=repr),
    "+=": lambda tasks: operator.iadd(tasks, [{}]),
    "*=": lambda tasks: operator.imul(tasks, 2),
    "[0] =": lambda tasks: operator.setitem(tasks, 0, {}),
    "[:] =": lambda tasks: operator.setitem(tasks, slice(None), []),
    "del [0]": lambda tasks: operator.delitem(tasks, 0),
    "an inner list": lambda tasks: tasks[0]["command"].append("-f"),
    "an inner object": lambda tasks: tasks[0].update(slot="other"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
async def test_list_in_a_jobspec_refuses_every_change(spoil: Callable[[Any], object]) -> None:
    """Later jobs with an equal jobspec show the same list."""
    seen: list[Any] = []

    def change(job: jobtap.Job) -> None:
        with pytest.raises(NotAllowed, match=r"changed with job\.update"):
            spoil(job.jobspec.json["tasks"])

    def look(job: jobtap.Job) -> None:
        seen.append(job.jobspec.json == job.raw_jobspec)

    async with rig(*chain(PRIORITY, change, look)) as r:
        assert r.answer().error is None
        assert r.answer(job=replace(JOB, id=8)).error is None
    assert seen == [True, True]


async def test_what_was_read_in_a_jobspec_refuses_every_change() -> None:
    def change(job: jobtap.Job) -> None:
        resources: Any = job.jobspec.resources
        (slot,) = resources.slots.values()
        for values in (resources.totals, resources.slots, slot.counts, job.jobspec.tasks[0].count):
            with pytest.raises(NotAllowed, match=r"changed with job\.update"):
                values.clear()
        with pytest.raises(AttributeError):
            resources.exclusive = True

    async with rig(handling(PRIORITY, change)) as r:
        assert r.answer().error is None


async def test_jobspec_that_cannot_be_changed_is_plain_json() -> None:
    """It is encoded, compared, parsed, taken apart and copied as any other."""

    def use(job: jobtap.Job) -> None:
        jobspec, plain = job.jobspec.json, job.raw_jobspec
        assert json.loads(json.dumps(jobspec)) == plain
        assert msgspec.json.decode(msgspec.json.encode(jobspec)) == plain
        assert msgspec.to_builtins(jobspec) == plain
        assert Jobspec.parse(jobspec) == Jobspec.parse(plain)
        tasks = jobspec["tasks"]
        assert isinstance(tasks, list)
        assert tasks == plain["tasks"]
        assert type(tasks + tasks) is type(tasks[:1]) is list
        match jobspec:
            case {"tasks": [{"command": [command, *_]}]}:
                assert command == "true"
            case _:
                pytest.fail("a pattern does not match")
        for copied in (copy.copy(tasks), copy.copy(jobspec), tasks.copy()):
            copied.clear()
        for copied in (copy.deepcopy(jobspec), pickle.loads(pickle.dumps(jobspec))):
            copied["tasks"][0]["command"].append("-f")
        assert jobspec == plain

    async with rig(handling(PRIORITY, use)) as r:
        assert r.answer().error is None
