"""The picture of one job, with the documents, keys and events of a job that has run.

The page of one job shows it as a sample; see `make_samples`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

from flux_trio.formats import Event, job_key
from flux_trio.messages import Request, topics
from flux_trio.protocols import Job
from flux_trio.testing import InstanceHarness, InstanceJob

COLUMN: Final = 66  # where the events stand
REMARKS: Final = {  # of events that do not change the job's state
    "submit": "by job-ingest",
    "start": "processes run",
    "release": "nothing of it is left",
    "free": "R is the scheduler's again",
}
DOWN: Final = "     |"
ARROW: Final = (DOWN, "     v")


def picture() -> str:
    """Return the picture as a block of Markdown."""
    with InstanceHarness() as instance:
        job = instance.submit(ntasks=2, duration=600.0)
        instance.wait(job)
        jobspec, granted = (_stored(instance, job, name) for name in ("jobspec", "R"))
        told = iter(_events(job.id, job.events))
        alloc, start = (_keys(instance, topic) for topic in (topics.SCHED_ALLOC, "job-exec.start"))
    lines = [
        ("flux-trio submit -n 2 --time-limit=10m true", ""),
        *_beside(ARROW),
        ("job.ID.jobspec (RFC 14)", "job.ID.eventlog (RFC 18, 21)"),
        *_beside(_wrapped(jobspec)),
        *_beside(["     |  job-ingest checks it and gives it an id"], [next(told)]),
        *_beside(
            [
                "     |  job-manager: is it valid? what does it depend on?",
                "     |  which priority has it?",
                "     v",
            ],
            [next(told), next(told), next(told)],
        ),
        *_beside([f"sched.alloc {alloc}"]),
        *_beside(["     |  the scheduler picks cores, writes R, SUCCESS"], [next(told)]),
        *_beside(ARROW[1:]),
        ("job.ID.R (RFC 20)", ""),
        *_beside(_wrapped(granted)),
        *_beside(ARROW),
        *_beside([f"job-exec.start {start}"]),
        *_beside(["     |  the shell host runs the command twice"], [next(told) for _ in range(4)]),
        *_beside(ARROW[1:]),
        *_beside(["the job is over; its output is in job.ID.guest.output"], list(told)),
    ]
    body = "\n".join(f"{left:<{COLUMN}}{right}".rstrip() for left, right in lines)
    return f"```text\n{body}\n```"


def _stored(instance: InstanceHarness, job: InstanceJob, name: str) -> dict[str, Any]:
    text = instance.request(topics.KVS_LOOKUP, {"key": job_key(job.id, name)})["value"]
    found: dict[str, Any] = json.loads(text)
    return found


def _events(jobid: int, events: list[Event]) -> list[str]:
    """Return the names of the events, each with the state that follows, or with a remark."""
    job = Job(jobid, events[0])
    told = [f"submit      {REMARKS['submit']}"]
    for event in events[1:]:
        before = job.state
        job.apply(event)
        remark = f"-> {job.state.name}" if job.state != before else REMARKS.get(event.name, "")
        told.append(f"{event.name:<12}{remark}".rstrip())
    return told


def _keys(instance: InstanceHarness, topic: str) -> str:
    """Return the keys of the first request of a topic."""
    messages = [record.message for record in instance.trace]
    request = next(each for each in messages if isinstance(each, Request) and each.topic == topic)
    assert isinstance(request.payload, dict)
    return f"{{{', '.join(request.payload)}}}"


def _wrapped(document: dict[str, Any]) -> list[str]:
    return [f"  {line}" for line in textwrap.wrap(json.dumps(document), COLUMN - 4)]


def _beside(left: Sequence[str], events: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return lines with events beside them; the arrow goes on where there are more events."""
    longer = [DOWN] * (len(events) - len(left))
    return list(zip_longest([*left, *longer], events, fillvalue=""))
