"""Of what people typed in the recordings, `submit` makes the jobspec that flux-core stored."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.formats import apply_update
from tests.support.recordings import DATA, RecordedJob, Recording, load_recording

# With queues, flux-core stores what the queue has made of the jobspec: see test_queues.py.
QUEUES = ("33", "35", "36")
NAMES = sorted({path.name[:2] for path in DATA.glob("*.json")}.difference(QUEUES))


def submissions(recording: Recording) -> Iterator[tuple[list[str], RecordedJob]]:
    """The options of each submit, with the job it made."""
    jobs = {job.label: job for job in recording.jobs}
    left = iter(recording.jobs)
    for place, step in enumerate(recording.steps):
        if not step.startswith("flux submit ") or "#" in step:
            continue
        if recording.step_info:  # else every submission made a job
            info = recording.step_info[place]
            if not info.rc:
                yield shlex.split(step)[2:], jobs[info.label.split(",")[0]]
        elif (job := next(left, None)) is not None:
            yield shlex.split(step)[2:], job


def typed(options: list[str], recording: Recording) -> dict[str, Any]:
    """What `flux-trio submit` makes of the options."""
    for job in recording.jobs:
        options = [word.replace(f"{{{job.label}}}", str(job.id)) for word in options]
    done = click.testing.CliRunner().invoke(main, ["submit", "--dry-run", *options])
    assert done.exit_code == 0, done.stderr
    jobspec: dict[str, Any] = json.loads(done.stdout)
    return jobspec


def comparable(jobspec: dict[str, Any]) -> dict[str, Any]:
    """Without what tells of the machine, and of the time.

    flux-core has an object of shell options also when there are none, and rlimits in it, which were
    removed from the recordings: they tell of the machine.
    """
    system = {**jobspec["attributes"]["system"]}
    for key in ("cwd", "environment"):
        system.pop(key, None)
    options = {**system.pop("shell", {}).get("options", {})}
    options.pop("rlimit", None)
    if options:
        system["shell"] = {"options": options}
    for dependency in system.get("dependencies", ()):
        dependency.pop("value")  # an id in another spelling, or a time
    return apply_update(jobspec, "attributes.system", system)


@pytest.mark.parametrize("name", NAMES)
def test_submit_makes_the_jobspec_of_flux_core(name: str) -> None:
    recording = load_recording(name)
    compared = list(submissions(recording))
    assert compared
    for options, job in compared:
        ours = comparable(typed(options, recording))
        assert ours == comparable(job.jobspec), (job.label, options)
