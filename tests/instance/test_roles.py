"""Every request of every service, as the owner, as the job's user and as another guest.

docs/reference/roles.md has the answers, and is rewritten by `pytest --update-snapshots`. A topic
that some service knows and `ASKED` does not is a failure, so that none is forgotten.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trio
import trio.testing

from flux_trio.instance import Instance
from flux_trio.jobtap.builtins.alloc_bypass import AllocBypass
from flux_trio.messages import Errno, Flag, FluxError, Request, Response, service_of, topics
from flux_trio.testing import simulated_instance
from tests.support.roles import ASKED, JOB_SPEC, LONG_SPEC

pytestmark = pytest.mark.classic("the page is of the classic edition")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "roles.md"
MARK = "<!-- written by tests/instance/test_roles.py -->\n"
ROLES = ("owner", "the job's user", "another guest")
OWNER, USER, OTHER = 1000, 2001, 2002
USERIDS = dict(zip(ROLES, (OWNER, USER, OTHER), strict=True))
WAIT_S = 0.5  # of the virtual clock, for an answer that takes a timer


class Row(NamedTuple):
    """One line of the page: how a request is answered to each role."""

    topic: str
    variant: str
    answers: tuple[str, ...]

    def __str__(self) -> str:
        return f"| `{self.topic}` | {self.variant} | {' | '.join(self.answers)} |"


async def submit(instance: Instance, spec: dict[str, Any]) -> int:
    """A job of USER's."""
    async with instance.connect("user", userid=USER) as handle:
        answer = await handle.call(topics.INGEST_SUBMIT, {"jobspec": spec})
        return int(answer["id"])


async def ask(instance: Instance, userid: int, request: Request) -> str:
    """How `request` is answered: ok, an errno, or not at all."""
    async with instance.connect("asker", userid=userid) as handle:
        handle.send(request)
        until = handle.now() + WAIT_S
        while batch := await handle.receive_until(until):
            for answer in batch:
                if isinstance(answer, Response) and answer.topic == request.topic:
                    return Errno(answer.errnum).name if answer.errnum else "ok"
    return "-"


async def row(topic: str, variant: str) -> Row:
    asked = ASKED[topic][variant]
    flags = int(Flag.STREAMING) if asked.streaming else 0
    answers: dict[str, str] = {}
    while left := [role for role in reversed(ROLES) if role not in answers]:
        async with simulated_instance(plugins=[AllocBypass()]) as instance:
            running, pending = [await submit(instance, spec) for spec in (JOB_SPEC, LONG_SPEC)]
            await trio.testing.wait_all_tasks_blocked()
            for role in left:
                payload = asked.payload(running, pending, USERIDS[role])
                request = Request(topic, payload, 0 if asked.silent else 77, flags)
                answers[role] = await ask(instance, USERIDS[role], request)
                if answers[role] != Errno.EPERM.name:  # who is refused has changed nothing
                    break
    return Row(topic, variant, tuple(answers[role] for role in ROLES))


def rows_of(topic: str, page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(f"| `{topic}` |")]


def rewrite(topic: str, rows: list[str]) -> None:
    """Put `rows` in the place of those that the page has of `topic`."""
    text, _, table = PAGE.read_text().partition(MARK)
    head, others = table.splitlines()[:2], table.splitlines()[2:]
    kept = [line for line in others if line not in rows_of(topic, table)]
    PAGE.write_text("\n".join([text + MARK.rstrip(), *head, *sorted(kept + rows)]) + "\n")


@pytest.mark.parametrize("topic", sorted(ASKED))
async def test_each_request_is_answered_to_each_role_as_the_page_says(
    autojump_clock: trio.testing.MockClock, topic: str, request: pytest.FixtureRequest
) -> None:
    rows = [str(await row(topic, variant)) for variant in ASKED[topic]]
    if request.config.getoption("--update-snapshots"):
        rewrite(topic, rows)
    assert sorted(rows_of(topic, PAGE.read_text())) == sorted(rows)


async def test_the_page_has_no_request_that_there_is_not() -> None:
    table = PAGE.read_text().partition(MARK)[2].splitlines()[2:]
    assert {line.split("`")[1] for line in table} == set(ASKED)


IN_CURRENT: Final = {
    *(topics.KVS_LOOKUP_PLUS, topics.KVS_GETROOT, topics.KVS_WAIT_VERSION),
    *(topics.KVS_NAMESPACE_CREATE, topics.KVS_NAMESPACE_REMOVE, topics.KVS_NAMESPACE_LIST),
}
"""Not known in the classic edition, which the page is about; `test_kvs_flux.py` asks them."""


async def test_every_request_that_a_service_knows_is_on_the_page(
    autojump_clock: trio.testing.MockClock,
) -> None:
    named = {
        value
        for name, value in vars(topics).items()
        if name.isupper() and isinstance(value, str) and "." in value
    }
    async with simulated_instance() as instance, instance.connect() as handle:
        for service in sorted(instance.router.services):
            with suppress(FluxError):  # its topics are in `topics`, or in another service's table
                counted = await handle.call(topics.stats_of(service))
                named |= set(counted.get("requests", ()))
        services = set(instance.router.services)
    known = {topic for topic in named if service_of(topic) in services}
    assert known - IN_CURRENT == set(ASKED)
