"""The records by which parties come, go and get their roles (`Facts`)."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.selector import ANY_DISCONNECT, ERROR, noted, received, sent
from flux_trio.messages import topics
from flux_trio.trace import Kind

CHANGING: Final = (
    *noted(Kind.MODULE),
    *sent("response", topics.EXEC_HELLO, topics.SCHED_READY),
    *sent("request", ANY_DISCONNECT, *topics.FIRST_REQUESTS),
    *received("request", topics.SCHED_HELLO, topics.SCHED_READY, topics.EXEC_HELLO),
    *received("request", topics.JOB_MANAGER_DISCONNECT),
    *received("response", topics.SCHED_ALLOC, topics.SCHED_FREE, mark=ERROR),
)
"""The records that may change the facts."""
LEAVING: Final = (*noted(Kind.INSTANCE), *noted(Kind.MODULE), *sent("request", ANY_DISCONNECT))
"""The records by which a party may leave."""
RETURNING: Final = sent("request", topics.SCHED_HELLO, topics.EXEC_HELLO)
"""The records by which a party comes, in the place of one that has left."""
ENDINGS: Final = (
    *received("request", topics.JOB_MANAGER_DISCONNECT, topics.SCHED_HELLO, topics.EXEC_HELLO),
    *received("response", topics.SCHED_ALLOC, topics.SCHED_FREE, mark=ERROR),
)
"""The messages by which the job manager learns that a party has gone, is new, or has failed."""
OF_PARTIES: Final = (*ENDINGS, *CHANGING, *LEAVING, *RETURNING)
"""All of these."""
