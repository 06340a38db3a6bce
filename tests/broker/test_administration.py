"""The log says who has changed an instance."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.broker.administration import Changes
from flux_trio.messages import ROLE_OWNER, Request, respond, respond_error, topics
from flux_trio.transports import Credentials

OWNER = Credentials(1000, ROLE_OWNER, "owner")


class LoggingClient:
    """A client that asks, and what was logged of it."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        self.changes = Changes(
            OWNER, lambda _level, party, text: self.logged.append(f"{party}: {text}")
        )

    def ask(
        self, topic: str, payload: dict[str, Any] | None, answer: Any = None, errnum: int = 0
    ) -> None:
        request = Request(topic, payload, matchtag=1)
        self.changes.begin(request)
        said = respond_error(request, errnum, "no") if errnum else respond(request, answer)
        self.changes.end(said)


@pytest.mark.parametrize(
    ("topic", "payload", "line"),
    [
        (
            topics.JOB_QUEUE_START,
            {"name": "batch", "start": False, "all": False, "reason": "disk"},
            "job-manager: job-manager.queue-start start=false name=batch all=false reason=disk",
        ),
        (topics.CONFIG_LOAD, {"config": {"access": {"secret": "x"}}}, "config: config.load"),
        (
            topics.JOB_JOBTAP,
            {"load": "/p/mine.py", "conf": {"password": "x"}},
            "job-manager: job-manager.jobtap load=/p/mine.py",
        ),
        (topics.BROKER_TOKEN, {"userid": 7, "name": "ann"}, "broker: broker.token userid=7"),
        (topics.MODULE_REMOVE, {"name": "sched"}, "module: module.remove name=sched"),
        (topics.RESOURCE_DRAIN, {"targets": "0-1"}, "resource: resource.drain targets=0-1"),
    ],
)
def test_a_change_is_logged_with_what_it_was_and_who_made_it(
    topic: str, payload: dict[str, Any], line: str
) -> None:
    asked = LoggingClient()
    asked.ask(topic, payload, {})
    assert asked.logged == [f"{line} by owner (uid 1000)"]


def test_what_was_refused_or_changes_nothing_is_not_logged() -> None:
    asked = LoggingClient()
    asked.ask(topics.MODULE_LOAD, {"name": "sched"}, errnum=17)
    asked.ask(topics.CONFIG_LOAD, {"config": {}}, {"refusal": "no"})
    asked.ask(topics.JOB_QUEUE_LIST, None, {"queues": []})
    assert asked.logged == []
