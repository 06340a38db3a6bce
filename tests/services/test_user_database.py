"""The users of this machine."""

from __future__ import annotations

import grp
import os
import pwd

import pytest

from flux_trio.cores.job_manager.calls import User
from flux_trio.services.user_database import unix_user


async def test_user_has_a_name_and_all_their_groups() -> None:
    """33.access.2, 33.access.3"""
    entry = pwd.getpwuid(os.getuid())
    user = await unix_user(entry.pw_uid)
    assert user.name == entry.pw_name
    assert grp.getgrgid(entry.pw_gid).gr_name in user.groups


async def test_user_that_does_not_exist_has_neither_name_nor_groups() -> None:
    assert await unix_user(2**31 - 7) == User()


async def test_group_without_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda _name, gid: [gid, 2**31 - 7])
    user = await unix_user(os.getuid())
    assert len(user.groups) == 1
