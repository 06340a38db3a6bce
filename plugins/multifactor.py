"""multifactor: priority from fair share, queue, bank and urgency; limits of users and queues.

    priority = weights x (fair share, queue, bank) + weight x (urgency - 16), rounded, at least 0

Users, banks and queues are in a SQLite database that `accounts.py`, beside this file, edits. Load
the plugin with `conf = {"database": "site.db"}`. An edit takes effect within `interval` seconds;
then jobs that wait for a limit are checked again. A queue in the database is for members only:
users who have it among their `queues`; a queue that is not there is for all users. Further keys of
`conf`: `weights` (default: fairshare 100000, queue 10000, bank 0, urgency 1000), `interval`
(default 15: seconds between two updates of usage and database), `half-life` (default 604800:
seconds after which usage counts half) and `record-usage` (default true). A job counts from the
moment when nothing holds it, before it runs, so jobs that start at the same time cannot exceed a
limit on running jobs. The limits of a job that waits for something else are checked when it waits
for that no longer: until then another job may have the room, which may be the one it waits for. So
load this plugin behind those that add dependencies in `job.state.depend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import trio
from accounts import (
    UNREADABLE,
    Accounts,
    Association,
    Size,
    beyond,
    record_usage,
    room_text,
    set_fair_shares,
    usage_to_record,
)

from flux_trio import jobtap

URGENCY_DEFAULT: Final = 16

# The states of an active job, from job.new on.
ACTIVE: Final = tuple(state for state in jobtap.State if state != jobtap.State.INACTIVE)

# The states in which a limit may hold a job.
UNADMITTED: Final = (jobtap.State.NEW, jobtap.State.DEPEND)

# The dependencies of a job that waits for a limit.
USER_JOBS: Final = "max-running-jobs-user-limit"
USER_RESOURCES: Final = "max-resources-user-limit"
QUEUE_JOBS: Final = "max-run-jobs-queue"
QUEUE_RESOURCES: Final = "max-resources-queue"
LIMITS_LATER: Final = "limits-after-dependencies"  # of one that waits for something else, too
OF_QUEUE: Final = frozenset({QUEUE_JOBS, QUEUE_RESOURCES})
OURS: Final = OF_QUEUE | {USER_JOBS, USER_RESOURCES, LIMITS_LATER}


def _association(job: jobtap.Job) -> tuple[int, str] | None:
    """Return the association that the job counts for; None if it came before there was data."""
    bank = job.data.get("bank")
    return None if bank is None else (job.userid, bank)


def _place(job: jobtap.Job) -> tuple[int, str, str] | None:
    found = _association(job)
    return None if found is None else (*found, job.data["size"].queue)


def _admitted(job: jobtap.Job) -> int:
    """Return 1 for a job that no limit holds, else 0."""
    return int(job.data.get("admitted", False))


def _admitted_size(key: str) -> Callable[[jobtap.Job], int]:
    return lambda job: _admitted(job) and int(getattr(job.data["size"], key))


def _refuse(problem: str | None) -> None:
    """Refuse the job, or its update, for a problem if there is one."""
    if problem is not None:
        raise jobtap.Reject(problem)


def _refuse_full(obstacles: Set[str], to: str) -> None:
    """Refuse an update to what has no room: a job cannot return to DEPEND."""
    if obstacles:
        what = "max-run-jobs" if obstacles & {USER_JOBS, QUEUE_JOBS} else "max-resources"
        text = f"updating to {to} while it is already at {what} limit"
        raise jobtap.Reject(f"{text} is not allowed; try again later")


Weight = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Weights(msgspec.Struct, forbid_unknown_fields=True):
    """The weight of each factor."""

    fairshare: Weight = 100_000
    queue: Weight = 10_000
    bank: Weight = 0
    urgency: Weight = 1_000


class Conf(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """The plugin's conf; times in seconds. Simulations do not record usage."""

    database: str
    weights: Weights = msgspec.field(default_factory=Weights)
    interval: Seconds = 15.0
    half_life: Seconds = 7 * 86400.0
    record_usage: bool = True


