"""Faults of a plan that never struck, because what they wait for never came: which, and what."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from flux_trio.formats.glob import is_glob
from flux_trio.lab.catalogue import BrokenClause, Fault, PluginFault, SentMessage, When
from flux_trio.lab.plans.workload import JOB_ACTIONS, OwnerRequest

_NEARLY: Final = 0.8
"""How like to each other (see difflib) two topics are if one is taken for a slip of the other: less
than that are `sched.alloc` and `sched.cancel`, of which a world may have only the first.
"""


def never_struck(planned: Iterable[Fault], struck: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the planned faults that are not among those that `struck`, in their order."""
    left = list(planned)
    for fault in struck:
        if fault in left:
            left.remove(fault)
    return tuple(left)


def never_struck_text(fault: Fault, came: Collection[str] = ()) -> str:
    """Return what was planned and where, such as `crash (module sched, back 0.0) never struck:
    there was no request sched.alloc number 2 that was received`.

    `came` are the topics of all messages in the world; a place whose topic is nearly one of them is
    told with it.
    """
    fields: dict[str, Any] = msgspec.to_builtins(fault)
    places = {"type", "when", "which", "nth"}
    if isinstance(fault, PluginFault):
        places.add("hook")
    values = ", ".join(f"{key} {value}" for key, value in fields.items() if key not in places)
    said = f" ({values})" if values else ""
    return f"{fields['type']}{said} never struck: there was no {_place(fault)}{_meant(fault, came)}"


def never_made_text(request: OwnerRequest) -> str:
    """Return what was planned and where, such as `request cancel was never made: there was no
    request sched.alloc number 2 that was received`.
    """
    assert request.when is not None
    about = f" of job {request.job}" if request.what in JOB_ACTIONS else ""
    return f"request {request.what}{about} was never made: there was no {_message(request.when)}"


def _place(fault: Fault) -> str:
    if isinstance(fault, PluginFault):
        return f"question number {fault.nth} about {fault.hook}"
    place = fault.place
    assert place is not None
    text = f"turn {place}" if isinstance(place, int) else _message(place)
    has = fault.has if isinstance(fault, BrokenClause) else {}
    return text + "".join(f", with {key} {value}" for key, value in has.items())


def _meant(fault: Fault, came: Collection[str]) -> str:
    place = fault.place
    if not isinstance(place, When | SentMessage) or place.topic in came or is_glob(place.topic):
        return ""
    close = difflib.get_close_matches(place.topic, sorted(came), n=1, cutoff=_NEARLY)
    return f" (did you mean {close[0]}?)" if close else ""


def _message(place: When | SentMessage) -> str:
    is_received = isinstance(place, When) and place.side == "recv"
    by = f" by {place.party}" if place.party else ""
    verb = "received" if is_received else "sent"
    return f"{place.type} {place.topic} number {place.nth} that was {verb}{by}"
