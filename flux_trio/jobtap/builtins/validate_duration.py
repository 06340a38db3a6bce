"""No job outlives its instance."""

from __future__ import annotations

from flux_trio.formats import format_duration
from flux_trio.jobtap.decorators import on
from flux_trio.jobtap.errors import Reject
from flux_trio.jobtap.job import Job
from flux_trio.jobtap.plugin import Plugin
from flux_trio.protocols import VALIDATE


class ValidateDuration(Plugin):
    """A job may not ask for longer than the instance has left.

    `expiration` is the instance's, seconds since the Unix epoch; 0.0 is none.
    """

    name = ".validate-duration"

    def __init__(self, expiration: float) -> None:
        self._expiration = expiration

    @on(VALIDATE)
    def validate(self, job: Job) -> None:
        """Reject a duration that ends after the instance."""
        if not self._expiration:
            return
        duration = job.jobspec.duration
        left = max(0.0, self._expiration - job.t_submit)
        if duration > left:  # 0 is unset
            asked, remains = format_duration(duration), format_duration(left)
            raise Reject(f"job duration {asked} exceeds remaining instance lifetime of {remains}")
