"""dependency-singleton: one job of a name at a time (flux-core's, beside RFC 26).

A singleton is its user's only job of its name in PRIORITY or later; those that wait go in the order
of their ids. Jobs without a name in the jobspec do not count.
"""

from __future__ import annotations

from typing import Any, Final

from flux_trio import jobtap

DESCRIPTION: Final = "singleton"

Key = tuple[int, str]  # userid, job name


class DependencySingleton(jobtap.Plugin):
    """Counts jobs by user and name; frees a singleton when all others of its name wait, too."""

    name = ".dependency-singleton"

    def loaded(self) -> None:
        """Count no job yet: the counts are not needed before the first singleton."""
        self._keys: dict[int, Key] = {}  # of every active job with a name, by id
        self._active: dict[Key, set[int]] = {}
        self._waiting: dict[Key, set[int]] = {}
        self._counts = False  # all jobs are counted, from the first singleton on
        self.listen("job.new", wanted=False)

    @jobtap.on("job.dependency.singleton")
    def depend(self, job: jobtap.Job, _dependency: jobtap.Dependency) -> None:
        """Hold the job while other jobs of its name are active."""
        self._count_all()
        key = self._count(job)
        if key is None:
            raise jobtap.Reject("singleton jobs require a job name")
        if job.state is jobtap.State.NEW and self._has_others(key, job.id):
            job.add_dependency(DESCRIPTION)
        elif DESCRIPTION not in job.dependencies:
            return  # it is alone, or was when it was submitted
        self._waiting.setdefault(key, set()).add(job.id)
        if job.state is jobtap.State.DEPEND:  # the other jobs may have ended before a restart
            self._free_next(key)

    @jobtap.on("job.new")
    def on_new(self, job: jobtap.Job) -> None:
        self._count(job)

    @jobtap.on("job.event.clean", "job.event.invalidate")
    def on_end(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Stop counting the job; a refused job has ended, too."""
        key = self._keys.pop(job.id, None)
        if key is None:
            return
        self._active[key].discard(job.id)
        self._waiting.get(key, set()).discard(job.id)
        self._free_next(key)
        if not self._active[key]:
            del self._active[key]
            self._waiting.pop(key, None)

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        """Return, by user and name, the number of jobs and those of them that wait."""
        self._count_all()
        return {
            f"{userid}:{name}": {
                "count": len(jobids),
                "singletons": sorted(self._waiting.get((userid, name), ())),
            }
            for (userid, name), jobids in self._active.items()
        }

    def _has_others(self, key: Key, jobid: int) -> bool:
        """Whether another job goes before this one: not a later one that is to be asked about."""
        others = self._active[key] - {jobid}
        later = [self.jobs.get(each) for each in others if each > jobid]
        new = {each.id for each in later if each is not None and each.state is jobtap.State.NEW}
        return bool(others - new)

    def _count(self, job: jobtap.Job) -> Key | None:
        """Count an active job and return its key; None for a job without a name."""
        key = self._keys.get(job.id)
        if key is None:
            match job.raw_jobspec:
                case {"attributes": {"system": {"job": {"name": str(name)}}}}:
                    key = self._keys[job.id] = (job.userid, name)
                    self._active.setdefault(key, set()).add(job.id)
                    job.subscribe()
        return key

    def _count_all(self) -> None:
        """Count all active jobs, from the first singleton on."""
        if not self._counts:
            self._counts = True
            self.listen("job.new")
            for job in self.jobs.active():
                self._count(job)

    def _free_next(self, key: Key) -> None:
        waiting = self._waiting.get(key)
        if not waiting or len(waiting) < len(self._active[key]):
            return
        jobid = min(waiting)
        waiting.discard(jobid)
        job = self.jobs.get(jobid)
        if job is not None:
            job.remove_dependency(DESCRIPTION)
