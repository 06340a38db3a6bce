import pytest

from flux_trio.broker import local_user
from flux_trio.config import AccessConfig
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from flux_trio.transports import Credentials

OWNER, GUEST, ROOT = 1000, 1001, 0
ALL = AccessConfig(allow_guest_user=True)
ROOT_TOO = AccessConfig(allow_root_owner=True)


@pytest.mark.parametrize("access", [AccessConfig(), ALL, ROOT_TOO])
def test_the_owner_is_the_owner(access: AccessConfig) -> None:
    assert local_user(OWNER, OWNER, access) == Credentials(OWNER, ROLE_OWNER | ROLE_LOCAL, "owner")


def test_another_user_is_a_guest_where_guests_are_allowed() -> None:
    assert local_user(GUEST, OWNER, ALL) == Credentials(GUEST, ROLE_USER | ROLE_LOCAL, "user1001")
    assert local_user(GUEST, OWNER, AccessConfig()) is None
    assert local_user(GUEST, OWNER, ROOT_TOO) is None


def test_root_is_a_guest_like_others_unless_configured() -> None:
    assert local_user(ROOT, OWNER, ROOT_TOO) == Credentials(ROOT, ROLE_OWNER | ROLE_LOCAL, "root")
    assert local_user(ROOT, OWNER, ALL) == Credentials(ROOT, ROLE_USER | ROLE_LOCAL, "user0")
    assert local_user(ROOT, OWNER, AccessConfig()) is None
