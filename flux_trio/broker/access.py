"""The rights of a user of this machine: flux-config-access(5), without its roles."""

from __future__ import annotations

from typing import Final

from flux_trio.config import AccessConfig
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from flux_trio.transports import Credentials

OWNER_NAME: Final = "owner"


def local_user(userid: int, owner: int, access: AccessConfig) -> Credentials | None:
    """Return the credentials of `userid` in an instance of `owner`; None without access."""
    if userid == owner:
        return Credentials(userid, ROLE_OWNER | ROLE_LOCAL, OWNER_NAME)
    if userid == 0 and access.allow_root_owner:
        return Credentials(userid, ROLE_OWNER | ROLE_LOCAL, "root")
    if access.allow_guest_user:
        return Credentials(userid, ROLE_USER | ROLE_LOCAL, f"user{userid}")
    return None
