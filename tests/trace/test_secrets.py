"""New tokens, and environments of jobs wherever they are, are left out of a trace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.formats import treeobj
from flux_trio.trace.secrets import (
    action_without_environments,
    lines_without_secrets,
    value_without_environments,
)

SECRET = "hunter2"
VARIABLES = {"TOKEN": SECRET, "UNSET": None}


def text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def jobspec(environment: Any) -> dict[str, Any]:
    system = {"duration": 1.5, "environment": environment, "queue": "a"}
    return {"version": 1, "attributes": {"system": system, "user": {}}}


def both(make: Any) -> tuple[Any, Any]:
    return make(VARIABLES), make({})


def update(environment: Any) -> Any:
    return {"attributes.system.environment": environment}


PLACES = {
    "a jobspec in a payload": both(lambda env: {"jobspec": jobspec(env), "urgency": 16}),
    "a text in a commit": both(lambda env: {"ops": [["put", "job.7.jobspec", text(jobspec(env))]]}),
    **{
        f"a treeobj, {pad} bytes further": both(
            lambda env, pad=pad: {"val": treeobj.val(text({"y" * pad: 1, **jobspec(env)}))}
        )
        for pad in range(3)
    },
    "a treeobj in a commit": both(
        lambda env: {"ops": [{"key": "a", "flags": 0, "dirent": treeobj.val(text(jobspec(env)))}]}
    ),
    "a text in a text": both(lambda env: {"value": text({"again": text(jobspec(env))})}),
    "an update": both(lambda env: {"updates": update(env)}),
    "an eventlog": both(
        lambda env: {
            "eventlog": text({"name": "submit"})
            + "\n"
            + text({"name": "jobspec-update", "context": update(env)})
            + "\n"
        }
    ),
    "an update of one variable": (
        {"updates": {"attributes.system.environment.TOKEN": SECRET}},
        {"updates": {"attributes.system.environment.TOKEN": ""}},
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_environment_is_left_out(place: str) -> None:
    whole, left = PLACES[place]
    assert value_without_environments(whole) == left
    assert value_without_environments(left) == left
    lines = "\n".join([text({"n": 1}), text(whole), text({"n": 2}), ""]).encode()
    shown = lines_without_secrets(lines, environments=False)
    assert lines_without_secrets(lines, environments=True) == lines
    assert shown == "\n".join([text({"n": 1}), text(left), text({"n": 2}), ""]).encode()
    assert SECRET not in shown.decode()


@pytest.mark.parametrize(
    "value",
    [
        {"environment": VARIABLES},  # of no system
        {"system": {"environment": "no object"}},
        {"text": "an environment, {not JSON"},
        {"text": '{"spaces":   "stay"}'},
        {"text": '{"spaces":   "beside an environment stay"}'},
    ],
)
def test_what_is_no_environment_of_a_job_stays(value: dict[str, Any]) -> None:
    assert value_without_environments({"x": value}) == {"x": value}


def test_what_a_core_goes_by_and_what_it_refuses_stays() -> None:
    given = {"FLUX_F58_FORCE_ASCII": "1", "TOKEN": SECRET, "WRONG": 5}
    left = value_without_environments(jobspec(given))["attributes"]["system"]["environment"]
    assert left == {"FLUX_F58_FORCE_ASCII": "1", "WRONG": 5}


def test_action_that_starts_processes_has_no_environment() -> None:
    task = {"taskid": 0, "env": VARIABLES}
    start = {"request": {"id": 7, "argv": ["env"], "env": VARIABLES, "tasks": [task]}}
    left = {"request": {"id": 7, "argv": ["env"], "env": {}, "tasks": [{"taskid": 0, "env": {}}]}}
    assert action_without_environments(text(start).encode()) == text(left).encode()


@pytest.mark.parametrize("environments", [False, True])
def test_token_that_the_broker_makes_is_left_out(environments: bool) -> None:
    def record(topic: str, payload: Any) -> dict[str, Any]:
        return {"n": 1, "message": {"topic": topic, "payload": payload, "errnum": 0}}

    stays = [
        record("broker.token", {"userid": 500, "name": "ann"}),
        record("broker.token", "an error"),
        record("broker.token-revoke", {"token": "x"}),
        record("other.token", {"token": "x"}),
    ]
    lines = [text(each).encode() for each in [record("broker.token", {"token": SECRET}), *stays]]
    shown = lines_without_secrets(b"\n".join(lines), environments=environments).split(b"\n")
    assert shown == [text(record("broker.token", {"token": ""})).encode(), *lines[1:]]
