"""multifactor: priority from fair share, queue, bank and urgency; limits of users and queues.

    priority = weights x (fair share, queue, bank) + weight x (urgency - 16), rounded, at least 0

Users, banks and queues are in a SQLite database that `accounts.py`, beside this file, edits. Load
the plugin with `conf = {"database": "site.db"}`. An edit counts within `interval` seconds; jobs
that wait for a limit are looked at again then. Further keys of `conf`: `weights` (fairshare,
queue, bank, urgency), `interval` (seconds between two looks at usage and database) and `half-life`
(seconds after which usage counts half). Jobs count while they could run or do: a limit on running
jobs can not be passed by many that were started at once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import trio
from accounts import (
    Accounts,
    Association,
    Queue,
    record_usage,
    set_fair_shares,
    usage_to_record,
)

from flux_trio import jobtap

URGENCY_DEFAULT: Final = 16

# --- limits

# Dependencies by which a job waits for room.
USER_JOBS: Final = "max-running-jobs-user-limit"
USER_RESOURCES: Final = "max-resources-user-limit"
QUEUE_JOBS: Final = "max-run-jobs-queue"
QUEUE_RESOURCES: Final = "max-resources-queue"
UNREADABLE: Final = (sqlite3.Error, OSError, ValueError)  # a database in use, gone, or of nonsense
OURS: Final = frozenset({USER_JOBS, USER_RESOURCES, QUEUE_JOBS, QUEUE_RESOURCES})


@dataclass(frozen=True)
class Size:
    """What a job takes of a limit."""

    nnodes: int
    ncores: int
    queue: str | None


@dataclass
class Taken:
    """What jobs take together."""

    jobs: int = 0
    nnodes: int = 0
    ncores: int = 0

    def change(self, sign: int, size: Size) -> None:
        """One job more (1) or less (-1)."""
        self.jobs += sign
        self.nnodes += sign * size.nnodes
        self.ncores += sign * size.ncores


@dataclass
class Standing:
    """The active jobs of an association: a job is counted by its id, so none counts twice."""

    active: dict[int, Size] = field(default_factory=dict)
    admitted: dict[int, Size] = field(default_factory=dict)  # could run, or do
    held: dict[int, None] = field(default_factory=dict)  # wait for a limit, oldest first
    taken: Taken = field(default_factory=Taken)  # by those admitted
    taken_in: dict[str | None, Taken] = field(default_factory=dict)  # the same by queue

    def admit(self, jobid: int) -> None:
        """It counts against the limits from here on."""
        self.held.pop(jobid, None)
        self._leave(jobid)
        size = self.admitted[jobid] = self.active[jobid]
        self._change(1, size)

    def drop(self, jobid: int) -> None:
        """It is over."""
        self.active.pop(jobid, None)
        self.held.pop(jobid, None)
        self._leave(jobid)

    def obstacles(self, user: Association, queue: Queue | None, size: Size) -> set[str]:
        """The dependencies a job of `size` has to wait for."""
        taken, here = self.taken, self.taken_in.get(size.queue, Taken())
        found = set()
        if _beyond(taken.jobs + 1, user.max_running_jobs):
            found.add(USER_JOBS)
        if _beyond(taken.nnodes + size.nnodes, user.max_nodes) or _beyond(
            taken.ncores + size.ncores, user.max_cores
        ):
            found.add(USER_RESOURCES)
        if queue is not None and _beyond(here.jobs + 1, queue.max_running_jobs):
            found.add(QUEUE_JOBS)
        if queue is not None and _beyond(here.nnodes + size.nnodes, queue.max_nodes):
            found.add(QUEUE_RESOURCES)
        return found

    def _leave(self, jobid: int) -> None:
        size = self.admitted.pop(jobid, None)
        if size is not None:
            self._change(-1, size)

    def _change(self, sign: int, size: Size) -> None:
        self.taken.change(sign, size)
        self.taken_in.setdefault(size.queue, Taken()).change(sign, size)


def _beyond(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit


def _names(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


# --- the plugin


Weight = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Weights(msgspec.Struct, forbid_unknown_fields=True):
    """How much each factor counts."""

    fairshare: Weight = 100_000
    queue: Weight = 10_000
    bank: Weight = 0
    urgency: Weight = 1_000


class Conf(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """What it is loaded with; times in seconds. Simulations do not record usage."""

    database: str
    weights: Weights = msgspec.field(default_factory=Weights)
    interval: Seconds = 15.0
    half_life: Seconds = 7 * 86400.0
    record_usage: bool = True


class Multifactor(jobtap.Plugin):
    """Keeps the accounts; answers for priorities and limits."""

    name = "multifactor"

    def __init__(self) -> None:
        self._settings = Conf(database="")
        self._accounts = Accounts()
        self._read_at = 0.0  # the database's time of change then
        self._standings: dict[tuple[int, str], Standing] = {}

    @jobtap.on("conf.update")
    def configure(self, _config: jobtap.Config) -> None:
        """What it was loaded with, and the accounts as they are now."""
        self._settings = self.read_conf(Conf)
        try:
            self._read()
        except UNREADABLE as error:
            raise jobtap.Reject(f"{self._settings.database}: {error}") from None

    def loaded(self) -> None:
        """Look at usage and database now and then."""
        self.start_soon(self._tend)

    def removed(self) -> None:
        """Nothing of what was used is lost."""
        if self._settings.record_usage and self._accounts.users:
            record_usage(Path(self._settings.database), usage_to_record(self._accounts))

    # --- may it be submitted

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Accounts, queue, project, and limits that no waiting would help against."""
        if not self._accounts.users:
            return  # it waits in PRIORITY until there is data
        system = job.jobspec.system
        user = self._find(job.userid, _bank_of(job))
        if not user.active:
            raise jobtap.Reject("user/bank entry has been disabled from flux-accounting DB")
        self._check_queue(user, job.jobspec.queue)
        self._check_project(user, system.get("project"))
        if job.state == jobtap.State.NEW:
            active = len(self._standing(user).active)
            if _beyond(active + 1, user.max_active_jobs):
                raise jobtap.Reject("user has max active jobs")
        self._check_size(user, _size_of(job))

    @jobtap.on("job.update.attributes.system.queue")
    def update_queue(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """To a queue the user may use."""
        self._check_queue(self._find(job.userid, _bank_of(job)), update.value)
        return jobtap.UpdateAllowed()

    @jobtap.on("job.update.attributes.system.bank")
    def update_bank(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """To a bank of the user's that has room: a job does not go back to DEPEND."""
        user = self._find(job.userid, update.value)
        standing = self._standing(user)
        if _beyond(len(standing.active) + 1, user.max_active_jobs):
            raise jobtap.Reject("new bank is already at max-active-jobs limit")
        if _beyond(len(standing.admitted) + 1, user.max_running_jobs):
            raise jobtap.Reject(
                f"updating to bank {user.bank} while it is already at max-run-jobs limit "
                "is not allowed; try again later"
            )
        return jobtap.UpdateAllowed()

    def _find(self, userid: int, bank: Any) -> Association:
        user = self._accounts.find(userid, bank)
        if user is None:
            raise jobtap.Reject(
                f"cannot find user/bank or user/default bank entry for uid: {userid}"
            )
        return user

    def _check_queue(self, user: Association, queue: str | None) -> None:
        if queue in self._accounts.queues and queue not in _names(user.queues):
            text = f'queue "{queue}" not valid for user; valid queues for user: {user.queues}'
            raise jobtap.Reject(text)

    def _check_project(self, user: Association, project: Any) -> None:
        if project is not None and project not in _names(user.projects):
            raise jobtap.Reject(
                f'project "{project}" not valid for user; valid projects for user: {user.projects}'
            )

    def _check_size(self, user: Association, size: Size) -> None:
        queue = self._accounts.queues.get(size.queue or "")
        if queue is not None and _beyond(size.nnodes, queue.max_nodes):
            raise jobtap.Reject(
                f"job size ({size.nnodes} node(s)) is greater than max resources limit "
                f"configured for queue ({queue.max_nodes} node(s))"
            )
        if _beyond(size.nnodes, user.max_nodes) or _beyond(size.ncores, user.max_cores):
            nodes, cores = (
                "unlimited" if each is None else each for each in (user.max_nodes, user.max_cores)
            )
            raise jobtap.Reject(
                f"job size ({size.nnodes} node(s), {size.ncores} core(s)) is greater than max "
                f"resources limits configured for association ({nodes} node(s), {cores} core(s))"
            )

    # --- may it go on

    @jobtap.on("job.new")
    def new(self, job: jobtap.Job) -> None:
        """Count it, and write down the bank and project it goes by."""
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
        """A dependency for each limit that it would pass now."""
        user = self._user_of(job)
        if user is None:
            return
        standing = self._standing(user)
        if OURS & job.dependencies:  # of before this plugin was loaded: others are counted first
            standing.held[job.id] = None
            return
        obstacles = self._obstacles(user, job)
        for text in sorted(obstacles):
            job.add_dependency(text)
        if obstacles:
            standing.held[job.id] = None
        else:
            standing.admit(job.id)

    @jobtap.on("job.update")
    def updated(self, job: jobtap.Job, _updates: dict[str, Any]) -> None:
        """It may be in another bank or queue, or of another size."""
        before = self._standing_of(job)
        user = self._accounts.find(job.userid, _bank_of(job))
        if before is not None and user is not None:
            was_admitted, was_held = job.id in before.admitted, job.id in before.held
            before.drop(job.id)
            self._count(job, user)
            if was_admitted:
                self._standing(user).admit(job.id)
            elif was_held:
                self._standing(user).held[job.id] = None

    @jobtap.on("job.state.inactive")
    def inactive(self, job: jobtap.Job) -> None:
        """Charge what it used, and let go on who waited for its room."""
        user, standing = self._user_of(job), self._standing_of(job)
        if standing is None:
            return
        size = standing.active.get(job.id)
        if user is not None and size is not None and job.R is not None:
            now = self.now()
            used = max(0.0, now - job.R["execution"].get("starttime", now))
            user.usage = user.usage_now(now, self._settings.half_life) + size.nnodes * used
            user.usage_at = now
        standing.drop(job.id)
        self._release(job.userid, job.data["bank"])

    def _count(self, job: jobtap.Job, user: Association) -> None:
        standing = self._standing(user)
        size = standing.active[job.id] = _size_of(job)
        job.data.update(bank=user.bank, queue=size.queue or "")
        if job.state not in (jobtap.State.NEW, jobtap.State.DEPEND):
            standing.admit(job.id)  # of before this plugin was loaded

    def _release(self, userid: int, bank: str) -> None:
        """Let go on whom nothing holds any more; of an association that is gone, that is all."""
        user, standing = self._accounts.users.get((userid, bank)), self._standings[userid, bank]
        for jobid in list(standing.held):
            job = self.jobs.get(jobid)
            if job is None or job.state != jobtap.State.DEPEND:
                continue
            obstacles = set() if user is None else self._obstacles(user, job)
            for text in sorted((OURS & job.dependencies) - obstacles):
                job.remove_dependency(text)
            if not obstacles:
                standing.admit(jobid)
            elif USER_JOBS in obstacles:
                return  # nor can those behind it

    def _obstacles(self, user: Association, job: jobtap.Job) -> set[str]:
        standing = self._standing(user)
        size = standing.active[job.id]
        return standing.obstacles(user, self._accounts.queues.get(size.queue or ""), size)

    def _user_of(self, job: jobtap.Job) -> Association | None:
        """Who it was counted for; None for a job that came before there was data."""
        return self._accounts.users.get((job.userid, job.data.get("bank", "")))

    def _standing_of(self, job: jobtap.Job) -> Standing | None:
        """Where it is counted, also when there is no such association any more."""
        return self._standings.get((job.userid, job.data.get("bank", "")))

    def _standing(self, user: Association) -> Standing:
        return self._standings.setdefault((user.userid, user.bank), Standing())

    # --- how urgent it is

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int | jobtap.Unavailable:
        """The sum of the factors; unavailable as long as there is no data."""
        if not self._accounts.users:
            return jobtap.UNAVAILABLE
        user = self._user_of(job)
        if user is None:
            user = self._accounts.find(job.userid, _bank_of(job))
            if user is None:
                note = f"cannot find user/bank or user/default bank entry for uid: {job.userid}"
                job.raise_exception(self.name, 0, note)
                return jobtap.UNAVAILABLE
            self._count(job, user)
        weights = self._settings.weights
        queue = self._accounts.queues.get(job.data["queue"])
        bank = self._accounts.banks.get(user.bank)
        value = (
            weights.fairshare * user.fair_share
            + weights.queue * (queue.priority if queue else 0.0)
            + weights.bank * (bank.priority if bank else 0.0)
            + weights.urgency * (job.urgency - URGENCY_DEFAULT)
        )
        return min(max(0, round(value)), jobtap.PRIORITY_MAX)

    # --- what it knows

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        """The accounts, with fair share and the jobs that are counted and held."""
        users = [
            msgspec.to_builtins(user)
            | {
                "usage": user.usage_now(self.now(), self._settings.half_life),
                "active_jobs": len(self._standing(user).active),
                "held_jobs": list(self._standing(user).held),
            }
            for user in self._accounts.users.values()
        ]
        banks = msgspec.to_builtins(list(self._accounts.banks.values()))
        return {"shares": self._accounts.owed(), "users": users, "banks": banks}

    @jobtap.service("reload")
    def reload(self, _request: jobtap.ServiceRequest) -> dict[str, Any]:
        """job-manager.multifactor.reload: read the database now, not at the next look."""
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
            try:
                await self._exchange(Path(self._settings.database))
            except UNREADABLE as error:
                text = f"{self._settings.database}: {error}; the accounts stay as they were"
                self.log(jobtap.Level.ERR, text)

    async def _exchange(self, path: Path) -> None:
        """Write down the usage, and take in what was edited."""
        if self._settings.record_usage:
            await trio.to_thread.run_sync(record_usage, path, usage_to_record(self._accounts))
        if self._read_at != _changed_at(path):
            self._read()

    def _read(self) -> None:
        path = Path(self._settings.database)
        fresh = Accounts.read(path)
        for key, user in self._accounts.users.items():
            if key in fresh.users and user.usage_at > fresh.users[key].usage_at:
                fresh.users[key].usage = user.usage  # not recorded yet
                fresh.users[key].usage_at = user.usage_at
        self._accounts = fresh
        self._read_at = _changed_at(path)

    def _refresh(self) -> None:
        """New fair shares, new priorities, and room where limits have grown."""
        set_fair_shares(self._accounts, self.now(), self._settings.half_life)
        for userid, bank in list(self._standings):
            self._release(userid, bank)
        self.reprioritize_all()


def _bank_of(job: jobtap.Job) -> str | None:
    bank = job.jobspec.system.get("bank")
    return None if bank is None else str(bank)


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime


def _size_of(job: jobtap.Job) -> Size:
    spec = job.jobspec
    return Size(spec.nnodes or 1, spec.ncores, spec.queue)
