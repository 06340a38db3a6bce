"""What a submission leaves behind, in which order (RFC 14, 16, 21): the ingest core as a script."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import Event, Jobspec, parse_eventlog, parse_fluid
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.services.ingest.core import IngestCore
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, asked_by_guest

NOW = 1_700_000_000.25
JOBSPEC = Jobspec.from_command(["true"]).to_json()


class Script:
    """An ingest core that has been told the last id. The kvs and the job manager wait to be let."""

    def __init__(self) -> None:
        self.core = IngestCore()
        (getinfo,) = self.core.start(NOW)
        self.put(Response(getinfo.topic, {"max_jobid": 0}, 0, getinfo.matchtag))

    def put(self, *inputs: Any) -> list[Any]:
        return self.core.turn(NOW, list(inputs))

    def submit(self, jobspec: dict[str, Any] | None = None, **more: Any) -> list[Any]:
        payload = {"jobspec": JOBSPEC if jobspec is None else jobspec, **more}
        return self.put(asked(topics.INGEST_SUBMIT, payload, tag=7))

    def answer(self, request: Request, payload: dict[str, Any]) -> list[Any]:
        return self.put(Response(request.topic, payload, 0, request.matchtag))

    def stored(self, **how: Any) -> tuple[Request, Request]:
        """The commit of a new job, and the job-manager.submit that follows it."""
        (commit,) = self.submit(**how)
        (submit,) = self.answer(commit, {})
        return commit, submit


def keys(commit: Request) -> dict[str, str]:
    """What a commit writes: key to text."""
    assert isinstance(commit.payload, dict)
    return {key: text for _, key, text in commit.payload["ops"]}


def eventlog(commit: Request) -> list[Event]:
    ((_, text),) = [item for item in keys(commit).items() if item[0].endswith(".eventlog")]
    return parse_eventlog(text)


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_job_is_stored_whole_before_the_job_manager_and_the_submitter_hear_of_it(script):
    """27.alloc.8: so that the jobspec is there when sched.alloc comes."""
    (commit,) = script.submit()
    assert commit.topic == topics.KVS_COMMIT
    assert sorted(key.rpartition(".")[2] for key in keys(commit)) == ["eventlog", "jobspec"]
    (submit,) = script.answer(commit, {})
    assert submit.topic == topics.JOB_SUBMIT
    (answer,) = script.answer(submit, {"errors": []})
    assert (answer.topic, answer.errnum, answer.matchtag) == (topics.INGEST_SUBMIT, 0, 7)


def test_what_is_stored_is_below_the_id_in_its_dothex_form(script):
    """16.schema.1: job.<jobid>, the id that the job manager and the submitter are told."""
    commit, submit = script.stored()
    (job,) = submit.payload["jobs"]
    for key in keys(commit):
        directory, _, _ = key.rpartition(".")
        assert directory.count(".") == 4
        assert parse_fluid(directory.removeprefix("job.")) == job["id"]


def test_ingest_logs_one_event_whose_user_is_the_one_at_the_door(script):
    """16.schema.3, 21.events.3, 21.events.5"""
    request = asked_by_guest(topics.INGEST_SUBMIT, {"jobspec": JOBSPEC, "userid": OWNER_USERID})
    (commit,) = script.put(request)
    (event,) = eventlog(commit)
    assert event.name == "submit"
    assert event.context["userid"] == GUEST_USERID


def test_submit_has_urgency_userid_flags_and_version(script):
    """21.events.4, 21.events.5, 21.events.6, 21.events.7: integers, version 1."""
    commit, _ = script.stored(urgency=31, flags=2)
    (event,) = eventlog(commit)
    assert event.timestamp == NOW
    assert event.context == {"urgency": 31, "userid": OWNER_USERID, "flags": 2, "version": 1}


@pytest.mark.parametrize("urgency", [-1, 32, 1.5, "16"])
def test_urgency_is_an_integer_from_0_to_31(script, urgency):
    """21.events.4"""
    (answer,) = script.submit(urgency=urgency)
    assert answer.errnum == Errno.EPROTO


@pytest.mark.parametrize(
    "changed", [{"version": 2}, {"resources": []}, {"tasks": None}, {"attributes": {}}]
)
def test_a_malformed_jobspec_gets_no_id_and_leaves_nothing(script, changed):
    """14.submit.1: refused at once."""
    (answer,) = script.submit(JOBSPEC | changed)
    assert isinstance(answer, Response)
    assert answer.errnum == Errno.EPROTO


def test_unknown_system_attributes_are_no_reason_to_refuse(script):
    """14.attributes.1"""
    system = JOBSPEC["attributes"]["system"] | {"favourite-colour": "blue"}
    commit, _ = script.stored(jobspec=JOBSPEC | {"attributes": {"system": system}})
    assert commit.topic == topics.KVS_COMMIT


def test_a_job_that_is_refused_is_removed_with_its_eventlog(script):
    """14.submit.2, 21.events.13: nothing below its id is left, and the submitter is told why."""
    commit, submit = script.stored()
    (job,) = submit.payload["jobs"]
    answer, removal = script.answer(submit, {"errors": [[job["id"], "not today"]]})
    assert (answer.errnum, answer.error_text) == (Errno.EINVAL, "not today")
    ((op, directory),) = removal.payload["ops"]
    assert op == "unlink"
    assert all(key.startswith(f"{directory}.") for key in keys(commit))
