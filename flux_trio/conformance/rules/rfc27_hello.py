"""RFC 27, Hello: what the scheduler asks and what it is told of jobs that hold resources."""

from __future__ import annotations

from typing import Final

from flux_trio.conformance.rule import Rules, sent
from flux_trio.conformance.shapes import (
    JOB_ID,
    NUMBER,
    PRIORITY,
    between,
    require_key,
    require_object,
)
from flux_trio.messages import topics

RULES: Final = Rules()

ANSWERED: Final = sent("response", topics.SCHED_HELLO)

require_object(RULES, "27.hello.6", ANSWERED)
require_key(RULES, "27.hello.7", ANSWERED, key="id", shape=JOB_ID)
require_key(RULES, "27.hello.8", ANSWERED, key="priority", shape=PRIORITY)
require_key(RULES, "27.hello.9", ANSWERED, key="userid", shape=between(0, 2**32 - 1))
require_key(RULES, "27.hello.10", ANSWERED, key="t_submit", shape=NUMBER)
