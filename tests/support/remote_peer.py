"""A process of its own that serves over a WebSocket, says what it is asked, and answers nothing.

`python -m tests.support.remote_peer sched|exec|client URI TOKEN`: says `ready`, then a line for
each message that comes. A test kills it.
"""

from __future__ import annotations

import sys

import trio

from flux_trio.messages import Errno, Flag, Message, Request, Response, topics
from flux_trio.transports import Connection, connect_websocket

STREAMING = int(Flag.STREAMING)
HELLO, READY = 2, 3  # matchtags


def first(role: str) -> list[Request]:
    """What it asks as soon as it is connected."""
    if role == "sched":
        return [
            Request(topics.BROKER_REGISTER, {"service": topics.SCHED}, 1),
            Request(topics.SCHED_HELLO, None, HELLO, STREAMING),
        ]
    if role == "exec":
        return [
            Request(topics.BROKER_REGISTER, {"service": "far-exec"}, 1),
            Request(topics.EXEC_HELLO, {"service": "far-exec"}, READY),
        ]
    return [Request(topics.JOB_JOURNAL, {}, READY, STREAMING)]


async def main(role: str, uri: str, token: str) -> None:
    """Until it is killed."""
    async with connect_websocket(uri, token) as connection:
        for request in first(role):
            connection.send_nowait(request)
        while True:
            for message in await connection.receive():
                take(connection, message)


def take(connection: Connection, message: Message) -> None:
    """Say what came; be ready after hello."""
    if isinstance(message, Request):
        payload = message.payload if isinstance(message.payload, dict) else {}
        print(message.topic, payload.get("id", ""), flush=True)
    elif isinstance(message, Response) and message.matchtag == HELLO:
        if message.errnum == Errno.ENODATA:
            connection.send_nowait(Request(topics.SCHED_READY, {"mode": "unlimited"}, READY))
    elif isinstance(message, Response) and message.matchtag == READY and not message.errnum:
        print("ready", flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
