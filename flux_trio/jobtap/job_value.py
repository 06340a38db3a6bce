"""`JobValue`: what a plugin reads of a job. It shows the job as it was at one moment."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from flux_trio.formats import Event, Jobspec, cached_for_short, format_fluid
from flux_trio.jobtap.plain import read_only
from flux_trio.protocols import AskHook, JobState, JobView

_JOBSPECS_KEPT: Final = 64  # each is parsed once for all plugins of a chain


class JobValue(msgspec.Struct, frozen=True, eq=False):
    """A job at the time of a question or a lookup; `view` is for the host."""

    view: JobView
    _question: AskHook | None

    def __repr__(self) -> str:
        return f"<Job {format_fluid(self.id, 'f58')} {self.state.name}>"

    # --- what it is

    @property
    def id(self) -> int:
        """The job id."""
        return self.view.id

    @property
    def userid(self) -> int:
        """The user who submitted the job."""
        return self.view.userid

    @property
    def urgency(self) -> int:
        """0 to 31; 0 holds the job and 31 expedites it, whatever a plugin says."""
        return self.view.urgency

    @property
    def priority(self) -> int:
        """The last priority that was logged, 0 to 4294967295."""
        return self.view.priority

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.view.state

    @property
    def t_submit(self) -> float:
        """Seconds since the Unix epoch."""
        return self.view.t_submit

    @property
    def flags(self) -> int:
        """A mask of JobFlag (RFC 21, Submit Event)."""
        return self.view.flags

    @property
    def dependencies(self) -> frozenset[str]:
        """The descriptions of the open dependencies."""
        return frozenset(self.view.dependencies or ())

    @property
    def prologs(self) -> frozenset[str]:
        """The descriptions of the open prologs, which hold the start."""
        return frozenset(self.view.prologs or ())

    @property
    def start_requested(self) -> bool:
        """Whether the execution service was asked to start the job, which may be running."""
        return self.view.start_requested

    @property
    def epilogs(self) -> frozenset[str]:
        """The descriptions of the open epilogs, which hold the resources."""
        return frozenset(self.view.epilogs or ())

    @property
    def annotations(self) -> dict[str, Any]:
        """A copy of all annotations (RFC 27, Alloc Annotate)."""
        return copy.deepcopy(self.view.annotations or {})

    @property
    def raw_jobspec(self) -> dict[str, Any]:
        """A copy of the decoded jobspec without the environment, with updates applied."""
        decoded: dict[str, Any] = msgspec.json.decode(self.view.current_jobspec_bytes())
        return decoded

    @property
    def jobspec(self) -> Jobspec:
        """The parsed jobspec (RFC 14), wholly read-only. Raises FormatError if it is malformed."""
        return _parse(self.view.current_jobspec_bytes())

    @property
    def submitted_jobspec(self) -> Jobspec:
        """The jobspec as it was submitted, without updates. Raises FormatError as `jobspec`."""
        return _parse(self.view.submitted_jobspec_bytes())

    @property
    def R(self) -> dict[str, Any] | None:  # noqa: N802 - RFC 20's name for it
        """R (RFC 20) without `scheduling`, from RUN on; None before."""
        return self.view.resource_set()

    @property
    def result(self) -> str | None:
        """In CLEANUP and INACTIVE: completed, failed, canceled or timeout; else None."""
        return _result_of(self.view)

    @property
    def exception(self) -> dict[str, Any] | None:
        """The context of the fatal exception that ended the job (RFC 21, Exception Event)."""
        return copy.deepcopy(self.view.exception)

    # --- why it is here

    @property
    def topic(self) -> str:
        """The topic of the hook that was given this job; "" for a job that was looked up."""
        return self._question.topic if self._question else ""

    @property
    def previous(self) -> JobState | None:
        """In job.state.*: the state before the transition."""
        return self._question.previous if self._question else None

    @property
    def event(self) -> Event | None:
        """In job.state.* and job.event.*: the event that caused the hook."""
        args = self._question.args if self._question else None
        return copy.deepcopy(args) if isinstance(args, Event) else None


def _read(jobspec: bytes) -> Jobspec:
    return read_only(Jobspec.parse_general(jobspec))


_parse = cached_for_short(_read, maxsize=_JOBSPECS_KEPT)


def _result_of(view: JobView) -> str | None:
    if view.state not in (JobState.CLEANUP, JobState.INACTIVE):
        return None
    if view.exception is not None:
        return {"cancel": "canceled", "timeout": "timeout"}.get(view.exception["type"], "failed")
    if view.status is None:
        return "failed"
    return "completed" if view.status == 0 else "failed"
