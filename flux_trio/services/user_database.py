"""The users of this machine, from its name service."""

from __future__ import annotations

import grp
import os
import pwd

from flux_trio.cores.job_manager.calls import User
from flux_trio.process.threads import USERS


async def unix_user(userid: int) -> User:
    """Return the name and groups of a user; in a thread, since the name service may be remote."""
    return await USERS.run(_look_up, userid, abandon_on_cancel=True)


def _look_up(userid: int) -> User:
    try:
        entry = pwd.getpwuid(userid)
    except KeyError:
        return User()
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return User(entry.pw_name, frozenset(name for gid in groups if (name := _group(gid))))


def _group(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None
