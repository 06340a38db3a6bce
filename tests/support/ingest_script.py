"""The ingest core as a script: inputs in, actions out."""

from __future__ import annotations

from typing import Any

from flux_trio.config import Config
from flux_trio.cores.ingest.core import IngestCore
from flux_trio.formats import Jobspec
from flux_trio.messages import Request, Response, topics
from tests.support.asking import asked, asked_by_guest

NOW = 1_700_000_000.5
JOBSPEC = Jobspec.from_command(("true",)).to_json()


class Script:
    """An ingest that knows where ids go on. `answer` answers one of its requests."""

    def __init__(
        self, *, max_jobid: int | None = 0, now: float = NOW, config: Config | None = None
    ) -> None:
        self.now = now
        self.core = IngestCore(config)
        (asked_first,) = self.core.start(now)
        assert isinstance(asked_first, Request)
        self.getinfo = asked_first
        if max_jobid is not None:
            assert self.answer(self.getinfo, {"max_jobid": max_jobid}) == []

    def __call__(self, *inputs: Any) -> list[Any]:
        """One turn; its actions."""
        return self.core.turn(self.now, list(inputs))

    def answer(self, request: Request, payload: Any = None, errnum: int = 0) -> list[Any]:
        """The actions of a turn with the answer to a request."""
        return self(Response(request.topic, payload, errnum, request.matchtag))

    def submit(self, *submissions: Request) -> list[Any]:
        """The answers to a batch that is stored and taken in whole."""
        (commit,) = self(*submissions)
        (submit,) = self.answer(commit, {})
        return self.answer(submit, {"errors": []})


def submission(tag: int = 1, *, by: str = "alice", **payload: Any) -> Request:
    """The owner submits a job."""
    return asked("job-ingest.submit", {"jobspec": JOBSPEC, **payload}, by=by, tag=tag)


def guests(**payload: Any) -> Request:
    """A guest submits a job."""
    return asked_by_guest("job-ingest.submit", {"jobspec": JOBSPEC, **payload})


def told(actions: list[Any]) -> list[tuple[str, int, int, Any]]:
    """Responses as (receiver, matchtag, errnum, payload)."""
    return [(each.routes[0], each.matchtag, each.errnum, each.payload) for each in actions]


def stored(commit: Request) -> list[list[str]]:
    """The operations of a commit."""
    assert isinstance(commit.payload, dict)
    assert commit.topic in topics.COMMITS
    ops: list[list[str]] = commit.payload["ops"]
    return ops


def ids_of(submit: Request) -> list[int]:
    """The jobs of a batch."""
    assert isinstance(submit.payload, dict)
    return [job["id"] for job in submit.payload["jobs"]]
