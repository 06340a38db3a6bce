"""The outbox of a core: this turn's actions, the calls it has open, the timers it has set. Pure.

Each core has one, and all parts of the core send through it. A call is a frozen value that says
what its answer is for; the core finds in one `match` what to do with the answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Generic, TypeVar

from flux_trio.cores.kvs_calls import Ask, cancel_watch, written
from flux_trio.cores.state import Part
from flux_trio.cores.turns import ClearTimer, CommonAction, KeyT, SetTimer
from flux_trio.editions import Edition
from flux_trio.formats.meanings import Now, Time
from flux_trio.messages import Calls, Payload, Request, Response

AnyT = TypeVar("AnyT")
CallT = TypeVar("CallT")
ActionT = TypeVar("ActionT")


class Outbox(Part, Generic[CallT, ActionT, KeyT]):
    """`CallT`: the calls. `ActionT`: the core's own actions. `KeyT`: the keys of timers.

    `now` is the time of this turn, seconds since the Unix epoch. Requests to the kvs are in the
    words of `edition`.
    """

    now: Now
    calls: Calls[CallT]
    timers: dict[KeyT, Time]
    actions: list[CommonAction[KeyT] | ActionT]

    def __init__(self, edition: Edition) -> None:
        self._kvs = edition.kvs
        self.now = 0.0
        self.calls = Calls()
        self.timers = {}
        self.actions = []

    def send(self, action: CommonAction[KeyT] | ActionT | None) -> None:
        """Do `action` at the end of the turn; None stands for a response that no one wants."""
        if action is not None:
            self.actions.append(action)

    def send_all(self, actions: Iterable[CommonAction[KeyT] | ActionT]) -> None:
        """Do `actions`, in order, at the end of the turn."""
        self.actions += actions

    def ask(self, topic: str, payload: Payload, call: CallT, flags: int = 0) -> int:
        """Send a request; `call` says what to do with its answers. Returns the matchtag."""
        matchtag = self.calls.open(call)
        self.actions.append(Request(topic, payload, matchtag, int(flags)))
        return matchtag

    def ask_kvs(self, ask: Ask, call: CallT, flags: int = 0) -> int:
        """Send a request to the kvs; as `ask`."""
        return self.ask(*written(ask, self._kvs), call, flags)

    def request_kvs(self, ask: Ask, matchtag: int = 0, flags: int = 0) -> Request:
        """Return a request to the kvs."""
        return Request(*written(ask, self._kvs), matchtag, flags)

    def cancel_watch(self, matchtag: int) -> None:
        """End a watch of the kvs."""
        self.send(cancel_watch(matchtag, self._kvs))

    def set_timer(self, key: KeyT, at: float) -> None:
        """Ask for one `TimerFired(key)` at the time `at` (seconds since the Unix epoch)."""
        self.timers[key] = at
        self.actions.append(SetTimer(key, at))

    def clear_timer(self, key: KeyT) -> None:
        """Clear the timer `key`, if it is set."""
        if self.timers.pop(key, None) is not None:
            self.actions.append(ClearTimer(key))

    def fired(self, key: KeyT) -> None:
        """Note that the timer `key` has fired, so that it is no longer set."""
        self.timers.pop(key, None)

    def clock_stepped(self, by: float) -> None:
        """Move the timers, which mean durations: the wall clock was set by `by` seconds."""
        self.timers = {key: at + by for key, at in self.timers.items()}

    def forget(self, sender: str) -> None:
        """Drop this turn's responses to a peer that is gone (6.disconnect.2)."""
        self.actions = without_responses(self.actions, {sender})

    def pop_actions(self) -> list[CommonAction[KeyT] | ActionT]:
        """Return the actions since the last call, in order."""
        actions, self.actions = self.actions, []
        return actions


def without_responses(actions: Iterable[AnyT], gone: Container[str]) -> list[AnyT]:
    """Return `actions` without responses to the peers that are gone."""
    return [
        each
        for each in actions
        if not (isinstance(each, Response) and each.routes and each.routes[0] in gone)
    ]
