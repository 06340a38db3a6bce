"""Hooks as questions: what the job machine asks of plugins, and what may come back.

The job manager emits `AskHook` and goes on with that job when `HookAnswered` comes; meanwhile the
job's later events wait, except a fatal exception, which ends the wait. Topics are jobtap's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from flux_trio.protocols.job import JobState

VALIDATE: Final = "job.validate"

# The topic asked after a transition into a state, before that state's action.
STATE_TOPICS: Final = {state: f"job.state.{state.name.lower()}" for state in JobState}


@dataclass(frozen=True, slots=True)
class JobView:
    """What a hook may read of its job."""

    id: int
    userid: int
    urgency: int
    priority: int
    state: JobState
    t_submit: float  # seconds since the Unix epoch
    jobspec: bytes  # JSON, environment left out, updates applied


@dataclass(frozen=True, slots=True)
class AskHook:
    """Ask every plugin that handles `topic` about one job; answer with the same `ticket`."""

    ticket: int
    topic: str
    job: JobView


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What the plugins said, together.

    `priority` is None when unavailable or not asked for; `reject` is one sentence for the user
    (job.validate); `error` names the plugin, hook and value of one that failed, and the job is
    held or rejected with it; `posts` are events to log before the state's action.
    """

    priority: int | None = None
    reject: str | None = None
    error: str | None = None
    posts: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class HookAnswered:
    """The answer to the AskHook with this ticket."""

    ticket: int
    answer: HookAnswer


@dataclass(frozen=True, slots=True)
class CancelHook:
    """Nobody waits for this answer any more: the job met a fatal exception."""

    ticket: int


@dataclass(frozen=True, slots=True)
class PostEvent:
    """A plugin posts an event to a job outside a hook: a prolog has finished, say."""

    id: int
    name: str
    context: dict[str, Any]
    plugin: str


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The topics that some loaded plugin handles now; others are not asked."""

    topics: frozenset[str]
