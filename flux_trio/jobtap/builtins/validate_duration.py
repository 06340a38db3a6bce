"""validate-duration: a job may not ask for more time than the instance has left."""

from __future__ import annotations

from collections.abc import Callable

from flux_trio import jobtap
from flux_trio.jobtap.builtins.durations import spell_duration


class ValidateDuration(jobtap.Plugin):
    """Refuses a job that would end after the instance.

    `expiration` tells the instance's, seconds since the Unix epoch; 0.0 is none.
    """

    name = ".validate-duration"

    def __init__(self, expiration: Callable[[], float]) -> None:
        self._expiration = expiration

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Refuse a job that would end too late; without a duration it ends with the instance."""
        if not (expiration := self._expiration()):
            return
        duration, left = job.jobspec.duration, max(0.0, expiration - self.now())
        if duration > left:
            asked, remaining = spell_duration(duration), spell_duration(left)
            raise jobtap.Reject(
                f"job duration ({asked}) exceeds remaining instance lifetime ({remaining})"
            )
