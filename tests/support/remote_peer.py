"""A process of its own that serves over a WebSocket, says what it is asked, and answers nothing.

`python -m tests.support.remote_peer sched|exec|client URI TOKEN`: says `ready`, then a line for
each message that comes. A test kills it, or cuts its connection: it says `cut`, and when a line
comes on standard input it connects again, answers what it was asked before as if nothing had been,
asks for its service name, and says what comes of that.
"""

from __future__ import annotations

import sys
from typing import Any

import trio

from flux_trio.messages import Errno, Flag, Message, Request, Response, topics
from flux_trio.transports import Connection, TransportError, connect_websocket

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


ANSWERS: dict[str, dict[str, Any]] = {
    "sched": {"type": 0},
    "exec": {"type": "finish", "data": {"status": 0}},
}


async def main(role: str, uri: str, token: str) -> None:
    """Until it is killed."""
    asked: list[Request] = []
    try:
        async with connect_websocket(uri, token) as connection:
            for request in first(role):
                connection.send_nowait(request)
            while True:
                for message in await connection.receive():
                    take(connection, message, asked)
    except* (TransportError, OSError):
        say("cut")
    sys.stdin.readline()
    async with connect_websocket(uri, token) as connection:
        for request in asked:
            connection.send_nowait(stale_answer(role, request))
        connection.send_nowait(first(role)[0])
        while True:
            for message in await connection.receive():
                if isinstance(message, Response):
                    say(message.error_text)


def stale_answer(role: str, request: Request) -> Response:
    """What it would have answered, had it been there."""
    assert isinstance(request.payload, dict)
    payload = {"id": request.payload["id"], **ANSWERS[role]}
    return Response(request.topic, payload, routes=request.routes)


def say(line: str) -> None:
    """To the test."""
    print(line, flush=True)


def take(connection: Connection, message: Message, asked: list[Request]) -> None:
    """Say what came; be ready after hello."""
    if isinstance(message, Request):
        asked.append(message)
        payload = message.payload if isinstance(message.payload, dict) else {}
        say(f"{message.topic} {payload.get('id', '')}".strip())
    elif isinstance(message, Response) and message.matchtag == HELLO:
        if message.errnum == Errno.ENODATA:
            connection.send_nowait(Request(topics.SCHED_READY, {"mode": "unlimited"}, READY))
    elif isinstance(message, Response) and message.matchtag == READY and not message.errnum:
        say("ready")


if __name__ == "__main__":
    role, uri, token = sys.argv[1:]
    trio.run(main, role, uri, token)
