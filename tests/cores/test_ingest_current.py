"""Ingest in the current edition: defaults are filled in, and `feasibility` is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.formats import Jobspec
from flux_trio.messages import Errno, Request
from flux_trio.protocols import JobFlag
from tests.support.asking import asked
from tests.support.ingest_script import Script, guests, stored, submission, told

QUEUES = """
edition = "current"
[policy.jobspec.defaults.system]
duration = "1h"
queue = "batch"
[queues.batch]
hosts = "all"
[queues.debug]
requires = ["fast"]
"""
CURRENT = Config(edition="current")
NOVALIDATE = 8  # flux-core's number


def stored_jobspec(commit: Request) -> Any:
    (text,) = (value for _, key, value in stored(commit)[:2] if key.endswith(".jobspec"))
    return json.loads(text)


def checked(script: Script, *submissions: Request) -> list[Request]:
    actions = script(*submissions)
    assert {each.topic for each in actions} == {"feasibility.check"}
    return actions


@pytest.mark.parametrize("plugins", ['["jobspec"]', "[]"])
def test_nobody_is_asked_whether_a_job_can_run_if_the_validators_do_not_say_so(
    plugins: str,
) -> None:
    text = f'edition = "current"\n[ingest.validator]\nplugins = {plugins}'
    actions = Script(config=parse_config(text))(submission())
    assert {each.topic for each in actions} == {"store.commit"}
    asking = Script(
        config=parse_config(text.replace("= [", '= ["feasibility", ').replace(", ]", "]"))
    )
    checked(asking, submission())


def test_stored_jobspec_has_what_its_queue_adds() -> None:
    """33.defaults.8 as the current text has it; in the classic edition it stays as it came."""
    more = {"system.constraints": {"properties": ["gpu"]}, "system.duration": 0}
    job = Jobspec.from_command(("true",), attributes=more).to_json()
    script = Script(config=parse_config(QUEUES))
    (check,) = checked(script, submission(jobspec=job))
    assert check.payload["jobspec"]["attributes"]["system"]["queue"] == "batch"
    (commit,) = script.answer(check)
    system = stored_jobspec(commit)["attributes"]["system"]
    assert (system["queue"], system["duration"]) == ("batch", 3600.0)
    assert system["constraints"] == {"and": [{"properties": ["gpu"]}, {"properties": ["+batch"]}]}
    classic = Script(
        config=parse_config(QUEUES.replace("current", "classic").replace("hosts", "#"))
    )
    (commit,) = classic(submission(jobspec=job))
    assert stored_jobspec(commit) == job


def test_job_manager_gets_the_jobspec_that_is_stored() -> None:
    script = Script(config=parse_config(QUEUES))
    (check,) = checked(script, submission())
    (commit,) = script.answer(check)
    (submit,) = script.answer(commit, {})
    assert submit.payload["jobs"][0]["jobspec"] == stored_jobspec(commit)


def test_new_configuration_counts_for_new_jobs() -> None:
    script = Script(config=CURRENT)
    new = parse_config(QUEUES.replace("1h", "2h")).to_json()
    (answer,) = script(asked("job-ingest.config-reload", {"config": new}))
    assert answer.errnum == 0
    (check,) = checked(script, submission())
    (commit,) = script.answer(check)
    assert stored_jobspec(commit)["attributes"]["system"]["duration"] == 7200.0


def test_unknown_queue_is_refused_before_anybody_is_asked() -> None:
    job = Jobspec.from_command(("true",), queue="nowhere").to_json()
    (refusal,) = Script(config=parse_config(QUEUES))(submission(jobspec=job))
    assert told([refusal]) == [("alice", 1, Errno.EINVAL, "Invalid queue 'nowhere' specified")]


def test_job_that_can_never_run_is_refused_and_not_stored() -> None:
    """27.feasibility.1"""
    script = Script(config=CURRENT)
    (check,) = checked(script, submission())
    assert "resources" in check.payload.get("jobspec", {})
    (refusal,) = script.answer(check, "too large", Errno.EOVERFLOW)
    assert told([refusal]) == [("alice", 1, Errno.EINVAL, "too large")]


@pytest.mark.parametrize("errnum", [Errno.ENOSYS, Errno.EAGAIN])
def test_without_the_service_a_job_is_taken(errnum: Errno) -> None:
    script = Script(config=CURRENT)
    (check,) = checked(script, submission())
    (commit,) = script.answer(check, errnum=errnum)
    assert commit.topic == "store.commit"


def test_jobs_of_a_turn_that_ask_for_the_same_are_asked_about_once_and_keep_their_order() -> None:
    other = Jobspec.from_command(("true",), ntasks=2).to_json()
    script = Script(config=CURRENT)
    first, second = checked(script, submission(1), submission(2, jobspec=other), submission(3))
    assert script.answer(first) == []
    (later,) = checked(script, submission(4))
    assert script.answer(later) == []  # a later round waits for its turn
    (commit,) = script.answer(second)
    (submit,) = script.answer(commit, {})
    answers = script.answer(submit, {"errors": []})
    assert [tag for _, tag, errnum, _ in told(answers)] == [1, 2, 3, 4]


def test_novalidate_asks_nobody_and_has_the_number_of_flux_core() -> None:
    (commit,) = Script(config=CURRENT)(submission(flags=NOVALIDATE))
    assert commit.topic == "store.commit"
    (refusal,) = Script(config=CURRENT)(guests(flags=NOVALIDATE))
    assert refusal.errnum == Errno.EPERM
    assert CURRENT.edition_value.first_flag * JobFlag.NOVALIDATE == NOVALIDATE


def test_submitter_that_has_left_gets_no_answer_and_its_job_stays() -> None:
    """6.disconnect.2"""
    script = Script(config=CURRENT)
    (check,) = checked(script, submission())
    assert script(asked("job-ingest.disconnect", None, tag=0)) == []
    (commit,) = script.answer(check)
    (submit,) = script.answer(commit, {})
    assert script.answer(submit, {"errors": []}) == []


def test_job_of_a_queue_that_is_gone_since_is_refused() -> None:
    job = Jobspec.from_command(("true",), queue="debug").to_json()
    script = Script(config=parse_config(QUEUES))
    (check,) = checked(script, submission(jobspec=job))
    refusal, _ = script(asked("job-ingest.config-reload", {"config": CURRENT.to_json()}))
    assert script.answer(check) == []
    assert refusal.error_text == "Invalid queue 'debug' specified"
