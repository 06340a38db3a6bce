"""A job as a hook sees it, for tests that have no job machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from flux_trio.formats import Jobspec
from flux_trio.protocols import JobState

JOBSPEC = msgspec.json.encode(Jobspec.from_command(["true"]).to_json())


@dataclass(frozen=True)
class SeenJob:
    """Satisfies `JobView`; made with the facts that the test is about."""

    id: int = 7
    userid: int = 1000
    urgency: int = 16
    priority: int = 0
    state: JobState = JobState.NEW
    t_submit: float = 100.0
    jobspec: bytes = JOBSPEC
    flags: int = 0
    dependencies: set[str] | None = None
    dependencies_met: set[str] | None = None
    prologs: set[str] | None = None
    epilogs: set[str] | None = None
    has_resources: bool = False
    start_requested: bool = False
    posted: tuple[str, ...] = ()
    annotations: dict[str, Any] | None = None
    exception: dict[str, Any] | None = None
    status: int | None = None
    resources: dict[str, Any] | None = None
    waiting: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def current_jobspec_bytes(self) -> bytes:
        return self.jobspec

    def submitted_jobspec_bytes(self) -> bytes:
        return self.jobspec

    def resource_set(self) -> dict[str, Any] | None:
        return self.resources

    def queued(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        return self.waiting

    def was_posted(self, name: str) -> bool:
        return name in self.posted
