"""A job manager with two queues, and what it says of them."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.config import Config, parse_config
from flux_trio.messages import topics
from tests.support.manager_script import ManagerScript

TWO: Final[Config] = parse_config("""
[policy.jobspec.defaults.system]
duration = "10m"
queue = "batch"

[queues.batch]
requires = { properties = ["batch"] }

[queues.debug]
policy.jobspec.defaults.system.duration = "1m"
""")


def queue_status(m: ManagerScript, name: str | None = None) -> dict[str, Any]:
    m.ask(topics.JOB_QUEUE_STATUS, {} if name is None else {"name": name})
    payload = m.last(topics.JOB_QUEUE_STATUS).payload
    assert isinstance(payload, dict)
    return payload


def refusals(m: ManagerScript) -> list[list[Any]]:
    """What the last submission was answered."""
    errors: list[list[Any]] = m.last(topics.JOB_SUBMIT).payload["errors"]
    return errors
