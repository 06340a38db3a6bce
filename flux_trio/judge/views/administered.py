"""What the operator did to targets, and what happened to them (RFC 28)."""

from __future__ import annotations

from typing import Final, NamedTuple

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.selector import (
    BROKER,
    MODULE,
    errnum,
    message,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.acquiring import NONE
from flux_trio.judge.views.calls import ENDS, client_of
from flux_trio.messages import Request, topics
from flux_trio.trace import Kind, Record


class Drain(NamedTuple):
    """A request to drain or undrain targets that is not answered."""

    client: str
    topic: str
    targets: Idset


class Administered(Live, frozen=True, gc=False):
    """The targets that are drained, excluded or down, as the resource service has said."""

    down: Idset = NONE
    drained: Idset = NONE
    excluded: Idset = NONE
    undraining: Idset = NONE
    """Drained targets that were excluded later, which undrains them; the service has not said so
    yet."""
    unsure: Idset = NONE
    """Targets that may be drained or not: the service ended before it said what it did with a
    request."""
    n: Place = 0
    party: str = ""
    """The name of the resource service in the trace."""
    is_noted: bool = False
    """Whether the resource service writes records of what happens to targets."""
    asked: tuple[Drain, ...] = ()


def _after_drain(was: Administered, record: Record) -> Administered:
    """A drain or undrain takes effect when it is answered."""
    found = message(record)
    client, topic = client_of(record), topic_of(record)
    if isinstance(found, Request):
        targets = idset_of(payload(record).get("targets")) or NONE
        return was.but(asked=(*was.asked, Drain(client, topic, targets)))
    asked = next((each for each in was.asked if each[:2] == (client, topic)), None)
    if asked is None:
        return was
    if record.party == BROKER:
        return _unanswered(was, (asked,))
    was = was.but(asked=tuple(each for each in was.asked if each is not asked))
    if errnum(record):
        return was
    return _drain(was, asked.targets, record, is_undone=topic == topics.RESOURCE_UNDRAIN)


def _drain(
    was: Administered, targets: Idset, record: Record, *, is_undone: bool = False
) -> Administered:
    drained = was.drained - targets if is_undone else was.drained | targets
    return was.but(
        drained=drained,
        undraining=was.undraining - targets,
        unsure=was.unsure - targets,
        n=record.n,
    )


def _unanswered(was: Administered, asked: tuple[Drain, ...]) -> Administered:
    """The service has ended: it may have done what it was asked, or not."""
    unsure = was.unsure
    for each in asked:
        unsure |= each.targets
    return was.but(unsure=unsure, asked=tuple(each for each in was.asked if each not in asked))


def _after_status(was: Administered, record: Record) -> Administered:
    """What the service says of targets is taken for true only where nobody else can know it."""
    content = payload(record)
    excluded, drained = idset_of(content.get("exclude")), content.get("drained")
    if excluded is not None:
        was = was.but(excluded=excluded, n=record.n)
    if was.unsure and isinstance(drained, dict):
        said = [idset_of(each) or NONE for each in drained]
        still = Idset.of(target for each in said for target in each) & was.unsure
        was = was.but(drained=(was.drained - was.unsure) | still, unsure=NONE)
    return was


def _fold_administered(
    was: Administered | None, _part: None, record: Record, _seen: Seen
) -> Administered:
    was = was or Administered()
    content = payload(record)
    if record.kind == MODULE:  # a drain outlasts the service, what else it knew may not
        name, what = content.get("module"), content.get("what")
        if name in (was.party, topics.RESOURCE) and what in ENDS:  # of clients that are gone
            undrained = (was.drained & was.excluded) | was.undraining  # that may be stored
            unsure = was.unsure | undrained
            was = was.but(down=NONE, excluded=NONE, is_noted=False, unsure=unsure, undraining=NONE)
            return _unanswered(was, was.asked)
        # It may note what it has read before it says that it has started.
        return was.but(is_noted=True) if name == was.party and what == "started" else was
    if topic_of(record) in (topics.RESOURCE_DRAIN, topics.RESOURCE_UNDRAIN):
        return _after_drain(was, record)
    if record.message is not None:
        return _after_status(was, record)
    targets = idset_of(content.get("targets")) or NONE
    was = was.but(n=record.n, party=record.party, is_noted=True)
    match content.get("what"):
        case "down":
            return was.but(down=was.down | targets)
        case "up":
            return was.but(down=was.down - targets)
        case "drain" | "undrain" as what:
            return _drain(was, targets, record, is_undone=what == "undrain")
        case "exclude":
            return was.but(excluded=targets, undraining=was.undraining | (was.drained & targets))
    return was


ADMINISTERED: Final = view(
    "administered",
    noted(Kind.RESOURCE),
    noted(Kind.MODULE),
    sent("response", topics.RESOURCE_STATUS),
    received("request", topics.RESOURCE_DRAIN, topics.RESOURCE_UNDRAIN),
    sent("response", topics.RESOURCE_DRAIN, topics.RESOURCE_UNDRAIN),
    key=no_key,
    fold=_fold_administered,
)
"""A single state, made from the resource service's own records, from the drains that it has
answered, and from its responses to resource.status."""


def administered(seen: Seen) -> Administered:
    found: Administered | None = seen.at(ADMINISTERED)
    return found or Administered()
