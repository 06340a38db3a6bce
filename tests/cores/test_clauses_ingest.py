"""What a submission leaves behind, and in which order: the ingest core as a script."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.ingest.core import IngestCore
from flux_trio.formats import Jobspec
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import asked

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

    def submit(self, jobspec: dict[str, Any] = JOBSPEC) -> list[Any]:
        return self.put(asked(topics.INGEST_SUBMIT, {"jobspec": jobspec}, tag=7))

    def answer(self, request: Request, payload: dict[str, Any]) -> list[Any]:
        return self.put(Response(request.topic, payload, 0, request.matchtag))

    def stored(self) -> tuple[Request, Request]:
        """The commit of a new job, and the job-manager.submit that follows it."""
        (commit,) = self.submit()
        (submit,) = self.answer(commit, {})
        return commit, submit


def keys(commit: Request) -> dict[str, str]:
    """What a commit writes: key to text."""
    assert isinstance(commit.payload, dict)
    return {key: text for _, key, text in commit.payload["ops"]}


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_job_is_stored_whole_before_the_job_manager_and_the_submitter_hear_of_it(script):
    """16.schema.2, 27.alloc.8: so that the jobspec is there when sched.alloc comes."""
    (commit,) = script.submit()
    assert commit.topic == topics.KVS_COMMIT
    in_its_directory = [key for key in keys(commit) if key.startswith("job.")]
    assert sorted(key.rpartition(".")[2] for key in in_its_directory) == ["eventlog", "jobspec"]
    (submit,) = script.answer(commit, {})
    assert submit.topic == topics.JOB_SUBMIT
    (answer,) = script.answer(submit, {"errors": []})
    assert (answer.topic, answer.errnum, answer.matchtag) == (topics.INGEST_SUBMIT, 0, 7)


def test_unknown_system_attributes_are_no_reason_to_refuse(script):
    """14.attributes.1"""
    system = JOBSPEC["attributes"]["system"] | {"favourite-colour": "blue"}
    (commit,) = script.submit(JOBSPEC | {"attributes": {"system": system}})
    assert commit.topic == topics.KVS_COMMIT


def test_the_submitter_of_a_job_that_is_refused_is_told_why(script):
    """14.submit.2"""
    _, submit = script.stored()
    (job,) = submit.payload["jobs"]
    (answer,) = script.answer(submit, {"errors": [[job["id"], "not today"]]})
    assert (answer.errnum, answer.error_text) == (Errno.EINVAL, "not today")
