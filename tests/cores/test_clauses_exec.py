"""RFC 32, the execution service's side: hello, what it takes, and each key of what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.turns import Exit
from flux_trio.formats import Idset, job_key
from flux_trio.messages import Errno, Request, Response, service_of, topics
from flux_trio.shell.protocol import Done
from tests.support.asking import asked_by_guest
from tests.support.exec_script import (
    START_AT,
    ExecScript,
    job_exception,
    jobspec,
    resources,
    start_request,
    to_shell,
)

JOBID = 1552593348  # of the RFC's examples
ENDS_WELL = jobspec(test={"run_duration": 0.0})
ENDINGS: dict[str, dict[str, Any]] = {
    "ends well": ENDS_WELL,
    "fails before it starts": jobspec(test={"mock_exception": "init"}),
    "fails while it runs": jobspec(test={"mock_exception": "run"}),
    "cannot be read": {},
}
EACH_ENDING = pytest.mark.parametrize("spec", ENDINGS.values(), ids=ENDINGS)


def answers(spec: dict[str, Any], *, ranks: str = "0", reattach: bool = False) -> list[Response]:
    """Every response to the start of a job that ends in the same turn."""
    r = resources(dict.fromkeys(Idset.parse(ranks), 1))
    return of_start(ExecScript().start(JOBID, spec, r, reattach=reattach))


def of_start(actions: list[Any]) -> list[Response]:
    return [a for a in actions if isinstance(a, Response) and a.topic == "job-exec.start"]


def objects(responses: list[Response]) -> list[dict[str, Any]]:
    """The payloads that are objects."""
    return [each.payload for each in responses if isinstance(each.payload, dict)]


def data_of(kind: str, responses: list[Response]) -> list[Any]:
    """The `data` of each response of that type, None where there is none."""
    return [each.get("data") for each in objects(responses) if each.get("type") == kind]


# Hello


def hello_of(core: ExecCore) -> Request:
    """The hello that is all that a service says at first."""
    actions = core.start(1.0)
    assert [type(action) for action in actions] == [Request]
    return actions[0]  # type: ignore[return-value]


@pytest.mark.parametrize("service", ["job-exec", "sim-exec"])
def test_hello_is_said_at_the_beginning(service: str) -> None:
    """32.hello.1: with the name of the service, which may be another one."""
    hello = hello_of(ExecCore(ExecConfig(), service=service))
    assert (hello.topic, hello.payload) == (topics.EXEC_HELLO, {"service": service})


def test_hello_is_an_ordinary_request() -> None:
    """32.impl.8, 32.hello.9: with a matchtag, answered once; an errnum ends the service, whatever
    else it says.
    """
    core = ExecCore(ExecConfig())
    hello = hello_of(core)
    assert hello.matchtag != 0
    assert hello.wants_response
    assert not hello.is_streaming
    assert core.turn(1.0, [Response(hello.topic, {}, 0, hello.matchtag + 1)]) == []
    refused = Response(hello.topic, "starts are outstanding", Errno.EINVAL, hello.matchtag)
    assert [type(action) for action in core.turn(1.0, [refused])] == [Exit]


# Start requests


def test_a_guest_launches_nothing() -> None:
    """32.background.1: shells are launched at the job manager's request alone."""
    script = ExecScript()
    script.put_resources(JOBID, resources())
    actions = script(asked_by_guest("job-exec.start", start_request(JOBID, jobspec()).payload))
    assert to_shell(actions) == []
    assert [answer.errnum for answer in of_start(actions)] == [Errno.EPERM]


def test_exec_asks_neither_the_scheduler_nor_others_that_it_has_no_protocol_with() -> None:
    """32.criteria.1"""
    script = ExecScript()
    actions = script.start(JOBID, ENDS_WELL)
    actions += script.start(8, jobspec(test={"run_duration": 60.0}))
    actions += script(job_exception(8))
    asks = {service_of(each.topic) for each in actions if isinstance(each, Request)}
    assert asks <= {topics.JOB_MANAGER, topics.KVS, topics.RESOURCE}


