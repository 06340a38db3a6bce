"""What our execution service and flux-core say to each other beside RFC 32, in either's shapes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from flux_trio.cores.exec.inputs import INPUT_BYTES_MAX, WAITING_BYTES_MAX
from flux_trio.cores.turns import SetTimer
from flux_trio.formats import job_key
from flux_trio.messages import ROLE_OWNER, ROLE_USER, Errno, Event, Request, Response, topics
from flux_trio.shell.protocol import Fed, Feed, Identify, Processes, Signal, Start
from tests.support.asking import OWNER_USERID
from tests.support.bridge_script import MANAGER, SERVICE, START, BridgeScript, j
from tests.support.eventlogs import event
from tests.support.exec_script import jobspec, resources

ROUTES = ("client", "broker")
ENOSYS = int(Errno.ENOSYS)


@pytest.fixture
def script() -> BridgeScript:
    """A script in which job 7 runs."""
    script = BridgeScript()
    script.start()
    script.launched()
    return script


def stdin(script: BridgeScript, data: str | None = "hi", tag: int = 3, **more: Any) -> None:
    payload = {"stream": "stdin", "rank": "all", **({} if data is None else {"data": data})}
    script.broker_says(
        Request(
            "1000-shell-f8.stdin",
            payload | more,
            tag,
            userid=OWNER_USERID,
            rolemask=ROLE_OWNER,
            routes=ROUTES,
        )
    )


def input_answers(script: BridgeScript) -> list[tuple[int, int, Any]]:
    """Matchtag, errnum and text of each answer to a request for input."""
    found = [
        each
        for each in script.sent
        if isinstance(each, Response) and each.topic == "1000-shell-f8.stdin"
    ]
    assert {each.routes for each in found} <= {ROUTES}
    return [(each.matchtag, each.errnum, each.payload) for each in found]


def test_service_says_hello_with_its_name_and_is_ready_when_accepted() -> None:
    script = BridgeScript()
    assert script.is_ready
    assert script.end == ""


@pytest.mark.parametrize(
    ("errnum", "said", "text"),
    [
        (22, None, "refused: jobs of the execution service that flux-core has are under way"),
        (1, "not you", "not you"),
        (38, None, "there is no job manager, or it has left"),
    ],
)
def test_refused_hello_ends_the_service_with_the_reason(errnum: int, said: Any, text: str) -> None:
    """32.hello.9."""
    refused = BridgeScript.refused(errnum, said)
    assert refused.exits == [f"job-manager.exec-hello: {text}"]
    assert not refused.is_ready


# Environment and jobspec


def test_tasks_have_the_environment_in_j_and_know_their_place_in_flux_core() -> None:
    script = BridgeScript()
    script.kvs.spaces["primary"][job_key(7, "J")] = j(
        jobspec("true"), {"A": "b", "FLUX_PROXY_REMOTE": "host", "FLUX_KVS_NAMESPACE": "other"}
    )
    script.start()
    (start,) = script.shell
    assert isinstance(start, Start)
    assert start.env["A"] == "b"
    assert "FLUX_PROXY_REMOTE" not in start.env
    assert start.env["FLUX_KVS_NAMESPACE"] == "job-7"
    assert start.env["FLUX_JOB_ID_PATH"] == "/ƒ8"
    assert start.env["FLUX_JOB_ID"] == "ƒ8"


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("a.b", 'J: expected 3 parts that dots separate, got "a.b"'),
        ("a.%.none", "J: expected a jobspec in base64"),
        (f"a.{base64.b64encode(b'[]').decode()}.none", "expected"),
    ],
)
def test_j_that_cannot_be_read_fails_the_job_and_says_why(stored: str, text: str) -> None:
    script = BridgeScript()
    script.kvs.spaces["primary"][job_key(7, "J")] = stored
    script.start()
    (kind, raised), (last, _) = script.answers()
    assert (kind, last) == ("exception", "release")
    assert text in raised["note"]


@pytest.mark.parametrize(
    ("words", "system", "text"),
    [
        (["flux", "broker", "--setattr=a=b"], {}, "runs no instances as jobs (flux batch, flux"),
        (["/usr/bin/flux", "broker"], {}, "runs no instances as jobs (flux batch, flux alloc)"),
        (["cat"], {"files.script": {"data": "x"}}, "brings no files to a job: script"),
        (["sh"], {"shell.options.pty.interactive": 1}, "gives tasks no pseudo terminal"),
    ],
)
def test_job_that_needs_what_is_left_out_fails_at_once_with_a_sentence(
    words: list[str], system: dict[str, Any], text: str
) -> None:
    script = BridgeScript()
    attributes = {f"system.{key}": value for key, value in system.items()}
    script.start(spec=jobspec(*words, attributes=attributes))
    (kind, raised), (last, released) = script.answers()
    assert (kind, raised["severity"], last) == ("exception", 0, "release")
    assert f"flux-trio attach exec {text}" in raised["note"]
    assert released == {"ranks": "0", "final": True}
    assert script.shell == []
    assert list(script.kvs.spaces) == ["primary"]


def test_start_that_cannot_be_read_fails_its_job_and_leaves_no_room() -> None:
    "R of a job whose duration is shorter than its start time can tell."
    script = BridgeScript()
    r = resources(starttime=105.0).to_json()
    r["execution"]["expiration"] = 105.0
    request = Request(
        START,
        {"id": 7, "userid": 0, "jobspec": jobspec("true"), "reattach": False, "R": r},
        rolemask=ROLE_OWNER,
        routes=MANAGER,
    )
    script.broker_says(request)
    (kind, raised), (last, released) = script.answers()
    assert (kind, raised["severity"], last) == ("exception", 0, "release")
    assert "R.execution.expiration: expected a time after starttime 105.0" in raised["note"]
    assert released == {"ranks": "all", "final": True}
    assert list(script.kvs.spaces) == ["primary"]
    assert {each.routes for each in script.told} == {MANAGER}


@pytest.mark.parametrize(
    ("val", "text"),
    [
        (5, "payload: Expected `object`, got `int` - at `$.val`"),
        ({"ver": 1, "type": "dir", "data": {}}, "payload.val: expected a treeobj of type val, got"),
        ({"ver": 1, "type": "val", "data": "%"}, 'payload.val: data: expected base64, got "%"'),
    ],
)
def test_wrong_answer_of_the_kvs_names_topic_and_key(val: Any, text: str) -> None:
    script = BridgeScript()
    right = script.kvs.answer

    def wrong(request: Request) -> Response:
        payload: Any = request.payload
        if str(payload.get("key")).endswith(".J"):
            return Response(request.topic, {"val": val}, 0, request.matchtag)
        return right(request)

    script.kvs.answer = wrong  # type: ignore[method-assign]
    script.start()
    (kind, raised), _ = script.answers()
    assert kind == "exception"
    assert "cannot read jobspec: kvs.lookup: payload" in raised["note"]
    assert text in raised["note"]


# Signals


def test_signal_of_job_manager_kill_goes_to_the_processes(script: BridgeScript) -> None:
    script.signal(7, 10)
    assert script.shell[-1] == Signal(7, 10)


def test_signal_of_a_guest_does_not(script: BridgeScript) -> None:
    """Whoever may join the instance may publish such an event."""
    before = list(script.shell)
    script.signal(7, 10, rolemask=ROLE_USER)
    assert script.shell == before


def test_signal_for_a_job_that_is_not_here_is_nothing(script: BridgeScript) -> None:
    before = list(script.shell)
    script.signal(8, 10)
    script.broker_says(Event("shell-x.kill", {"signum": 10}, rolemask=1))
    assert script.shell == before


def test_signal_without_a_number_is_named_in_the_log(script: BridgeScript) -> None:
    script.signal(7, "nine")
    (line,) = script.logs
    assert line == "shell-7.kill: payload: Expected `int`, got `str` - at `$.signum`"


# Standard input


def test_input_is_answered_when_the_tasks_have_taken_it(script: BridgeScript) -> None:
    stdin(script, "hi", eof=True)
    assert script.shell[-1] == Feed(7, b"hi", True)
    assert input_answers(script) == []
    script.core_gets(Fed(7, open=False))
    assert input_answers(script) == [(3, 0, None)]


def test_tasks_read_what_commands_send_unless_the_jobspec_has_a_file(script: BridgeScript) -> None:
    """flux-core's shell does so without an option; an option of the jobspec stays."""
    (start,) = script.shell
    assert start.input
    other = BridgeScript()
    option = {"system.shell.options.input.stdin": {"type": "file", "path": "/dev/null"}}
    other.start(spec=jobspec("true", attributes=option))
    assert not other.shell[0].input


