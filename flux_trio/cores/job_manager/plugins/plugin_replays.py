"""Jobs that are read back after a restart, and plugins that are loaded while jobs are active.

All jobs that were read back are presented to all plugins. Then each goes on where it was, so that a
plugin that counts running jobs has counted them before it is asked whether another job may run. A
plugin that answers a presentation later delays only that job.

All active jobs are presented to a plugin that was loaded, some in each turn; then all priorities
are asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import Hooks
from flux_trio.cores.job_manager.hooks.presenting import JobPresentation
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.jobs.sweeps import Sweeps
from flux_trio.cores.job_manager.plugins.state_answers import StateAnswers
from flux_trio.cores.job_manager.requests.submission import Submission
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.cores.job_manager.waiting import FinishOrphans, GoOn, Present, PresentAll, Resume
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import PENDING, JobEvent, JobState, PluginReplayed, PluginsChanged


class Arrival(msgspec.Struct, frozen=True):
    """A change of plugins, until all active jobs have been presented to the plugin."""

    change: PluginsChanged
    presenting: int = 1  # jobs being presented, plus 1 until the last one was begun


class PluginReplays(Part):
    """Presents jobs to plugins."""

    resuming: list[ActiveJob]
    """The jobs that were read back, the oldest first, until all of them have been presented."""
    presented_early: set[JobId]
    """Those of them that every plugin has seen."""
    too_costly: dict[JobId, str]
    """Jobs that were read back and shall not go on, since their jobspecs cost too much: why."""
    open: dict[int, Arrival]
    last_arrival: int

    def __init__(
        self,
        ledger: Ledger,
        hooks: Hooks,
        presentation: JobPresentation,
        orphans: Orphans,
        priorities: Priorities,
        state_answers: StateAnswers,
        submission: Submission,
        sweeps: Sweeps,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._presentation = presentation
        self._orphans = orphans
        self._priorities = priorities
        self._state_answers = state_answers
        self._submission = submission
        self._sweeps = sweeps
        self.resuming = []
        self.presented_early = set()
        self.too_costly = {}
        self.open = {}
        self.last_arrival = 0

    # --- jobs

    def present_resumed(self, jobs: list[ActiveJob], too_costly: dict[JobId, str]) -> None:
        """Present the jobs that were read back. Jobs in NEW are presented when they go on."""
        self.resuming = jobs
        self.too_costly = too_costly
        for job in jobs:
            if job.state != JobState.NEW:
                self._orphans.note(job)
                self._presentation.present(job, Resume())

    def resumed(self, job: ActiveJob) -> None:
        """Continue after a job that was read back was presented to all plugins."""
        if self.resuming:
            self.presented_early.add(job.id)
        else:
            self.go_on(job)

    def go_on_all(self) -> None:
        """Let the jobs go on, except those about which a plugin has not answered yet."""
        jobs, self.resuming = self.resuming, []
        presented, self.presented_early = self.presented_early, set()
        for job in jobs:
            if job.state == JobState.NEW:
                self._submission.revalidate(job, self.too_costly.pop(job.id, None))
            elif job.id in presented:
                self._hooks.when_free(job, GoOn())

    def go_on(self, job: ActiveJob) -> None:
        """Go on where the job was; ask its state's hook again if the answer may be lost."""
        self._ledger.dirty[job.id] = job
        note = self.too_costly.pop(job.id, None)
        if note is not None and job.state & PENDING:
            self._ledger.raise_exception(job, "jobspec", 0, note)
        elif job.state == JobState.SCHED:
            self._ledger.log(job, JobEvent.FLUX_RESTART)
        elif _is_to_be_asked(job):
            self._hooks.ask_state(job, None, None)
        self._hooks.when_free(job, FinishOrphans())

    # --- plugins

    def known_already(self, change: PluginsChanged) -> PluginsChanged:
        """Return the change without `loaded`: jobs read back later are presented to all plugins."""
        return msgspec.structs.replace(change, loaded=None)

    def plugins_changed(self, change: PluginsChanged) -> None:
        """Present active jobs to a loaded plugin, then ask again for held jobs and priorities."""
        self.last_arrival += 1
        self.open[self.last_arrival] = Arrival(change)
        if change.loaded is None:
            self.one_less(self.last_arrival)
        else:
            self._sweeps.begin(PresentAll(self.last_arrival))

    def choose(self, arrival: int) -> Iterable[ActiveJob]:
        """Return the active jobs: oldest first, by state ("state") or by state in reverse."""
        sign = {"state": 1, "-state": -1}.get(self.open[arrival].change.order, 0)
        jobs = self._ledger.active()
        return sorted(jobs, key=lambda job: sign * job.state) if sign else jobs

    def present(self, job: ActiveJob, arrival: int) -> None:
        """Present `job` to the plugin that has come."""
        about = self.open[arrival]
        plugin = about.change.loaded
        if job.state != JobState.NEW and plugin:  # about a job in NEW plugins are asked anyway
            self._count(arrival, 1)
            self._hooks.when_free(job, Present(arrival, plugin))

    def presented(self, job: ActiveJob, present: Present) -> None:
        """Continue after `job` was presented to the plugin."""
        if job.state == JobState.DEPEND and not job.is_held:
            self._hooks.ask_state(job, None, None, only=present.plugin)
        self.one_less(present.arrival)

    def one_less(self, arrival: int) -> None:
        """Count a presented job; after the last one ask again for held jobs and priorities."""
        about = self._count(arrival, -1)
        if about.presenting:
            return
        del self.open[arrival]
        self._state_answers.ask_again()
        self._priorities.ask_all()
        if about.change.ticket:
            self._ledger.send(PluginReplayed(about.change.ticket))

    def _count(self, arrival: int, more: int) -> Arrival:
        about = self.open[arrival]
        now = msgspec.structs.replace(about, presenting=about.presenting + more)
        self.open[arrival] = now
        return now


def _is_to_be_asked(job: ActiveJob) -> bool:
    """Return whether the answer to the hook of the job's state may be lost since the restart."""
    match job.state:
        case JobState.RUN:
            return not job.started and not job.was_posted(JobEvent.PROLOG_START)
        case JobState.CLEANUP:
            return not (job.was_posted(JobEvent.EPILOG_START) or job.was_posted(JobEvent.FREE))
        case _:
            return True
