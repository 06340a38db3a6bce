"""Tokens: who a connection is. Each means a userid and a role; only digests are kept.

Left out: expiry. A token lives until it is revoked, one that is lent as long as the module in
another process that it is lent to; a connection outlives the token by which it was let in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER
from flux_trio.transports import Credentials


class TokenEntry(msgspec.Struct, frozen=True):
    """One token as it is kept: the SHA-256 of its text, and who it is."""

    digest: str
    userid: int
    rolemask: int
    name: str


class Tokens:
    """The tokens of an instance.

    `make` gives a new unguessable text; `save` keeps the entries whenever one is added.
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
        """A new token for a user; the text is told once and not kept.

        Raises what `save` does; then there is no such token.
        """
        token = self._make()
        role = ROLE_OWNER if owner else ROLE_USER
        entry = TokenEntry(_digest(token), userid, role | ROLE_LOCAL, name)
        self._save([*self._entries.values(), entry])
        self._entries[entry.digest] = entry
        return token

    def revoke(self, userid: int) -> int:
        """No token of a guest `userid` is good any more; how many there were.

        Raises what `save` does; then they all are good still.
        """
        left = {
            digest: entry
            for digest, entry in self._entries.items()
            if entry.userid != userid or entry.rolemask & ROLE_OWNER
        }
        count = len(self._entries) - len(left)
        if count:
            self._save(list(left.values()))
            self._entries = left
        return count

    @contextmanager
    def lend(self, userid: int, name: str) -> Iterator[tuple[str, Credentials]]:
        """A token with the owner's role that is good for this block alone, and who it makes."""
        token = self._make()
        credentials = Credentials(userid, ROLE_OWNER | ROLE_LOCAL, name)
        self._lent[_digest(token)] = credentials
        try:
            yield token, credentials
        finally:
            del self._lent[_digest(token)]

    def authenticate(self, token: str) -> Credentials | None:
        """Who the token is, None when it is nobody's."""
        digest = _digest(token)
        entry = self._entries.get(digest)
        if entry is None:
            return self._lent.get(digest)
        return Credentials(entry.userid, entry.rolemask, entry.name)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
