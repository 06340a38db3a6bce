"""What guests may not ask for: an invariant, which no clause states.

Only traces that show the roles of senders tell guests from the owner. Whether a guest may be there
(`[access]`) no trace shows: a guest may have come with a token, or from within the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, rpc, sent, topic_of
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.user_requests import ASKED, SUBMIT, URGENCIES, URGENCY, OpenRequest
from flux_trio.trace import Record

RULES: Final = Rules()

DEFAULT_URGENCY: Final = 16
"""The most urgency that a guest may give his job, unless it has more."""
OWNERS_FLAGS: Final = {2: "waitable", 4: "novalidate"}
"""Flags of a submission that are the instance owner's alone, by their bits."""


def require(rules: Rules, invariant: str, flags: Mapping[int, str]) -> None:
    """Register the `invariant`, with the numbers that these flags have in an edition."""

    @rules.judge(
        invariant, sent("response", SUBMIT, URGENCY), views=[ASKED, URGENCIES], needs_headers=True
    )
    def what_only_the_owner_may_is_refused(record: Record, seen: Seen) -> Finding:
        asked: OpenRequest | None = seen.at(ASKED, rpc(record))
        if asked is None or not asked.is_of_guest:
            return None
        what = _flag_of(asked, flags) or _urgency_of(asked, seen)
        if errnum(record) or not what:
            return True
        text = f"{topic_of(record)} of guest {asked.userid} with {what}: expected an error"
        return Broken(f"{text}, got success", (asked.n,), party=record.party)


def _flag_of(asked: OpenRequest, flags: Mapping[int, str]) -> str:
    """Return the flag of a request that only the owner may set; "" if there is none."""
    had = asked.flags if type(asked.flags) is int else 0
    return next((f"flag {name}" for bit, name in flags.items() if had & bit), "")


def _urgency_of(asked: OpenRequest, seen: Seen) -> str:
    """Return the urgency of a request if only the owner may ask for so much; "" for another."""
    had: Any = DEFAULT_URGENCY if asked.jobid is None else seen.at(URGENCIES, asked.jobid)
    if type(asked.urgency) is not int or type(had) is not int:
        return ""
    most = max(DEFAULT_URGENCY, had)
    return f"urgency {asked.urgency}, more than {most}" if asked.urgency > most else ""


require(RULES, "invariant.guests-as-allowed", OWNERS_FLAGS)
