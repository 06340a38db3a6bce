"""Jobspecs that are made of a command, or updated."""

import copy
from typing import Any

import pytest

from flux_trio.formats import FormatError, Jobspec, apply_update
from tests.support.jobspecs import core, gpu, jobspec, node, slot, system

# Made and changed


def test_from_command_spreads_tasks_over_nodes() -> None:
    made = Jobspec.from_command(["app"], ntasks=5, nnodes=4, cores_per_task=2, gpus_per_task=1)
    assert made.to_json() == {
        "resources": [node(4, slot(2, core(2), gpu(1), label="task"))],
        "tasks": [{"command": ["app"], "slot": "task", "count": {"total": 5}}],
        "attributes": {"system": {"duration": 0}},
        "version": 1,
    }
    assert Jobspec.from_command(["app"], nnodes=3).ntasks == 3
    assert Jobspec.from_command(["app"]).ntasks == 1


def test_from_command_sets_attributes() -> None:
    made = Jobspec.from_command(
        ["app"],
        duration=60.0,
        cwd="/x",
        environment={"A": "1"},
        queue="debug",
        attributes={"system.exec.test.run_duration": "2s", "user.tag": "t"},
    )
    assert made.json["attributes"] == {
        "system": {
            "duration": 60.0,
            "cwd": "/x",
            "environment": {"A": "1"},
            "queue": "debug",
            "exec": {"test": {"run_duration": "2s"}},
        },
        "user": {"tag": "t"},
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exclusive": True}, "exclusive needs a number of nodes"),
        ({"nnodes": 3, "ntasks": 2}, r"nnodes \(3\) must not exceed ntasks \(2\)"),
        (
            {"ntasks": 0},
            r"jobspec\.resources\[0\]\.count: expected an integer of at least 1, got 0",
        ),
        (
            {"nnodes": 0},
            r"jobspec\.resources\[0\]\.count: expected an integer of at least 1, got 0",
        ),
        ({"cores_per_task": 0}, r"jobspec\.resources\[0\]\.with\[0\]\.count: expected"),
        ({"duration": -1.0}, r"jobspec\.attributes\.system\.duration: expected"),
    ],
)
def test_from_command_refuses_what_makes_no_jobspec(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Jobspec.from_command(["app"], **options)


def test_the_environment_can_be_left_out() -> None:
    whole = system(environment={"SECRET": "x"}, cwd="/x")
    before = copy.deepcopy(whole)
    parsed = Jobspec.parse(whole)
    assert parsed.without_environment() == system(cwd="/x")
    assert parsed.to_json() == before
    assert Jobspec.parse(jobspec()).without_environment() == jobspec()


def test_an_update_replaces_or_makes_the_value_at_a_dotted_path() -> None:
    """21.events.8, 21.events.9: the original is not changed, and objects are not merged."""
    original = jobspec()
    before = copy.deepcopy(original)
    updated = apply_update(original, "attributes.system.duration", 3600)
    assert Jobspec.parse(updated).duration == 3600.0
    updated = apply_update(updated, "attributes.system.exec.test.run_duration", "1s")
    assert Jobspec.parse(updated).attribute("system.exec.test.run_duration") == "1s"
    updated = apply_update(updated, "attributes.system.exec", {"other": 1})
    assert Jobspec.parse(updated).attribute("system.exec") == {"other": 1}
    assert original == before


def test_an_update_below_something_else_is_refused() -> None:
    with pytest.raises(
        FormatError, match=r"^attributes\.system\.duration: expected an object, got"
    ):
        apply_update(jobspec(), "attributes.system.duration.x", 1)


def test_the_place_of_an_error_begins_where_the_caller_says() -> None:
    with pytest.raises(FormatError, match=r"^payload\.jobspec\.version: expected"):
        Jobspec.parse({}, "payload.jobspec")


def test_a_command_in_one_text_is_refused() -> None:
    with pytest.raises(
        TypeError, match='command: expected a list of words, got the text "hostname -f"'
    ):
        Jobspec.from_command("hostname -f")
