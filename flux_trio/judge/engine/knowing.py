"""Which messages a party has surely handled by the time it acts, and what proves it.

A party handles its messages in the order in which it receives them. So these prove that it has
handled a message:

- it answers that message, or a request that it received later;
- it begins another turn. A turn is receipts, then sends: of several messages that it received
  before it sent anything, it may have handled the first one only.

The receipts of a router's trace say only when a message was forwarded, and so do those of a module
in a process of its own, or of a program that holds a service. The message may have waited in the
receiver's inbox while the receiver sent other messages. There only an answer proves anything, not
even that some time has passed.

And the other way round: while a party waits for the answer to a call of its own, what it would do
after that answer is not late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from flux_trio.judge.engine.selector import MODULE, RECV, SEND, job_id
from flux_trio.judge.engine.view import Key, Place
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Record

ASKED_MAX: Final = 1024
"""Unanswered requests that are kept. When there are more, the oldest are forgotten: an answer to an
old request proves the least about what its sender knows."""
_DISCONNECT: Final = f".{topics.DISCONNECT}"

Known: TypeAlias = tuple[
    tuple[tuple[str, tuple[Place, bool, Place]], ...],
    tuple[tuple[str, Place], ...],
    tuple[tuple[Key, tuple[Place, int]], ...],
    tuple[str, ...],
    tuple[tuple[str, int, Place, bool], ...],
]
"""The state of `Knowledge`. By party: the record at which its turn began, whether it has sent
anything in it, the last answer that it got in it (0 for none), and the last request that it has
answered. By RPC: the first of the requests that look alike and are not all answered, and how many
are not. The modules with a process of their own. Of each call that a party waits for: its matchtag,
its record, and whether the answer came in this turn."""


def _is_disconnect(request: Request) -> bool:
    """Whether the broker sends a request in the name of a party that is gone."""
    return request.flags & NORESPONSE != 0 and request.topic.endswith(_DISCONNECT)


class Knowledge:
    """Collects from a trace the proofs that a party has handled a message. `is_routed` says that a
    router wrote the trace, which has no matchtags then.
    """

    def __init__(self, *, is_routed: bool = False) -> None:
        self._is_routed = is_routed
        self._began: dict[str, int] = {}
        """By party: the record at which its turn began."""
        self._taking: set[str] = set()
        """The parties that have sent nothing in their turn yet."""
        self._last_answer: dict[str, int] = {}
        """By party: where it got the last answer of its turn, if it got one."""
        self._answered: dict[str, int] = {}
        self._asked: dict[Key, tuple[int, int]] = {}
        self._apart: set[str] = set()
        """The modules that have a process of their own, and the programs that register a service by
        a request, as only those outside have to.
        """
        self._calls: dict[str, dict[int, int]] = {}
        """By party and matchtag: the record of each call whose answer the party has not handled."""
        self._heard: dict[str, list[int]] = {}
        """By party: the calls in `_calls` to which it got the answer in its turn."""

    def observe(self, record: Record) -> None:
        """Note the next record of the trace."""
        kind, party = record.kind, record.party
        if kind == RECV:
            message = record.message
            if party not in self._taking:
                self._taking.add(party)
                self._last_answer.pop(party, None)
                self._began[party] = record.n
                for matchtag in self._heard.pop(party, ()):
                    self._calls[party].pop(matchtag, None)
            if type(message) is Response:
                self._last_answer[party] = record.n
                self._note_heard(party, message.matchtag)
            elif type(message) is Request and not message.flags & NORESPONSE:
                self._note_request(record, message)
        elif kind == SEND:
            message = record.message
            if type(message) is Response:
                self._taking.discard(party)
                if self._asked:
                    self._note_answer(record, message)
            elif type(message) is not Request or not _is_disconnect(message):
                self._taking.discard(party)
                if type(message) is Request:
                    self._note_call(record, message)
        elif kind == MODULE and record.data is not None:
            is_apart = record.data.get("process") is True
            name = str(record.data.get("module"))  # a trace may say anything
            (self._apart.add if is_apart else self._apart.discard)(name)
            self._calls.pop(name, None)
            self._heard.pop(name, None)

    def takes_at_once(self, party: str) -> bool:
        """Whether the trace shows when `party` takes a message, and not when it was forwarded."""
        return not self._is_routed and party not in self._apart

    def knew(self, party: str, n: int) -> bool:
        """Whether a proof shows that `party` has handled the message that it received at `n`."""
        if n <= self._answered.get(party, 0):
            return True
        return self.takes_at_once(party) and n < self._began.get(party, 0)

    def requests_of(self, party: str) -> Iterator[tuple[tuple[str, int], int]]:
        """Yield client, matchtag and record of each request that `party` has received and not
        answered.

        A router's trace yields none.
        """
        asked: Any = () if self._is_routed else self._asked.items()
        for (owner, client, matchtag), (n, _) in asked:
            if owner == party:
                yield (client, matchtag), n

    def may_act_on(self, party: str) -> int:
        """Return the record of the message that `party` may still be handling in its turn; 0 if
        there is none.

        It is the last answer, which the party may have waited for. If the party got no answer and
        has sent nothing, it is the first message that it received in the turn.
        """
        answer = self._last_answer.get(party, 0)
        return answer or (self._began[party] if party in self._taking else 0)

    def awaits(self, party: str, since: int) -> bool:
        """Whether `party` may still wait for the answer to a call that it made after `since`.

        A router's trace does not show it.
        """
        calls: Any = () if self._is_routed else self._calls.get(party, {}).values()
        return any(n > since for n in calls)

    def state(self) -> Known:
        """Return the state, as `take_up` takes it."""
        began, answered = sorted(self._began.items()), sorted(self._answered.items())
        taking, answer = self._taking, self._last_answer
        turns = tuple((party, (n, party not in taking, answer.get(party, 0))) for party, n in began)
        calls = tuple(
            (party, matchtag, n, matchtag in self._heard.get(party, ()))
            for party, made in sorted(self._calls.items())
            for matchtag, n in made.items()
        )
        asked, apart = tuple(self._asked.items()), tuple(sorted(self._apart))
        return (turns, tuple(answered), asked, apart, calls)

    def take_up(self, state: Known) -> None:
        """Replace the state by one that `state` has returned."""
        turns, answered, asked, apart, calls = state
        self._began = {party: n for party, (n, _, _) in turns}
        self._taking = {party for party, (_, has_sent, _) in turns if not has_sent}
        self._last_answer = {party: n for party, (_, _, n) in turns if n}
        self._answered, self._asked, self._apart = dict(answered), dict(asked), set(apart)
        self._calls, self._heard = {}, {}
        for party, matchtag, n, is_heard in calls:
            self._calls.setdefault(party, {})[matchtag] = n
            if is_heard:
                self._heard.setdefault(party, []).append(matchtag)

    # --- implementation

    def _key(self, record: Record, message: Request | Response) -> Key | None:
        """Return the RPC of a message that its receiver answers; None if nobody can tell."""
        client = message.routes[0] if message.routes else ""
        if self._is_routed:
            return (record.party, client, message.topic, job_id(record))
        return (record.party, client, message.matchtag) if message.matchtag else None

    def _note_request(self, record: Record, request: Request) -> None:
        key = self._key(record, request)
        if key is None:
            return
        n, count = self._asked.get(key, (record.n, 0))
        if len(self._asked) >= ASKED_MAX and not count:
            del self._asked[next(iter(self._asked))]
        self._asked[key] = (n, count + 1)

    def _note_call(self, record: Record, request: Request) -> None:
        if request.topic == topics.BROKER_REGISTER and request.wants_response:
            self._apart.add(record.party)
        if request.matchtag and not request.flags & (NORESPONSE | STREAMING):
            made = self._calls.setdefault(record.party, {})
            made.pop(request.matchtag, None)
            if len(made) >= ASKED_MAX:
                del made[next(iter(made))]
            made[request.matchtag] = record.n

    def _note_heard(self, party: str, matchtag: int) -> None:
        """Of one whose messages are only forwarded nobody knows when it takes the answer."""
        made = self._calls.get(party)
        if made is not None and matchtag in made:
            if self.takes_at_once(party):
                self._heard.setdefault(party, []).append(matchtag)
            else:
                del made[matchtag]

    def _note_answer(self, record: Record, response: Response) -> None:
        """Of requests that look alike, an answer proves no more than one to the first would."""
        key = self._key(record, response)
        n, count = self._asked.pop(key, (0, 0))
        if count > 1:
            self._asked[key] = (n, count - 1)
        if n > self._answered.get(record.party, 0):
            self._answered[record.party] = n
