"""Worlds whose jobs have processes keep all properties, and notice what breaks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from flux_trio.cores.exec.copying import Copies
from flux_trio.cores.exec.ending import Ends
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.job_list.watches import Watches
from flux_trio.lab.stories.outcome import property_of
from flux_trio.shell.protocol import Ack, Done
from tests.processes.worlds import Played, play

SEEDS = range(45)
AT_ONCE = SEEDS[:10]  # all of them are for `make gate`


@pytest.fixture(scope="module")
def worlds() -> dict[int, Played]:
    return {seed: play(seed) for seed in SEEDS}


def broken(worlds: Mapping[int, Played]) -> dict[int, tuple[str, ...]]:
    return {seed: each.problems for seed, each in worlds.items() if each.problems}


def test_no_property_is_broken_in_the_first_worlds() -> None:
    assert broken({seed: play(seed) for seed in AT_ONCE}) == {}


@pytest.mark.gate
def test_no_property_is_broken(worlds: dict[int, Played]) -> None:
    assert broken(worlds) == {}


@pytest.mark.gate
@pytest.mark.parametrize(
    "count",
    [
        lambda each: len(each.world.host.launched),
        lambda each: each.world.host.npostponed,
        lambda each: each.world.nlost,
        lambda each: each.world.nkilled,
        lambda each: each.world.nrefused,
        lambda each: sum(len(job.written) for job in each.world.host.launched.values()),
        lambda each: len(each.reader.whole),
    ],
    ids=["launched", "postponed", "lost", "killed", "refused", "written", "streamed"],
)
def test_worlds_come_to_what_they_are_for(
    worlds: dict[int, Played], count: Callable[[Played], int]
) -> None:
    assert sum(map(count, worlds.values())) > 5


def test_a_seed_is_one_world() -> None:
    records: list[list[str]] = [[], []]
    for found in records:
        play(3, [lambda record, found=found: found.append(repr(record))])  # type: ignore[misc]
    assert records[0] == records[1]


# --- mistakes: each breaks a property within a few seeds


def acknowledges_before_the_output_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    done = RealJobs.done

    def also_acknowledging(self: RealJobs, notice: Done) -> None:
        done(self, notice)
        self._outbox.send(ToShell(Ack(notice.id)))

    monkeypatch.setattr(RealJobs, "done", also_acknowledging)


def reads_on_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copies, "stored", _nothing)


def leaves_streams_of_jobs_that_are_over_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watches, "ended", _nothing)


def asks_for_nothing_on_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(self: RealJobs) -> None:
        self.is_connected = True

    monkeypatch.setattr(RealJobs, "connected", connected)


def never_asks_again_for_what_was_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealJobs, "retry", _nothing)


def acknowledges_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ends, "acknowledge_again", _nothing)


def ignores_that_a_job_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealJobs, "unknown", _nothing)


def _nothing(*_: object) -> None:
    """Do nothing."""


@pytest.mark.gate
@pytest.mark.parametrize(
    ("mistake", "breaks"),
    [
        (acknowledges_before_the_output_is_stored, "output"),
        (reads_on_for_nobody, "inactive"),
        (leaves_streams_of_jobs_that_are_over_open, "answered"),
        (asks_for_nothing_on_a_new_connection, "inactive"),
        (never_asks_again_for_what_was_postponed, "inactive"),
        (acknowledges_only_once, "kept"),
        (ignores_that_a_job_is_unknown, "inactive"),
    ],
)
def test_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    found = next((problems for seed in SEEDS if (problems := play(seed).problems)), ())
    assert breaks in map(property_of, found)