def test_input_goes_in_pieces_one_after_the_other(script: BridgeScript) -> None:
    stdin(script, "x" * (INPUT_BYTES_MAX + 1), tag=3)
    stdin(script, base64.b64encode(b"\xff").decode(), tag=4, encoding="base64", eof=True)
    fed: list[Any] = []
    while isinstance(script.shell[-1], Feed) and script.shell[-1] not in fed:
        fed.append(script.shell[-1])
        script.core_gets(Fed(7, open=True))
    assert [(len(each.data), each.eof) for each in fed] == [
        (INPUT_BYTES_MAX, False),
        (1, False),
        (1, True),
    ]
    assert fed[-1].data == b"\xff"
    assert input_answers(script) == [(3, 0, None), (4, 0, None)]


def test_input_that_waits_has_a_bound() -> None:
    script = BridgeScript()
    script.start(spec=jobspec("true", attributes={"system.shell.options.input.limit": "32M"}))
    script.launched()
    for tag in range(5):
        stdin(script, "x" * (WAITING_BYTES_MAX // 4), tag=tag)
    ((tag, errnum, text),) = input_answers(script)
    assert (tag, errnum) == (4, Errno.EAGAIN)
    assert (
        text == f"job ƒ8: more than {WAITING_BYTES_MAX} bytes of input wait for the tasks to read"
    )


def test_input_that_the_tasks_cannot_take_is_no_service(script: BridgeScript) -> None:
    """flux's programs fail of another error, even if they only tell the end of their input."""
    stdin(script, "a", tag=3)
    stdin(script, "b", tag=4)
    script.core_gets(Fed(7, open=False, refusal="no pipes"))
    script.core_gets(Fed(7, open=False, refusal="no pipes"))
    assert input_answers(script) == [(3, ENOSYS, "no pipes"), (4, ENOSYS, "no pipes")]
    stdin(script, "c", tag=5)
    assert script.shell[-1] == Feed(7, b"c", False)


def test_input_for_tasks_that_have_ended_is_taken(script: BridgeScript) -> None:
    script.hold()
    script.ended()
    stdin(script, "a", tag=3)
    assert input_answers(script) == [(3, 0, None)]


def test_input_for_a_job_that_is_over_is_no_service(script: BridgeScript) -> None:
    script.ended()
    stdin(script)
    assert input_answers(script) == [(3, ENOSYS, "no method stdin in service 1000-shell-f8")]


@pytest.mark.parametrize(
    "wrong", [{"rank": "x"}, {"stream": "stdout"}, {"data": 5}, {"encoding": "base64", "data": "%"}]
)
def test_wrong_input_is_refused_and_named(script: BridgeScript, wrong: dict[str, Any]) -> None:
    stdin(script, **{"data": "x", **wrong})
    ((_, errnum, text),) = input_answers(script)
    assert errnum == Errno.EPROTO
    assert text.startswith(("1000-shell-f8.stdin: ", "rank: "))


def test_a_debugger_of_the_live_instance_is_told_the_processes(script: BridgeScript) -> None:
    asked = {"userid": OWNER_USERID, "rolemask": ROLE_OWNER, "routes": ROUTES}
    script.broker_says(Request("1000-shell-f8.proctable", {}, 3, **asked))
    assert script.shell[-1] == Identify(7)
    script.core_gets(Processes(7, "moon", {0: 510}))
    answer = script.pop("1000-shell-f8.proctable")
    assert isinstance(answer.payload, dict)
    assert (answer.errnum, answer.payload["pids"]) == (0, [510])


def test_other_methods_of_a_shell_are_not_there(script: BridgeScript) -> None:
    script.broker_says(Request("1000-shell-f8.kill", None, 3, routes=ROUTES))
    answer = script.pop("1000-shell-f8.kill")
    assert (answer.errnum, answer.payload) == (38, "no method kill in service 1000-shell-f8")


# Requests and the journal


def test_expiration_is_taken_and_answered(script: BridgeScript) -> None:
    timers: list[Any] = []
    take = script.core.turn

    def turn(now: float, inputs: Any) -> Any:
        actions = take(now, inputs)
        timers.extend(each for each in actions if isinstance(each, SetTimer))
        return actions

    script.core.turn = turn  # type: ignore[method-assign]
    payload = {"id": 7, "expiration": 500.0}
    script.broker_says(
        Request(f"{SERVICE}.expiration", payload, 9, userid=1000, rolemask=1, routes=MANAGER)
    )
    assert [each.at for each in timers] == [500.0]
    answer = script.pop(f"{SERVICE}.expiration")
    assert (answer.errnum, answer.matchtag, answer.routes) == (0, 9, MANAGER)


def test_start_without_an_id_is_named_in_the_log() -> None:
    """It cannot be answered (32.impl.5), and an error would end all that runs."""
    script = BridgeScript()
    script.broker_says(Request(START, {"userid": 1}, rolemask=1, routes=MANAGER))
    assert script.told == []
    assert "Object missing required field" in script.logs[0]
    assert START in script.logs[0]


def test_malformed_journal_is_named_in_the_log(script: BridgeScript) -> None:
    script.answer(script.journal, {"id": 7, "events": 5})
    (line,) = script.logs
    assert line == (
        "job-manager.events-journal: payload: Expected `array`, got `int` - at `$.events`"
    )


def test_release_in_the_journal_lets_the_shell_host_forget(script: BridgeScript) -> None:
    script.ended()
    before = len(script.shell)
    script.tell_journal(7, event("release", ranks="0", final=True))
    assert [type(each).__name__ for each in script.shell[before:]] == ["Ack"]


def test_service_that_another_one_has_replaced_ends(script: BridgeScript) -> None:
    """flux-core does not say so: it just asks the other one."""
    script.tell_journal(7, event("start"))
    assert script.end == ""
    script.tell_journal(8, event("start"))
    assert script.end == "another execution service has taken over: it has started job ƒ9"


def test_starts_before_ours_are_no_sign_of_another_service() -> None:
    script = BridgeScript()
    again: Any = BridgeScript(script.kvs, backlog_first=True)
    again.tell_journal(8, event("start"))
    assert again.end == ""
    again.tell_journal(-1)
    assert again.end == ""


def test_journal_of_the_next_job_manager_begins_with_starts_of_before(script: BridgeScript) -> None:
    script.answer(script.journal, "it is unloading", ENOSYS)
    script.answer(script.pop(topics.EXEC_HELLO))
    script.journal = script.pop(topics.JOB_EVENTS)
    script.tell_journal(8, event("start"))  # an earlier service has started it
    assert script.end == ""
    script.tell_journal(-1)
    script.tell_journal(9, event("start"))
    assert "it has started job" in script.end


def test_questions_that_flux_core_does_not_know_are_not_sent_there(script: BridgeScript) -> None:
    known = {"service.add", "service.remove"}
    asked = {each.topic for each in script.sent if isinstance(each, Request)}
    assert asked <= known
    assert topics.JOB_HINDRANCE not in asked