class Multifactor(jobtap.Plugin):
    """Keeps the accounts, sets priorities and enforces limits.

    `job.data` has the bank and queue that a job counts for, its size, whether it is `admitted`
    (no limit holds it), and which of our dependencies it has.
    """

    name = "multifactor"

    active_jobs = jobtap.counter(*ACTIVE, key=_association)
    admitted_jobs = jobtap.counter(*ACTIVE, key=_association, amount=_admitted)
    admitted_nodes = jobtap.counter(*ACTIVE, key=_association, amount=_admitted_size("nnodes"))
    admitted_cores = jobtap.counter(*ACTIVE, key=_association, amount=_admitted_size("ncores"))
    queue_jobs = jobtap.counter(*ACTIVE, key=_place, amount=_admitted)
    queue_nodes = jobtap.counter(*ACTIVE, key=_place, amount=_admitted_size("nnodes"))

    def __init__(self) -> None:
        self._settings = Conf(database="")
        self._accounts = Accounts()
        # The jobs that wait for a limit, by association, oldest first.
        self._held: dict[tuple[int, str], dict[int, None]] = {}

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """Read the conf and the database."""
        self._settings = self.read_conf(Conf)
        try:
            self._read()
        except UNREADABLE as error:
            raise jobtap.Reject(f"{self._settings.database}: {error}") from None

    def loaded(self) -> None:
        """Count the jobs that there are: limits are checked while the plugin is asked about them.

        A task updates usage and database every `interval`.
        """
        self._held.clear()
        with suppress(*UNREADABLE):  # a plugin that was removed for this one has written its usage
            if self._accounts.are_old(Path(self._settings.database)):
                self._read()
        for job in self.jobs.active():
            user = self._accounts.find(job.userid, _bank_of(job))
            if user is not None and job.state != jobtap.State.NEW:
                self._count(job, user)
        self.start_soon(self._tend)

    def removed(self) -> None:
        """Write the usage to the database."""
        if self._settings.record_usage and self._accounts.users:
            record_usage(Path(self._settings.database), usage_to_record(self._accounts))

    # --- submission and updates

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Check account, queue, project, and the limits that waiting cannot satisfy."""
        if not self._accounts.users:
            return  # it waits in PRIORITY until there is data
        user = self._find(job.userid, _bank_of(job))
        if not user.active:
            raise jobtap.Reject("user/bank entry has been disabled from flux-accounting DB")
        _refuse(self._accounts.queue_problem(user, job.jobspec.queue))
        _refuse(user.project_problem(job.jobspec.system.get("project")))
        if job.state == jobtap.State.NEW:
            active = self.active_jobs[user.userid, user.bank]
            if beyond(active + 1, user.max_active_jobs):
                raise jobtap.Reject("user has max active jobs")
        _refuse(self._accounts.size_problem(user, _size_of(job)))

    @jobtap.on("job.update.attributes.system.queue")
    def update_queue(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """Allow a queue that the user may use and that has room."""
        user = self._find(job.userid, _bank_of(job))
        queue = str(update.value)
        _refuse(self._accounts.queue_problem(user, queue))
        size = _size_of(job)._replace(queue=queue)
        if _admitted(job) and queue != job.data["size"].queue:
            _refuse_full(self._full(user, size) & OF_QUEUE, f"queue {queue}")
        return jobtap.UpdateAllowed()

    @jobtap.on("job.update.attributes.system.bank")
    def update_bank(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """Allow a bank of the user that has room."""
        user = self._find(job.userid, update.value)
        if user.bank == job.data.get("bank"):
            return jobtap.UpdateAllowed()
        if beyond(self.active_jobs[user.userid, user.bank] + 1, user.max_active_jobs):
            raise jobtap.Reject("new bank is already at max-active-jobs limit")
        if _admitted(job):
            _refuse_full(self._full(user, _size_of(job)), f"bank {user.bank}")
        return jobtap.UpdateAllowed()

    def _find(self, userid: int, bank: Any) -> Association:
        user = self._accounts.find(userid, bank)
        if user is None:
            raise jobtap.Reject(_unknown(userid))
        return user

    # --- limits while a job is active

    @jobtap.on("job.new")
    def new(self, job: jobtap.Job) -> None:
        """Count the job, and set its default bank and project in the jobspec."""
        system = job.jobspec.system
        user = self._accounts.find(job.userid, _bank_of(job))
        if user is None:
            return
        if job.state == jobtap.State.NEW:
            defaults = {"bank": user.bank, "project": user.default_project}
            missing = {
                f"attributes.system.{key}": value
                for key, value in defaults.items()
                if value and key not in system
            }
            if missing:
                job.update(missing)
        self._count(job, user)

    @jobtap.on("job.state.depend")
    def depend(self, job: jobtap.Job) -> None:
        """Add a dependency for each limit that the job would exceed now, or one for all of them."""
        user = self._user_of(job)
        if user is None or _admitted(job):  # the hook may be called again
            return
        self._hold_or_admit(job, self._obstacles(user, job))

    @jobtap.on("job.event.dependency-remove")
    def let_go(self, job: jobtap.Job, _event: jobtap.Event) -> None:
        """Check the limits of a held job for which nothing else is left to wait for."""
        key = _association(job)
        if key is not None and job.id in self._held.get(key, ()) and not job.dependencies - OURS:
            self._release(key)

    @jobtap.on("job.update")
    def updated(self, job: jobtap.Job, _updates: dict[str, Any]) -> None:
        """Count the job in its new bank or queue, or with its new size."""
        before = _association(job)
        if before is None:
            return
        user = self._accounts.find(job.userid, _bank_of(job))
        is_held = self._forget(job)
        self._describe(job, before[1] if user is None else user.bank)
        after = (job.userid, job.data["bank"])
        if is_held:
            self._held.setdefault(after, {})[job.id] = None
        for key in {before, after}:
            self._release(key)

    @jobtap.on("job.state.inactive")
    def inactive(self, job: jobtap.Job) -> None:
        """Charge the job's usage, and release jobs that waited for its room."""
        user, key = self._user_of(job), _association(job)
        if key is None:
            return
        if user is not None and job.R is not None:
            now = self.now()
            used = max(0.0, now - job.R["execution"].get("starttime", now))
            user.charge(job.data["size"].nnodes * used, now, self._settings.half_life)
        self._forget(job)
        self._release(key)

    def _count(self, job: jobtap.Job, user: Association) -> None:
        """Count the job as active; one from before this plugin was loaded may be admitted, too."""
        job.data["admitted"] = job.state not in UNADMITTED
        self._describe(job, user.bank)

    def _describe(self, job: jobtap.Job, bank: str) -> None:
        """Store the job's bank and size, and count it again."""
        job.data.update(bank=bank, size=_size_of(job))
        self._recount(job)

    def _recount(self, job: jobtap.Job) -> None:
        for name, value in vars(Multifactor).items():
            if isinstance(value, jobtap.Counter):
                getattr(self, name).update(job)

    def _admit(self, job: jobtap.Job) -> None:
        """Count the job against the limits."""
        self._forget(job)
        job.data["admitted"] = True
        self._recount(job)

    def _hold_or_admit(self, job: jobtap.Job, obstacles: Set[str]) -> None:
        """Hold the job by a dependency for each obstacle, or let it go on if there is none.

        A dependency cannot be added a second time. If that refuses all of them, the job was
        released before this plugin was loaded, and may go on.
        """
        # Those from before this plugin was loaded hold it, too.
        waits_for: Set[str] = OURS & job.data.get("waits_for", job.dependencies)
        for text in sorted(waits_for if not obstacles else ()):
            job.remove_dependency(text)
        for text in sorted(obstacles - waits_for):
            with suppress(jobtap.NotAllowed):
                job.add_dependency(text)
                waits_for |= {text}
        if not obstacles or not waits_for:
            self._admit(job)
            return
        job.data["waits_for"] = waits_for
        if LIMITS_LATER in obstacles:
            job.subscribe()
        self._held.setdefault((job.userid, job.data["bank"]), {})[job.id] = None

    def _forget(self, job: jobtap.Job) -> bool:
        """Remove the job from the held jobs; return whether it was held."""
        held = self._held.get((job.userid, job.data["bank"]), {})
        was_held = job.id in held
        held.pop(job.id, None)
        return was_held

    def _release(self, key: tuple[int, str]) -> None:
        """Release the held jobs of an association that no limit holds; all, if it was deleted.

        A job keeps all its dependencies until there is room, because a dependency cannot be added a
        second time.
        """
        user = self._accounts.users.get(key)
        for jobid in list(self._held.get(key, ())):
            job = self.jobs.get(jobid)
            if job is None or job.state != jobtap.State.DEPEND:
                continue
            obstacles = set() if user is None else self._obstacles(user, job)
            self._hold_or_admit(job, obstacles)
            if USER_JOBS in obstacles:
                return  # the jobs behind it cannot go on either

    def _obstacles(self, user: Association, job: jobtap.Job) -> set[str]:
        """Return the dependencies that the job needs now."""
        return {LIMITS_LATER} if job.dependencies - OURS else self._full(user, job.data["size"])

    def _full(self, user: Association, size: Size) -> set[str]:
        """Return the dependencies that one more job of `size` would need."""
        key, queue = (user.userid, user.bank), self._accounts.queues.get(size.queue)
        limits = [
            (USER_JOBS, self.admitted_jobs[key] + 1, user.max_running_jobs),
            (USER_RESOURCES, self.admitted_nodes[key] + size.nnodes, user.max_nodes),
            (USER_RESOURCES, self.admitted_cores[key] + size.ncores, user.max_cores),
        ]
        if queue is not None:
            place = (*key, size.queue)
            limits += [
                (QUEUE_JOBS, self.queue_jobs[place] + 1, queue.max_running_jobs),
                (QUEUE_RESOURCES, self.queue_nodes[place] + size.nnodes, queue.max_nodes),
            ]
        return {dependency for dependency, value, limit in limits if beyond(value, limit)}

    def _user_of(self, job: jobtap.Job) -> Association | None:
        key = _association(job)
        return None if key is None else self._accounts.users.get(key)

    # --- priority

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int | jobtap.Unavailable:
        """Return the weighted sum of the factors; unavailable while there is no data."""
        if not self._accounts.users:
            return jobtap.UNAVAILABLE
        user = self._user_of(job)
        if user is None:
            user = self._accounts.find(job.userid, _bank_of(job))
            if user is None:
                job.raise_exception(self.name, 0, _unknown(job.userid))
                return jobtap.UNAVAILABLE
            self._count(job, user)
        elif not _admitted(job) and job.state not in UNADMITTED:  # explained while it was in one
            self._admit(job)
        value = sum(weight * factor for weight, factor in self._factors(user, job).values())
        return min(max(0, round(value)), jobtap.PRIORITY_MAX)

    @jobtap.on_many("job.priority.get")
    def priorities(self, jobs: list[jobtap.Job]) -> list[int | jobtap.Unavailable]:
        """Return the same for many jobs."""
        return [self.priority(job) for job in jobs]

    def _factors(self, user: Association, job: jobtap.Job) -> dict[str, tuple[float, float]]:
        """Return (weight, factor) by name."""
        weights = self._settings.weights
        queue = self._accounts.queues.get(job.data["size"].queue)
        bank = self._accounts.banks.get(user.bank)
        return {
            "fair share": (weights.fairshare, user.fair_share),
            "queue": (weights.queue, queue.priority if queue else 0.0),
            "bank": (weights.bank, bank.priority if bank else 0.0),
            "urgency - 16": (weights.urgency, job.urgency - URGENCY_DEFAULT),
        }

    @jobtap.on("job.explain")
    def explain(self, job: jobtap.Job) -> str | None:
        """Say the factors of the priority, and which limits hold the job."""
        if not self._accounts.users:
            return "there is no data about users yet"
        user = self._user_of(job)
        if user is None:
            return None
        factors = self._factors(user, job).items()
        terms = [f"{name} {factor:g} x {weight:g}" for name, (weight, factor) in factors if factor]
        text = f"{' + '.join(terms) or 'all factors are 0'}, bank {user.bank}"
        held = self._held.get((user.userid, user.bank), ())
        if job.state != jobtap.State.DEPEND or job.id not in held:
            return text
        if LIMITS_LATER in self._obstacles(user, job):
            return f"{text}; limits are checked when nothing else holds the job"
        return "; ".join([text, *self._full_text(user, job.data["size"])])

    def _full_text(self, user: Association, size: Size) -> Iterator[str]:
        """Yield how much there is, and may be, of each limit that holds a job of `size`."""
        key, obstacles = (user.userid, user.bank), self._full(user, size)
        if obstacles & {USER_JOBS, USER_RESOURCES}:
            of_jobs = self.admitted_jobs[key], user.max_running_jobs
            text = f"the user has {room_text(of_jobs, (self.admitted_nodes[key], user.max_nodes))}"
            cores = f" and {self.admitted_cores[key]:g} of {user.max_cores} cores"
            yield text if user.max_cores is None else text + cores
        if obstacles & OF_QUEUE:
            queue, place = self._accounts.queues[size.queue], (*key, size.queue)
            of_jobs = self.queue_jobs[place], queue.max_running_jobs
            room = room_text(of_jobs, (self.queue_nodes[place], queue.max_nodes))
            yield f"in queue {size.queue} the user has {room}"

    # --- queries and updates

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        """Return the accounts, with fair shares, counts of jobs, and held jobs."""
        users = [
            msgspec.to_builtins(user)
            | {
                "usage": user.usage_now(self.now(), self._settings.half_life),
                "active_jobs": self.active_jobs[user.userid, user.bank],
                "held_jobs": list(self._held.get((user.userid, user.bank), ())),
            }
            for user in self._accounts.users.values()
        ]
        banks = msgspec.to_builtins(list(self._accounts.banks.values()))
        return {"shares": self._accounts.owed(), "users": users, "banks": banks}

    @jobtap.service("reload")
    def reload(self, _request: jobtap.ServiceRequest) -> dict[str, Any]:
        """Serve job-manager.multifactor.reload: read the database now, not at the next interval."""
        try:
            self._read()
        except UNREADABLE as error:
            raise jobtap.FluxError(jobtap.Errno.EINVAL, str(error)) from None
        self._refresh()
        return {}

    async def _tend(self) -> None:
        while True:
            self._refresh()
            await trio.sleep(self._settings.interval)
            path = Path(self._settings.database)
            try:
                if self._settings.record_usage:
                    usage = usage_to_record(self._accounts)
                    await trio.to_thread.run_sync(record_usage, path, usage)
                if self._accounts.are_old(path):
                    self._read()
            except UNREADABLE as error:
                text = f"{self._settings.database}: {error}; the accounts stay as they were"
                self.log(jobtap.Level.ERR, text)

    def _read(self) -> None:
        fresh = Accounts.read(Path(self._settings.database))
        fresh.keep_usage(self._accounts)
        self._accounts = fresh

    def _refresh(self) -> None:
        """Compute fair shares and priorities, and release jobs if limits have grown."""
        set_fair_shares(self._accounts, self.now(), self._settings.half_life)
        for key in list(self._held):
            self._release(key)
        self.reprioritize_all()


def _unknown(userid: int) -> str:
    return f"cannot find user/bank or user/default bank entry for uid: {userid}"


def _bank_of(job: jobtap.Job) -> str | None:
    bank = job.jobspec.system.get("bank")
    return None if bank is None else str(bank)


def _size_of(job: jobtap.Job) -> Size:
    spec = job.jobspec
    return Size(spec.nnodes or 1, spec.ncores, spec.queue or "")
