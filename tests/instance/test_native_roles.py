"""What roles.md forbids a guest is forbidden at the native door, whatever the guest claims."""

from __future__ import annotations

import trio.testing

from flux_trio.broker import NativeShared, serve_native_connection
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    Errno,
    Flag,
    Request,
    Response,
    topics,
)
from flux_trio.testing import simulated_instance
from flux_trio.transports import Credentials, memory_pair
from tests.instance.test_roles import OTHER, OWNER, PAGE, USER, submit
from tests.support.kvs_words import words
from tests.support.roles import ASKED, JOB_SPEC, LONG_SPEC

GUEST = Credentials(OTHER, ROLE_USER | ROLE_LOCAL, "guest")
WAIT_S = 0.5  # of the virtual clock


def in_edition(topic: str) -> str:
    """`topic`, which the page has in the classic edition, as a test's default edition has it."""
    ours = dict(zip(topics.KVS_OWN, words().own, strict=True))
    ours[topics.credit_of(topics.KVS_OWN.watch)] = topics.credit_of(words().own.watch)
    del ours[topics.KVS_COMMIT]  # both editions have it
    return ours.get(topic, topic)


def forbidden() -> list[tuple[str, str]]:
    """The requests whose answer to another guest is EPERM, by topic and variant."""
    rows = [line.split("|")[1:6] for line in PAGE.read_text().splitlines() if "| `" in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [(row[0].strip("`"), row[1]) for row in cells if row[4] == Errno.EPERM.name]


async def test_a_guest_is_refused_what_roles_forbid(autojump_clock: trio.testing.MockClock) -> None:
    assert len(forbidden()) > 40
    async with simulated_instance() as instance:
        running, pending = await submit(instance, LONG_SPEC), await submit(instance, JOB_SPEC)
        shared = NativeShared(instance.router, instance.write_log, 1)
        ours, theirs = memory_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                serve_native_connection, instance.router, instance.write_log, ours, GUEST, shared
            )
            got = {}
            for tag, (topic, variant) in enumerate(forbidden(), 1):
                asked = ASKED[topic][variant]
                flags = int(Flag.STREAMING) if asked.streaming else 0
                payload = asked.payload(running, pending, OTHER)
                claimed = Request(
                    in_edition(topic),
                    payload,
                    tag,
                    flags,
                    userid=OWNER,
                    rolemask=ROLE_OWNER,
                    routes=("hop",),
                )
                theirs.send_nowait(claimed)
                with trio.move_on_after(WAIT_S):
                    for answer in await theirs.receive():
                        if isinstance(answer, Response) and answer.matchtag == tag:
                            got[topic, variant] = answer.errnum
            nursery.cancel_scope.cancel()
    assert USER != OTHER
    assert {key: errnum for key, errnum in got.items() if errnum != Errno.EPERM} == {}
    assert set(forbidden()) - got.keys() == set()
