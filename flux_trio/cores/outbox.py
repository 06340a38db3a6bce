"""The outbox of a core: this turn's actions, the calls it has open, the timers it has set. Pure.

Each core has one, and all of its parts send by it. What a call is for is a frozen value, by which
the core finds in one `match` what to do with the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from flux_trio.cores.state import Part
from flux_trio.cores.turns import ClearTimer, CommonAction, SetTimer
from flux_trio.formats.meanings import Last, Matchtag, Now, Time
from flux_trio.messages import Payload, Request, Response

CallT = TypeVar("CallT")
ActionT = TypeVar("ActionT")
KeyT = TypeVar("KeyT", bound=Hashable)

_MATCHTAG_MAX = 0xFFFFFFFF


class Outbox(Part, Generic[CallT, ActionT, KeyT]):
    """`CallT`: what calls are for. `ActionT`: the core's own actions. `KeyT`: keys of timers.

    `now` is the time of this turn, seconds since the Unix epoch.
    """

    now: Now
    calls: dict[Matchtag, CallT]
    last_matchtag: Last
    timers: dict[KeyT, Time]
    actions: list[CommonAction | ActionT]

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = {}
        self.last_matchtag = 0
        self.timers = {}
        self.actions = []

    def send(self, action: CommonAction | ActionT | None) -> None:
        """Do `action` at the end of the turn; None is a response that nobody wants."""
        if action is not None:
            self.actions.append(action)

    def send_all(self, actions: Iterable[CommonAction | ActionT]) -> None:
        """Do all of `actions`, in order, at the end of the turn."""
        self.actions += actions

    def ask(self, topic: str, payload: Payload, call: CallT, flags: int = 0) -> int:
        """Send a request, whose answers `call` says what to do with. Returns the matchtag.

        A matchtag is used again only after its RPC has ended (RFC 6, Matchtag Field).
        """
        matchtag = self.open(call)
        self.actions.append(Request(topic, payload, matchtag, int(flags)))
        return matchtag

    def open(self, call: CallT) -> int:
        """A matchtag for a request that is sent otherwise than by `ask`."""
        self.last_matchtag = self.last_matchtag % _MATCHTAG_MAX + 1
        while self.last_matchtag in self.calls:
            self.last_matchtag = self.last_matchtag % _MATCHTAG_MAX + 1
        self.calls[self.last_matchtag] = call
        return self.last_matchtag

    def answered(self, response: Response) -> CallT | None:
        """What `response` answers; None when nothing open has its matchtag (it is late)."""
        if response.ends_rpc:
            return self.calls.pop(response.matchtag, None)
        return self.calls.get(response.matchtag)

    def hang_up(self, matchtag: int) -> None:
        """Take no more answers to the request with `matchtag`; None of them matches from now on."""
        self.calls.pop(matchtag, None)

    def set_timer(self, key: KeyT, at: float) -> None:
        """Hand back `TimerFired(key)` at `at` (seconds since the Unix epoch), once."""
        self.timers[key] = at
        self.actions.append(SetTimer(key, at))

    def clear_timer(self, key: KeyT) -> None:
        """Do not fire `key`; nothing is sent when it is not set."""
        if self.timers.pop(key, None) is not None:
            self.actions.append(ClearTimer(key))

    def fired(self, key: KeyT) -> None:
        """The timer `key` has fired: it is set no longer."""
        self.timers.pop(key, None)

    def clock_stepped(self, by: float) -> None:
        """The wall clock was set by `by` seconds: timers mean durations, and move with it."""
        self.timers = {key: at + by for key, at in self.timers.items()}

    def take_actions(self) -> list[Any]:
        """The actions since the last time, in order."""
        actions, self.actions = self.actions, []
        return actions
