"""Whether a guest may write more in his namespaces: the kvs asks the job manager.

The job manager has the account of all that is stored of a user (readings: What a guest stores).
Until it has answered, what the same user asks for after the commit waits: a sender sees what it has
committed. Without a job manager nobody knows, and the commit is taken. Pure.
"""

from __future__ import annotations

import msgspec

from flux_trio.cores.kvs.held_requests import FactsRead
from flux_trio.cores.kvs.namespaces import Namespaces
from flux_trio.cores.kvs.ops import KvsOutbox, RoomAsked
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.messages import Errno, Request, Response, respond_error, topics


class WaitingCommit(msgspec.Struct):
    """The commit that the job manager is asked about, and what its user has asked for since."""

    commit: FactsRead
    behind: list[Request]  # as many as a guest may have open


class GuestRoom(Part):
    """The commits of guests that wait for an answer of the job manager, one for each guest."""

    _asked: dict[int, WaitingCommit]  # by userid

    def __init__(self, outbox: KvsOutbox, namespaces: Namespaces) -> None:
        self._outbox = outbox
        self._namespaces = namespaces
        self._asked = {}

    def holds(self, request: Request) -> bool:
        """Keep a request behind a commit of its user that waits; return whether there is one."""
        if (asked := self._asked.get(request.userid)) is None:
            return False
        asked.behind.append(request)
        return True

    def ask(self, commit: FactsRead) -> None:
        """Let a guest's commit wait for the answer of the job manager."""
        userid = commit.request.userid
        self._asked[userid] = WaitingCommit(commit, [])
        wanted = self._namespaces.room_wanted(commit.namespace, commit.nbytes)
        payload = job_requests.STORE_ROOM.write(wanted)
        self._outbox.ask(topics.JOB_STORE_ROOM, payload, RoomAsked(userid))

    def answered(self, response: Response) -> tuple[FactsRead | None, list[Request]]:
        """Return the commit, None if it is refused, and the requests that have waited behind it."""
        call = self._outbox.calls.match(response)
        assert call is not None, "the kvs has asked for nothing else"
        asked = self._asked.pop(call.userid)
        if response.errnum in (0, Errno.ENOSYS):
            return asked.commit, asked.behind
        request = asked.commit.request
        self._outbox.send(respond_error(request, response.errnum, response.error_text))
        return None, asked.behind
