"""Tokens: who a connection is."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from flux_trio.broker import TokenEntry, Tokens
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from flux_trio.transports import Credentials


class Kept:
    """Tokens `secret-1`, `secret-2`, …, and what was saved of them."""

    def __init__(self) -> None:
        self.saved: list[TokenEntry] = []
        self.full = False
        numbers = itertools.count(1)
        self.tokens = Tokens(lambda: f"secret-{next(numbers)}", self.save)

    def save(self, entries: list[TokenEntry]) -> None:
        if self.full:
            raise OSError("no space")
        self.saved = entries


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.mark.parametrize(
    ("owner", "rolemask"), [(True, ROLE_OWNER | ROLE_LOCAL), (False, ROLE_USER | ROLE_LOCAL)]
)
def test_token_means_a_userid_and_the_role_it_was_issued_for(
    kept: Kept, owner: bool, rolemask: int
) -> None:
    token = kept.tokens.issue(500, "ann", owner=owner)
    (entry,) = kept.saved
    assert kept.tokens.authenticate(token) == Credentials(500, rolemask, "ann", entry.digest)


@pytest.mark.parametrize("token", ["", "secret-2", "SECRET-1", "secret-1 "])
def test_unknown_token_is_nobody(kept: Kept, token: str) -> None:
    kept.tokens.issue(500, "ann", owner=False)
    assert kept.tokens.authenticate(token) is None


def test_what_is_saved_holds_no_token_text_and_brings_them_back(kept: Kept) -> None:
    ann = kept.tokens.issue(500, "ann", owner=False)
    bob = kept.tokens.issue(501, "bob", owner=True)
    text = msgspec.json.encode(kept.saved)
    assert b"secret" not in text
    entries = msgspec.json.decode(text, type=list[TokenEntry])
    again = Tokens(lambda: "unused", kept.save, entries)
    assert [again.authenticate(token) for token in (ann, bob)] == [
        kept.tokens.authenticate(token) for token in (ann, bob)
    ]


def test_revoked_tokens_of_a_guest_are_nobodys_and_stay_so(kept: Kept) -> None:
    ann, again = [kept.tokens.issue(500, "ann", owner=False) for _ in range(2)]
    bob, owner = kept.tokens.issue(501, "bob", owner=False), kept.tokens.issue(500, "o", owner=True)
    kept.full = True
    with pytest.raises(OSError, match="no space"):
        kept.tokens.revoke(500)
    assert kept.tokens.authenticate(ann)
    kept.full = False
    before = [kept.tokens.authenticate(each) for each in (ann, again, bob)]
    assert kept.tokens.revoke(500) == [who.token for who in before[:2] if who is not None]
    assert kept.tokens.revoke(500) == []
    assert [kept.tokens.are_valid(who) for who in before if who] == [False, False, True]
    for tokens in (kept.tokens, Tokens(lambda: "unused", kept.save, kept.saved)):
        assert [bool(tokens.authenticate(each)) for each in (ann, again, bob, owner)] == [
            False,
            False,
            True,
            True,
        ]


def test_token_that_cannot_be_kept_is_nobodys(kept: Kept) -> None:
    kept.full = True
    with pytest.raises(OSError, match="no space"):
        kept.tokens.issue(500, "ann", owner=False)
    assert kept.tokens.authenticate("secret-1") is None
