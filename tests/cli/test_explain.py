"""`flux-trio job explain` and `jobs -o {explain}`: texts, and a real instance."""

from __future__ import annotations

import re

import pytest

from flux_trio.cli.jobs.explanation import lines, reasons
from flux_trio.editions.explain_requests import Explained, Holder, Place, PluginReason
from tests.support.instance import RunningInstance

NOW = 1_000_000_000.0


def test_text_names_the_plugins_the_place_and_the_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    holders = [Holder(1, NOW + 60), Holder(2, None)]
    place = Place(9, "easy", 5, 7, "insufficient resources", [3, 4], holders, NOW + 100_000)
    said = [
        PluginReason(".priority-default", 16, text="the urgency"),
        PluginReason("mine", unavailable=True),
        PluginReason("hers", text="waits for data"),
        PluginReason("his", error="plugin his failed"),
    ]
    text = "\n".join(lines(Explained(9, "SCHED", 16, 16, said, ["first"], place), NOW))
    assert re.sub(r"\d\d:\d\d(:\d\d)?", "TIME", text) == (
        "ƒA is in SCHED with priority 16.\n"
        "Priority:\n"
        "  .priority-default says 16: the urgency\n"
        "  mine says the priority is unavailable\n"
        "  hers: waits for data\n"
        "  plugin his failed\n"
        "It waits:\n"
        "  first\n"
        "  place 5 of 7 in the queue, policy easy, behind ƒ4, ƒ5 and 2 more\n"
        "  insufficient resources; they are held by ƒ2 until TIME, ƒ3 without a time limit\n"
        "  it might start 2001-09-10 TIME, if all jobs last to their ends"
    )


@pytest.mark.parametrize(
    ("urgency", "text"), [(0, "urgency 0 holds it"), (31, "urgency 31 expedites it")]
)
def test_urgency_that_overrides_plugins_is_named(urgency: int, text: str) -> None:
    found = list(lines(Explained(9, "SCHED", urgency, 0, [], []), NOW))
    assert found[2] == f"  {text}, whatever plugins say"
    assert found[-1] == "It waits for nothing."


def test_job_without_a_request_has_no_place() -> None:
    place = Place(9, "fifo", 0, 7, "the scheduler has no request for it")
    found = list(reasons(Explained(9, "SCHED", 16, 16, [], [], place), NOW))
    assert found == ["the scheduler has no request for it"]


@pytest.mark.real
def test_jobs_of_a_real_instance(instance: RunningInstance) -> None:
    running = instance.simulated(600, "-N2", "-n4", "-t", "10m")
    instance.ok("job", "wait-event", "-q", running, "start")
    head, behind = instance.simulated(600, "-N2", "-n4"), instance.simulated(600, "-N2", "-n4")
    held = instance.simulated(600, "--urgency=hold")
    text = instance.ok("job", "explain", head, behind)
    first, second = re.split(r"\n(?=ƒ)", text.strip())
    assert first.startswith(f"{head} is in SCHED with priority 16.\nPriority:\n  .priority-def")
    assert "\n  place 1 of 2 in the queue, policy fifo\n" in first
    assert f"insufficient resources; they are held by {running} until " in first
    assert "\n  it might start " in first
    assert f"place 2 of 2 in the queue, policy fifo, behind {head}" in second
    listed = instance.ok("jobs", "-no", "{id.f58} {explain}").splitlines()
    why = dict(line.partition(" ")[::2] for line in listed)
    assert why[running] == ""
    assert why[held] == "it is held: its urgency is 0"
    assert why[behind].startswith(f"place 2 of 2 in the queue, policy fifo, behind {head}; insuff")
    for jobid in (held, behind, head, running):
        instance.ok("cancel", jobid)
        instance.over(jobid)
    assert instance.ok("job", "explain", held) == f"{held} is INACTIVE: Canceled\n"


@pytest.mark.real
def test_job_that_can_never_run_says_why_it_ended(instance: RunningInstance) -> None:
    jobid = instance.simulated(600, "-N20")
    instance.over(jobid)
    assert "unsatisfiable" in instance.ok("job", "explain", jobid)


@pytest.mark.real
def test_unknown_job_is_an_error(instance: RunningInstance) -> None:
    done = instance.invoke("job", "explain", "1")
    assert done.exit_code == 1
    assert "ƒ2" in done.stderr
