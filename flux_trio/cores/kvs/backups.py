"""kvs.backup: a copy of the whole store in a file, made while the store is in use. Pure."""

from __future__ import annotations

from flux_trio.cores.kvs.ops import BackedUp, KvsOutbox, MakeBackup, StopBackup
from flux_trio.cores.state import Part
from flux_trio.editions import kvs
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error, unanswered


class Backups(Part):
    """The backup that is being made; one at a time."""

    _request: Request | None

    def __init__(self, outbox: KvsOutbox) -> None:
        self._outbox = outbox
        self._request = None

    def make(self, request: Request) -> None:
        """Begin a backup; the request is answered when it is complete and durable."""
        path = kvs.BACKUP.read(request).path
        if self._request is not None:
            raise FluxError(Errno.EBUSY, "another backup is being made")
        self._request = request
        self._outbox.send(MakeBackup(path))

    def made(self, done: BackedUp) -> None:
        request, self._request = self._request, None
        assert request is not None, "the store has made a backup and had none to make"
        if done.errnum:
            self._outbox.send(respond_error(request, done.errnum, done.text))
        else:
            self._outbox.send(respond(request))

    def leave(self, sender: str) -> None:
        """Stop the backup if `sender` has asked for it: nobody waits for it (6.disconnect.2)."""
        if self._request is not None and self._request.sender == sender:
            self._request = unanswered(self._request, sender)
            self._outbox.send(StopBackup())
