"""Who meets whom late: jobs that a restart brings back, and plugins that come while jobs are there.

A job read back is presented to all plugins and goes on where it was; a plugin that is loaded is
told of each active job, in slices, and then all priorities are asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from flux_trio.cores.job_manager.hooks.entering import Entering
from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.introduction import Introduction
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.requests.submission import Submission
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.protocols import (
    JobEvent,
    JobState,
    PluginReplayed,
    PluginsChanged,
)


class Arrivals:
    """Introduces them."""

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        introduction: Introduction,
        orphans: Orphans,
        priorities: Priorities,
        entering: Entering,
        submission: Submission,
        sweeps: Sweeps,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._introduction = introduction
        self._orphans = orphans
        self._priorities = priorities
        self._entering = entering
        self._submission = submission
        self._sweeps = sweeps

    # --- jobs

    def resume(self, job: ActiveJob) -> None:
        """A job of an earlier life goes on."""
        if job.state == JobState.NEW:
            self._submission.revalidate(job)
            return
        self._orphans.note(job)
        self._introduction.present(job, partial(self._resumed, job))

    def _resumed(self, job: ActiveJob) -> None:
        """Go on where it was; a state's hook is asked again if its answer may have been lost."""
        self._ledger.dirty[job.id] = job
        if job.state == JobState.SCHED:
            self._ledger.log(job, JobEvent.FLUX_RESTART)
        elif _is_to_be_asked(job):
            self._hooks.ask_state(job, None, None)
        self._hooks.when_free(job, partial(self._orphans.finish, job))

    # --- plugins

    def known_already(self, change: PluginsChanged) -> PluginsChanged:
        """A plugin loaded before the jobs were read back is told of them with all others."""
        return msgspec.structs.replace(change, loaded=None)

    def plugins_changed(self, change: PluginsChanged) -> None:
        """Tell a loaded plugin of the active jobs; then ask again for what may have changed."""
        told = _Countdown(partial(self._settled, change))
        if change.loaded is None:
            told.one_less()
            return
        choose = partial(self._in_order, change.order)
        self._sweeps.begin(choose, partial(self._present, change.loaded, told), told.one_less)

    def _in_order(self, order: str) -> Iterable[ActiveJob]:
        """Active jobs as they came, by state ("state"), or by state backwards ("-state")."""
        sign = {"state": 1, "-state": -1}.get(order, 0)
        jobs = self._ledger.active()
        return sorted(jobs, key=lambda job: sign * job.state) if sign else jobs

    def _present(self, plugin: str, told: _Countdown, job: ActiveJob) -> None:
        if job.state != JobState.NEW:  # one in NEW is on its way through the hooks
            told.one_more()
            then = partial(self._presented, plugin, told, job)
            self._hooks.when_free(job, partial(self._introduction.present, job, then, plugin))

    def _presented(self, plugin: str, told: _Countdown, job: ActiveJob) -> None:
        if job.state == JobState.DEPEND and job.waiting_for is None:
            self._hooks.ask_state(job, None, None, only=plugin)
        told.one_less()

    def _settled(self, change: PluginsChanged) -> None:
        self._entering.ask_again()
        self._priorities.ask_all()
        if change.ticket:
            self._ledger.send(PluginReplayed(change.ticket))


class _Countdown:
    """Calls `done` when all that was counted is."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._open = 1

    def one_more(self) -> None:
        self._open += 1

    def one_less(self) -> None:
        self._open -= 1
        if not self._open:
            self._done()


def _is_to_be_asked(job: ActiveJob) -> bool:
    """Whether the hook of its state may not have been answered in the earlier life."""
    match job.state:
        case JobState.RUN:
            return not job.started and not job.was_posted(JobEvent.PROLOG_START)
        case JobState.CLEANUP:
            return not (job.was_posted(JobEvent.EPILOG_START) or job.was_posted(JobEvent.FREE))
        case _:
            return True
