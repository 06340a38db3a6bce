"""Who may see what becomes of a job (RFC 21)."""

from __future__ import annotations

import msgspec

from flux_trio.messages import Errno, topics
from tests.support.asking import GUEST_USERID, asked, asked_by_guest
from tests.support.eventlogs import inactive
from tests.support.listing import ListedJobs


def test_owner_and_user_may_follow_a_job_and_other_guests_may_not():
    """21.criteria.2"""
    listed = ListedJobs()
    listed.start()
    listed.store_jobspec(1, "true")
    listed.store_log(1, inactive(userid=GUEST_USERID))
    listed.tell_all(1, inactive(userid=GUEST_USERID))
    watch = {"id": 1}
    user = asked_by_guest(topics.INFO_WATCH, watch, streaming=True)
    owner = asked(topics.INFO_WATCH, watch, streaming=True)
    stranger = msgspec.structs.replace(user, userid=GUEST_USERID + 1)
    for who in (user, owner):
        told = listed.request(who)
        assert [errnum for errnum, _ in told] == [0] * 10 + [Errno.ENODATA]
    ((errnum, _),) = listed.request(stranger)
    assert errnum == Errno.EPERM