def test_the_guests_data_is_stored_below_guest_before_the_end_is_told() -> None:
    """16.schema.10, 16.schema.11"""
    script = ExecScript()
    script.started(JOBID, jobspec())
    actions: list[Any] = script.core.turn(START_AT, [Done(JOBID, 0, 1)])
    assert of_start(actions) == []
    ops = [op for each in actions if each.topic == topics.KVS_COMMIT for op in each.payload["ops"]]
    assert {op[1] for op in ops} == {
        job_key(JOBID, "guest.exec.eventlog"),
        job_key(JOBID, "guest.output"),
    }


# What every answer has


@EACH_ENDING
def test_every_answer_is_an_object_with_id_type_and_data(spec: dict[str, Any]) -> None:
    """32.impl.3, 32.start.12-15: none is a bare acknowledgement. 32.impl.5: an error would end
    the whole service, so what fails is an exception.
    """
    told = answers(spec)
    assert told
    for each in told:
        assert each.errnum == 0
        assert isinstance(each.payload, dict)
        assert each.payload.get("id") == JOBID
        assert isinstance(each.payload.get("type"), str)
        assert isinstance(each.payload.get("data"), dict)


@pytest.mark.parametrize("reattach", [False, True])
def test_every_answer_has_a_type_of_the_edition(reattach: bool) -> None:
    """32.start.16: the classic one does not have `reattached`."""
    types = {each.get("type") for each in objects(answers(ENDS_WELL, reattach=reattach))}
    assert types <= {"start", "release", "exception", "finish"}


# The data of each type


def test_data_of_start_is_empty() -> None:
    """32.start.18, 32.background.2, 16.schema.9: it has no R, which is read from the kvs."""
    assert data_of("start", answers(ENDS_WELL)) == [{}]


@pytest.mark.parametrize("ranks", ["0", "0-2", "3-4,9"])
def test_ranks_of_a_release_are_the_jobs_targets(ranks: str) -> None:
    """32.start.20: an idset of them."""
    released = data_of("release", answers(ENDS_WELL, ranks=ranks))
    assert [each.get("ranks") for each in released] == [ranks]


@pytest.mark.parametrize("mock", ["init", "run"])
def test_exception_has_a_type_and_the_severity_of_a_fatal_one(mock: str) -> None:
    """32.start.25, 32.start.26"""
    raised = data_of("exception", answers(jobspec(test={"mock_exception": mock})))
    assert [(each.get("severity"), type(each.get("type"))) for each in raised] == [(0, str)]


@pytest.mark.parametrize("status", [0, 15, 143, 256])
def test_status_of_finish_is_the_wait_status(status: int) -> None:
    """32.start.31"""
    spec = jobspec(test={"run_duration": 0.0, "wait_status": status})
    assert data_of("finish", answers(spec)) == [{"status": status}]


# Which answers there are


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"run_duration": 0.0}, ["start", "finish", "release"]),
        ({"run_duration": 0.0, "wait_status": 256}, ["start", "finish", "release"]),
        ({"mock_exception": "init"}, ["exception", "release"]),
        ({"mock_exception": "run"}, ["start", "exception", "finish", "release"]),
    ],
)
def test_start_and_finish_are_left_out_only_after_a_fatal_exception(
    test: dict[str, Any], expected: list[str]
) -> None:
    """32.start.35"""
    assert [each.get("type") for each in objects(answers(jobspec(test=test)))] == expected


@EACH_ENDING
def test_every_start_gets_a_final_release_as_its_last_answer(spec: dict[str, Any]) -> None:
    """32.start.21, 32.start.36, 32.start.37: also if the job could not be started."""
    told = answers(spec)
    assert [each.get("final") for each in data_of("release", told)] == [True]
    assert objects(told)[-1]["type"] == "release"
