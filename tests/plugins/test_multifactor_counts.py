"""The counters of multifactor, and whom its limits hold, whatever becomes of jobs and accounts.

After each step what the plugin has counted must be what a count of the jobs gives, and a job must
wait exactly for as long as one of its limits has no room.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accounts
import click.testing
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from multifactor import OURS, Multifactor

from flux_trio.messages import FluxError
from flux_trio.protocols import JobState
from flux_trio.testing import HarnessJob, PluginHarness, Rejected

USERIDS = {"ann": 1001, "bob": 1002}
CONFIG = """
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug]
[queues.unlisted]
"""
QUEUES = ("batch", "debug", "unlisted")
BANKS = ("physics", "biology")
LIMITS = st.sampled_from(["none", "0", "1", "2", "4"])


@dataclass
class Made:
    """What is known of a job that was submitted."""

    job: HarnessJob
    user: str
    bank: str
    queue: str
    nnodes: int
    ncores: int


class Use(RuleBasedStateMachine):
    """Jobs of two users, one of them in two banks, in three queues of which two are listed."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "site.db"
        for bank in BANKS:
            self.edit("bank", bank)
        for queue in QUEUES[:2]:
            self.edit("queue", queue)
        for user, bank in (("ann", "biology"), ("ann", "physics"), ("bob", "physics")):
            options = [f"bank={bank}", f"userid={USERIDS[user]}", "queues=batch,debug"]
            self.edit("user", user, *options, f"is_default={int(bank == 'physics')}")
        self.edit("user", "ann", "bank=physics", "max_running_jobs=2", "max_nodes=4")
        self.edit("user", "ann", "bank=biology", "max_active_jobs=3", "max_cores=2")
        self.edit("queue", "batch", "max_nodes=3")
        self.edit("queue", "debug", "max_running_jobs=1")
        self.made: list[Made] = []
        plugin = Multifactor()
        plugin.conf = self.conf
        self.harness = PluginHarness(plugin, config=CONFIG)
        self.harness.__enter__()

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            assert [line for line in self.harness.log if "counter" in line] == []
            self.harness.__exit__(None, None, None)
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @property
    def conf(self) -> dict[str, Any]:
        return {"database": str(self.path), "record-usage": False, "interval": 60.0}

    def edit(self, *args: str) -> None:
        result = click.testing.CliRunner().invoke(accounts.main, [str(self.path), "set", *args])
        assert result.exit_code == 0, result.output

    def reread(self) -> None:
        self.harness.request("job-manager.multifactor.reload")

    # --- what happens

    @rule(
        user=st.sampled_from(["ann", "ann", "bob"]),
        bank=st.sampled_from([None, *BANKS]),
        queue=st.sampled_from([None, *QUEUES]),
        nnodes=st.integers(1, 3),
        waits=st.booleans(),
        count=st.integers(1, 3),
    )
    def submit(
        self, user: str, bank: str | None, queue: str | None, nnodes: int, waits: bool, count: int
    ) -> None:
        attributes: dict[str, Any] = {} if bank is None else {"system.bank": bank}
        if queue is not None:
            attributes["system.queue"] = queue
        if waits:
            when = {"scheme": "begin-time", "value": str(self.harness.now + 1000.0)}
            attributes["system.dependencies"] = [when]
        for _ in range(count):
            before = self.of_association(user, bank or "physics")
            try:
                job = self.harness.submit(
                    userid=USERIDS[user], attributes=attributes, nnodes=nnodes, ntasks=nnodes
                )
            except Rejected as refused:
                self.check_refusal(str(refused), user, bank, len(before))
                continue
            found = bank or "physics"
            self.made.append(Made(job, user, found, queue or "batch", nnodes, nnodes))

    def check_refusal(self, text: str, user: str, bank: str | None, active: int) -> None:
        row = self.row(user, bank or "physics")
        if text == "user has max active jobs":
            assert row is not None
            assert row.max_active_jobs is not None
            assert active >= row.max_active_jobs
        else:
            assert "cannot find user" in text if row is None else "job size" in text

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """A job gets what it waits for next, or is canceled."""
        job = data.draw(st.sampled_from(self.active), label="job").job
        if job.state == JobState.SCHED and job.is_offered:
            job.grant()
        elif job.state == JobState.RUN:
            if "start" not in job.names:
                job.start()
            job.finish()
        else:
            job.cancel()

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.active), label="job").job.cancel()

    @precondition(lambda self: self.active)
    @rule(data=st.data(), what=st.sampled_from(["queue", "bank"]))
    def move(self, data: st.DataObject, what: str) -> None:
        made = data.draw(st.sampled_from(self.active), label="job")
        to = data.draw(st.sampled_from(QUEUES if what == "queue" else BANKS), label="to")
        try:
            made.job.update({f"attributes.system.{what}": to})
        except FluxError:
            return
        setattr(made, what, to)

    @rule(
        key=st.sampled_from(["max_active_jobs", "max_running_jobs", "max_nodes", "max_cores"]),
        bank=st.sampled_from(BANKS),
        limit=LIMITS,
    )
    def limit_user(self, key: str, bank: str, limit: str) -> None:
        self.edit("user", "ann", f"bank={bank}", f"{key}={limit}")
        self.reread()

    @rule(
        key=st.sampled_from(["max_running_jobs", "max_nodes"]),
        queue=st.sampled_from(QUEUES[:2]),
        limit=LIMITS,
    )
    def limit_queue(self, key: str, queue: str, limit: str) -> None:
        self.edit("queue", queue, f"{key}={limit}")
        self.reread()

    @rule()
    def load_again(self) -> None:
        """With jobs in every state."""
        self.harness.remove("multifactor")
        load = {"load": "plugins/multifactor.py", "conf": self.conf}
        self.harness.request("job-manager.jobtap", load)
        self.reread()

    @rule()
    def time_passes(self) -> None:
        """The recount of the host looks, too, and jobs with a begin-time begin."""
        self.harness.advance(600)

    # --- what must be so

    @property
    def active(self) -> list[Made]:
        return [made for made in self.made if made.job.state != JobState.INACTIVE]

    def of_association(self, user: str, bank: str) -> list[Made]:
        return [made for made in self.active if (made.user, made.bank) == (user, bank)]

    def row(self, user: str, bank: str) -> accounts.Association | None:
        return accounts.Accounts.read(self.path).users.get((USERIDS[user], bank))

    @invariant()
    def counts_are_those_of_the_jobs(self) -> None:
        expected: dict[str, dict[str, float]] = {}

        def add(name: str, key: tuple[Any, ...], amount: int) -> None:
            counted = expected.setdefault(name, {})
            counted[str(key)] = counted.get(str(key), 0) + amount

        for made in self.active:
            key = (USERIDS[made.user], made.bank)
            is_admitted = not made.job.dependencies & OURS
            add("active_jobs", key, 1)
            add("admitted_jobs", key, is_admitted)
            add("admitted_nodes", key, is_admitted and made.nnodes)
            add("admitted_cores", key, is_admitted and made.ncores)
            add("queue_jobs", (*key, made.queue), is_admitted)
            add("queue_nodes", (*key, made.queue), is_admitted and made.nnodes)
        found = self.harness.query("multifactor")["counters"]
        for name in found.keys() | expected.keys():
            assert found.get(name, {}) == expected.get(name, {}), name

    @invariant()
    def only_a_limit_without_room_holds_a_job(self) -> None:
        waiting = [each for each in self.active if each.job.dependencies]
        held = [each for each in waiting if each.job.dependencies <= OURS]
        known = accounts.Accounts.read(self.path)
        for made in held:
            first = next(each for each in held if (each.user, each.bank) == (made.user, made.bank))
            assert self.has_no_room(known, made) or self.has_no_room(known, first), made

    def has_no_room(self, known: accounts.Accounts, made: Made) -> bool:
        user = known.users[USERIDS[made.user], made.bank]
        queue = known.queues.get(made.queue)
        admitted = [
            each
            for each in self.of_association(made.user, made.bank)
            if not each.job.dependencies & OURS
        ]
        here = [each for each in admitted if each.queue == made.queue]
        pairs = [
            (len(admitted) + 1, user.max_running_jobs),
            (sum(each.nnodes for each in admitted) + made.nnodes, user.max_nodes),
            (sum(each.ncores for each in admitted) + made.ncores, user.max_cores),
        ]
        if queue is not None:
            pairs += [
                (len(here) + 1, queue.max_running_jobs),
                (sum(each.nnodes for each in here) + made.nnodes, queue.max_nodes),
            ]
        return any(limit is not None and value > limit for value, limit in pairs)


Use.TestCase.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestUse = pytest.mark.gate(Use.TestCase)
