"""update-duration: changes of a job's duration.

The user may change it while the job is pending, within the limits for a new job; the instance owner
may change it at any time and to any value. The job manager asks the scheduler about the change of a
running job.
"""

from __future__ import annotations

import math

from flux_trio import jobtap
from flux_trio.protocols import RUNNING


class UpdateDuration(jobtap.Plugin):
    """Decides on `attributes.system.duration`.

    With `{"owner-allow-any": false}` as its conf the instance owner has no privileges either.
    """

    name = ".update-duration"

    @jobtap.on("job.update.attributes.system.duration")
    def update(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """Allow the update; the owner may exceed limits."""
        value = update.value
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
        ):
            raise jobtap.Reject(f"{update.key}: expected a number of seconds, got {value!r}")
        if value < 0:
            raise jobtap.Reject("duration must not be negative")
        privileged = update.is_owner and self.conf.get("owner-allow-any", True)
        if job.state & RUNNING and not privileged:
            raise jobtap.Reject("duration update of running job requires instance owner privileges")
        return jobtap.UpdateAllowed(validated=privileged)
