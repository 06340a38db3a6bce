"""A scheduler's conversation with an instance, message by message, as JSON and as bytes.

The page on writing a scheduler shows it as a sample; see `make_samples`.
"""

from __future__ import annotations

import json
import textwrap
from typing import Final, NamedTuple

import cbor2

from flux_trio.formats import job_key
from flux_trio.messages import Errno, Flag, Message, Request, Response, topics
from flux_trio.messages.codec import encode

OWNER: Final = 1000
JOB: Final = 1013813608448
JOBSPEC: Final = {
    "resources": [
        {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
    ],
    "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 60.0}},
    "version": 1,
}
MACHINE: Final = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}],
        "nodelist": ["node[0-1]"],
        "starttime": 0.0,
        "expiration": 0.0,
    },
}
GRANTED: Final = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["node0"],
        "nslots": 1,
        "starttime": 1795395003.5,
        "expiration": 1795395063.5,
    },
}
BYTES_MAX: Final = 120  # of a message whose bytes are shown; longer ones are JSON with bytes


class Line(NamedTuple):
    """A message, whether the scheduler sends it, and a remark."""

    ours: bool
    message: Message
    remark: str


def conversation() -> list[Line]:
    """Return the messages of a scheduler that starts, grants a job, and frees it."""
    streaming = int(Flag.STREAMING)
    asked = {"userid": OWNER, "routes": (topics.JOB_MANAGER,)}
    key = job_key(JOB, "R")
    return [
        Line(True, Request(topics.BROKER_REGISTER, {"service": "sched"}, 1), "the service's name"),
        Line(False, Response(topics.BROKER_REGISTER, None, 0, 1), "it is yours"),
        Line(
            True,
            Request(topics.RESOURCE_ACQUIRE, {"group": "default"}, 2, streaming),
            "the machine; this stream stays open",
        ),
        Line(
            False,
            Response(
                topics.RESOURCE_ACQUIRE,
                {"type": "grow", "resources": MACHINE, "online": "0-1", "offline": ""},
                0,
                2,
                streaming,
            ),
            "the first grow: all nodes, and which are up",
        ),
        Line(
            True,
            Request(topics.SCHED_HELLO, None, 3, streaming),
            "which jobs have resources already?",
        ),
        Line(
            False,
            Response(topics.SCHED_HELLO, "", Errno.ENODATA, 3, streaming),
            "none, or no more: ENODATA",
        ),
        Line(
            True, Request(topics.SCHED_READY, {"mode": "unlimited"}, 4), "from now on requests come"
        ),
        Line(False, Response(topics.SCHED_READY, {"count": 0}, 0, 4), "so many jobs wait"),
        Line(
            False,
            Request(
                topics.SCHED_ALLOC,
                {
                    "id": JOB,
                    "priority": 16,
                    "userid": OWNER,
                    "t_submit": 1795395003.25,
                    "jobspec": JOBSPEC,
                },
                **asked,
            ),
            "a job: answer when it has resources; matchtag 0, since the id pairs them",
        ),
        Line(
            True,
            Request(
                topics.KVS_COMMIT,
                {"ops": [["put", key, json.dumps(GRANTED, separators=(",", ":"))]]},
                5,
            ),
            "R is stored first, and only then ...",
        ),
        Line(False, Response(topics.KVS_COMMIT, None, 0, 5), "... when it is durable ..."),
        Line(
            True,
            Response(topics.SCHED_ALLOC, {"id": JOB, "type": 0}, routes=(topics.JOB_MANAGER,)),
            "... comes the answer, type 0: SUCCESS",
        ),
        Line(False, Request(topics.SCHED_FREE, {"id": JOB}, **asked), "the job is over"),
        Line(
            True,
            Response(topics.SCHED_FREE, {"id": JOB}, routes=(topics.JOB_MANAGER,)),
            "its cores are free",
        ),
    ]


def markdown() -> str:
    """Return the conversation as Markdown."""
    return "\n\n".join(_block(each) for each in conversation())


def _block(line: Line) -> str:
    way = "scheduler -> instance" if line.ours else "instance -> scheduler"
    content = encode(line.message)
    shown = json.dumps(cbor2.loads(content))
    lines = textwrap.wrap(shown, 96, break_on_hyphens=False, break_long_words=False)
    lines += textwrap.wrap(content.hex(" ") if len(content) <= BYTES_MAX else "", 96)
    body = "\n".join(lines)
    return f"{way}: {line.remark}\n\n```text\n{body}\n```"
