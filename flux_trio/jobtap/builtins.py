"""The plugins every instance loads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flux_trio.formats import format_duration
from flux_trio.jobtap.legacy import Handler
from flux_trio.jobtap.plugin import Plugin
from flux_trio.protocols import STATE_TOPICS, VALIDATE, HookAnswer, JobState, JobView


class PriorityDefault(Plugin):
    """A job's priority is its urgency."""

    name = ".priority-default"

    def handlers(self) -> Mapping[str, Handler]:
        """Answers when a job comes to PRIORITY."""
        return {STATE_TOPICS[JobState.PRIORITY]: self.prioritize}

    def prioritize(self, job: JobView) -> HookAnswer:
        """The urgency, as it is."""
        return HookAnswer(priority=job.urgency)


class ValidateDuration(Plugin):
    """A job may not ask for longer than the instance has left.

    `expiration` is the instance's, seconds since the Unix epoch; 0.0 is none.
    """

    name = ".validate-duration"

    def __init__(self, expiration: float) -> None:
        self._expiration = expiration

    def handlers(self) -> Mapping[str, Handler]:
        """Answers for new jobs, where the instance ends at all."""
        return {VALIDATE: self.validate} if self._expiration else {}

    def validate(self, job: JobView) -> HookAnswer | None:
        """Reject a duration that ends after the instance."""
        duration = msgspec.json.decode(
            job.current_jobspec_bytes(), type=_Jobspec
        ).attributes.system.duration
        left = max(0.0, self._expiration - job.t_submit)
        if duration <= left:  # also 0, which is unset
            return None
        asked, remains = format_duration(duration), format_duration(left)
        text = f"job duration {asked} exceeds remaining instance lifetime of {remains}"
        return HookAnswer(reject=text)


class _System(msgspec.Struct, frozen=True):
    duration: float = 0.0


class _Attributes(msgspec.Struct, frozen=True):
    system: _System = _System()


class _Jobspec(msgspec.Struct):
    attributes: _Attributes = _Attributes()


def builtin_plugins(expiration: float) -> list[Plugin]:
    """In the order they are asked; `expiration` as ValidateDuration takes it."""
    return [ValidateDuration(expiration), PriorityDefault()]
