"""A plugin for worlds of the stack: every second job stays in CLEANUP for a while, by an epilog.

The processes of perilog end at once where jobs are simulated.
"""

from __future__ import annotations

from typing import Final

from flux_trio import jobtap
from flux_trio.clock import Durations

EPILOG: Final = "held"
SECONDS: Final = 10.0


class HeldEpilog(jobtap.Plugin):
    """Holds the resources of every second job that ends, also beyond a reload."""

    name = "held-epilog"

    def loaded(self) -> None:
        """No job has ended yet."""
        self._nended = 0

    @jobtap.on("job.new")
    def go_on(self, job: jobtap.Job) -> None:
        """Finish an epilog that was started before this plugin was loaded."""
        if EPILOG in job.epilogs:
            self.start_soon(self._finish, job.id)

    @jobtap.on("job.state.cleanup")
    def hold(self, job: jobtap.Job) -> None:
        """Start an epilog, unless it is open or the job has no resources."""
        self._nended += 1
        if self._nended % 2 and job.R is not None and EPILOG not in job.epilogs:
            job.epilog_start(EPILOG)
            self.start_soon(self._finish, job.id)

    async def _finish(self, jobid: int) -> None:
        while True:
            await Durations(self.passed, self.clock_look_s()).sleep(SECONDS)
            job = self.jobs.get(jobid)
            if job is None or job.state is not jobtap.State.CLEANUP:
                return
            if EPILOG in job.epilogs:  # else another plugin has not answered yet
                job.epilog_finish(EPILOG)
                return
