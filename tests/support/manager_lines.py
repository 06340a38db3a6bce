"""What a job manager did, a line each.

sched.alloc 1                       a request, with what it is about
job-manager.raise -> {}             a response; an error as `-> ENOENT unknown job id`
event job-exception 1 cancel 0      an event
ask job.state.run 1                 a question to the plugins
commit 1: validate depend           a commit that waits
"""

from __future__ import annotations

from typing import Any

from flux_trio.cores.job_index import ACTIVE, ENDED
from flux_trio.cores.job_manager.calls import FindUser
from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY
from flux_trio.cores.job_manager.queues.queues import CHECKPOINT_KEY
from flux_trio.cores.turns import Exit, Log
from flux_trio.formats import parse_eventlog, parse_fluid
from flux_trio.messages import Errno, Event, Request, Response
from flux_trio.protocols import PluginReplayed


def show(action: Any) -> str:
    """One action as a line."""
    match action:
        case Request(topic=topic, payload=dict(payload)):
            return f"{topic} {_about(payload)}"
        case Response(topic=topic, errnum=errnum, payload=payload) if errnum:
            return f"{topic} -> {Errno(errnum).name} {payload or ''}".rstrip()
        case Response(topic=topic, payload=payload):
            return f"{topic} -> {payload or {}}"
        case Event(topic=topic, payload=dict(payload)):
            return f"event {topic} {' '.join(map(str, payload.values()))}"
        case FindUser(userid=userid):
            return f"find user {userid}"
        case PluginReplayed(ticket=ticket):
            return f"replayed {ticket}"
        case Log(level=level, text=text):
            return f"log {int(level)}: {text}"
        case Exit(reason=reason):
            return f"exit: {reason}"
        case _:
            raise AssertionError(f"unexpected action {action!r}")


def _about(payload: dict[str, Any]) -> str:
    if "jobs" in payload:
        return str(payload["jobs"])
    return f"{payload.get('id')}{' reattach' if payload.get('reattach') else ''}"


def commit_line(commit: Request) -> str:
    assert isinstance(commit.payload, dict)
    jobs = []
    for op, where, *text in commit.payload["ops"]:
        if where == CHECKPOINT_KEY:
            jobs.append("queues")
            continue
        if where == MAX_JOBID_KEY or where.startswith((f"{ACTIVE}.", f"{ENDED}.")):
            continue  # these go with the others
        jobid = parse_fluid(where.removesuffix(".eventlog").removesuffix(".R"))
        names = [event.name for event in parse_eventlog(text[0])] if op == "append" else [op]
        jobs.append(f"{jobid}: {' '.join(names)}")
    return f"commit {', '.join(jobs)}"
