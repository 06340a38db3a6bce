"""Housekeeping: what a job had is free when the command has ended on its ranks."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.cores.job_manager.calls import Housekeep, HousekeepingEnded, HousekeepingSignal
from flux_trio.cores.job_manager.scheduler.housekeeping import KEY
from flux_trio.formats import ResourceSet
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.protocols import JobState
from tests.support.manager_script import START, ManagerScript

COMMAND = ("clean", "up")


def config(edition: str = "current", release_after: str | None = None) -> Config:
    after = "" if release_after is None else f'release-after = "{release_after}"'
    table = f'[job-manager.housekeeping]\ncommand = ["clean", "up"]\n{after}'
    return parse_config(f'edition = "{edition}"\n{table}')


class Script(ManagerScript):
    """A job manager whose housekeeping the test ends."""

    def __init__(self, given: Config, **how: Any) -> None:
        self.actions: list[Any] = []
        super().__init__(config=given, **how)

    def _do(self, action: Any) -> Any:
        if isinstance(action, Housekeep | HousekeepingSignal):
            self.actions.append(action)
            return []
        return super()._do(action)

    def ran(self, jobid: int, ranks: int = 3) -> None:
        """A job has had these ranks, and has ended."""
        cores = [(rank, 1, 0) for rank in range(ranks)]
        r = ResourceSet.build(cores, "node{}".format, starttime=START)
        self.submit(jobid)
        self.store_r(jobid, {rank: [0] for rank in range(ranks)})
        self.alloc(jobid, **({"R": r.to_json()} if self.is_current else {}))
        self.execute(jobid, "start", "finish", "release final")

    @property
    def is_current(self) -> bool:
        return bool(self.core._parts.ledger.edition.frees_in_parts)

    def ended(self, jobid: int, *ranks: int, failure: str = "") -> list[str]:
        return self.put(*(HousekeepingEnded(jobid, rank, failure) for rank in ranks))

    def frees(self) -> list[tuple[str, bool]]:
        """The ranks of each sched.free so far, and whether it was final."""
        payloads: list[Any] = [
            each.payload
            for each in self.messages
            if isinstance(each, Request) and each.topic == topics.SCHED_FREE
        ]
        return [
            (str(ResourceSet.parse(each["R"]).ranks), each.get("final", False)) for each in payloads
        ]

    def held(self) -> list[Any]:
        """What the last hello has told."""
        self.messages.clear()
        self.hello()
        found = [each for each in self.messages if isinstance(each, Response)]
        return [each.payload for each in found if each.topic == topics.SCHED_HELLO][:-1]


def test_job_is_over_while_housekeeping_holds_its_resources() -> None:
    """27.free.1: the event free comes first; the one sched.free is final."""
    m = Script(config(), peers=True)
    m.ran(1)
    assert m.names(1)[-2:] == ["free", "clean"]
    assert m.actions == [Housekeep(1, 2000, COMMAND, "0-2", (0, 1, 2))]
    assert m.stats()["housekeeping"]["running"] == {
        "ƒ2": {"t_start": START, "pending": "0-2", "allocated": "0-2"}
    }
    m.ended(1, 0, 2)
    assert m.frees() == []
    m.ended(1, 1)
    assert m.frees() == [("0-2", True)]
    assert m.stats()["housekeeping"]["running"] == {}
    m.ended(1, 1)  # a late one changes nothing


@pytest.mark.parametrize(
    ("after", "frees"),
    [
        ("0", [("1", False), ("0", False), ("2", True)]),
        ("10s", [("0-1", False), ("2", True)]),
        ("1h", [("0-2", True)]),
        (None, [("0-2", True)]),
    ],
)
def test_release_after_says_when_ranks_that_are_done_are_free(
    after: str | None, frees: list[tuple[str, bool]]
) -> None:
    m = Script(config(release_after=after), peers=True)
    m.ran(1)
    m.ended(1, 1)
    m.wait(5)
    m.ended(1, 0)
    m.wait(6)  # ten seconds after the first one
    m.ended(1, 2)
    assert m.frees() == frees


def test_new_scheduler_is_told_of_what_is_held_and_what_is_free() -> None:
    """27.hello.11 as the current text has it, also of a job that is over."""
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.ended(1, 1)
    m.gone("sched")
    m.ended(1, 0)  # no scheduler can be told now
    assert m.frees() == [("1", False)]
    told = {"id": 1, "priority": 16, "userid": 2000, "t_submit": START}
    m.messages.clear()
    m.ask(topics.SCHED_HELLO, {"partial-ok": True}, by="sched", streaming=True)
    answers = [each.payload for each in m.messages if isinstance(each, Response)]
    assert answers[0] == {**told, "free": "1"}
    m.ready()
    assert m.frees() == [("0", False)]
    m.ended(1, 2)
    assert m.frees()[-1] == ("2", True)


def test_scheduler_that_does_not_know_free_is_not_told_of_a_job_that_is_freed_in_part() -> None:
    """Its commands are ended, and what it held is let go; a whole job is told."""
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.gone("sched")
    assert [each["id"] for each in m.held()] == [1]
    m.ready()
    m.ended(1, 1)
    m.gone("sched")
    assert m.held() == []
    assert m.actions[-1] == HousekeepingSignal(1, (0, 2), 15)
    m.ended(1, 0, 2)
    m.ready()
    assert m.frees() == []


def test_rank_on_which_it_fails_is_drained_before_it_is_free() -> None:
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.ended(1, 2, failure="nonzero exit code 1")
    (drain,) = (each for each in m.messages if each.topic == topics.RESOURCE_DRAIN)
    assert drain.payload["targets"] == "2"
    assert "ƒ2" in drain.payload["reason"]
    assert m.frees() == []
    m.put(Response(topics.RESOURCE_DRAIN, None, matchtag=drain.matchtag))
    assert m.frees() == [("2", False)]


def test_rank_is_free_although_nobody_can_drain_it() -> None:
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.ended(1, 2, failure="nonzero exit code 1")
    (drain,) = (each for each in m.messages if each.topic == topics.RESOURCE_DRAIN)
    m.put(Response(topics.RESOURCE_DRAIN, "gone", Errno.ENOSYS, matchtag=drain.matchtag))
    assert m.frees() == [("2", False)]


def test_restart_runs_it_again_where_it_had_not_ended() -> None:
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.ended(1, 1)
    later = Script(config(release_after="0"), kvs=m.kvs)
    assert later.actions == [Housekeep(1, 2000, COMMAND, "0-2", (0, 2), again=True)]
    later.ask(topics.SCHED_HELLO, {"partial-ok": True}, by="sched", streaming=True)
    later.ready()
    later.ended(1, 0, 2)
    assert later.frees() == [("0", False), ("2", True)]
    assert later.kvs.value(KEY) == "[]"


def test_restart_without_the_command_frees_what_was_held() -> None:
    m = Script(config(), peers=True)
    m.ran(1)
    later = Script(Config(edition="current"), kvs=m.kvs)
    later.attach_sched()
    assert later.actions == []
    assert later.frees() == [("0-2", True)]


def test_kill_sends_a_signal_to_the_commands_that_run() -> None:
    m = Script(config(), peers=True)
    m.ran(1)
    m.ended(1, 0)
    m.ask(topics.JOB_HOUSEKEEPING_KILL, {"signum": 9, "ranks": "0-1"})
    m.ask(topics.JOB_HOUSEKEEPING_KILL, {"signum": 15, "jobid": 1})
    m.ask(topics.JOB_HOUSEKEEPING_KILL, {"signum": 15, "jobid": 7})
    assert m.actions[1:] == [HousekeepingSignal(1, (1,), 9), HousekeepingSignal(1, (1, 2), 15)]
    m.messages.clear()
    m.ask(topics.JOB_HOUSEKEEPING_KILL, {"signum": 15, "ranks": "x"})
    assert [each.errnum for each in m.messages if isinstance(each, Response)] == [Errno.EINVAL]


def test_a_rank_whose_command_the_operator_has_ended_is_not_drained() -> None:
    m = Script(config(release_after="0"), peers=True)
    m.ran(1)
    m.ask(topics.JOB_HOUSEKEEPING_KILL, {"signum": 15, "ranks": "1"})
    m.ended(1, 1, failure="killed by signal 15")
    assert [each for each in m.messages if each.topic == topics.RESOURCE_DRAIN] == []
    assert m.frees() == [("1", False)]


def test_in_the_classic_edition_the_job_holds_its_resources_until_all_is_done() -> None:
    m = Script(config("classic"), peers=True)
    m.ran(1)
    assert m.state(1) == JobState.CLEANUP
    m.ended(1, 0, 1)
    assert m.state(1) == JobState.CLEANUP
    m.ended(1, 2)
    m.freed(1)
    assert m.names(1)[-2:] == ["free", "clean"]


def test_in_the_classic_edition_release_after_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"housekeeping\.release-after: expected no release-after"):
        config("classic", "0")
