"""Who may come in: users of this machine, and tokens, which identify connections.

The rights of a user of this machine are those of flux-config-access(5), without its roles. A token
has a userid and a role; only digests are stored. Tokens do not expire. A token is valid until it is
revoked; a token lent to a module's process is valid as long as the module runs. Whoever revokes
tokens ends the connections that came with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from flux_trio.config import AccessConfig
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from flux_trio.transports import Credentials

TOKEN_REVOKED: Final = "the token of this connection was revoked"


class TokenEntry(msgspec.Struct, frozen=True):
    """One stored token: the SHA-256 of its text, and its user."""

    digest: str
    userid: int
    rolemask: int
    name: str


class Tokens:
    """The tokens of an instance.

    `make` returns a new unguessable text; `save` stores the entries after each change.
    """

    def __init__(
        self,
        make: Callable[[], str],
        save: Callable[[list[TokenEntry]], None],
        entries: Iterable[TokenEntry] = (),
    ) -> None:
        self._make = make
        self._save = save
        self._entries = {entry.digest: entry for entry in entries}
        self._lent: dict[str, Credentials] = {}  # by digest

    def issue(self, userid: int, name: str, *, owner: bool) -> str:
        """Make a token for a user and return its text, which is not stored.

        Raises the errors of `save`; then the token is not valid.
        """
        token = self._make()
        role = ROLE_OWNER if owner else ROLE_USER
        entry = TokenEntry(_digest(token), userid, role | ROLE_LOCAL, name)
        self._save([*self._entries.values(), entry])
        self._entries[entry.digest] = entry
        return token

    def revoke(self, userid: int) -> list[str]:
        """Revoke all tokens of guest `userid`; return their digests.

        Raises the errors of `save`; then all of them stay valid.
        """
        left = {
            digest: entry
            for digest, entry in self._entries.items()
            if entry.userid != userid or entry.rolemask & ROLE_OWNER
        }
        revoked = [digest for digest in self._entries if digest not in left]
        if revoked:
            self._save(list(left.values()))
            self._entries = left
        return revoked

    @contextmanager
    def lend(self, userid: int, name: str) -> Iterator[tuple[str, Credentials]]:
        """Yield a token with the owner's role, valid during the block only, and its credentials."""
        token = self._make()
        digest = _digest(token)
        credentials = Credentials(userid, ROLE_OWNER | ROLE_LOCAL, name, digest)
        self._lent[digest] = credentials
        try:
            yield token, credentials
        finally:
            del self._lent[digest]

    def authenticate(self, token: str) -> Credentials | None:
        """Return the credentials of a token; None if it is not valid."""
        digest = _digest(token)
        entry = self._entries.get(digest)
        if entry is None:
            return self._lent.get(digest)
        return Credentials(entry.userid, entry.rolemask, entry.name, digest)

    def are_valid(self, credentials: Credentials) -> bool:
        """Return whether a peer with these credentials may be served: its token is still valid."""
        token = credentials.token
        return not token or token in self._entries or token in self._lent


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


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
