"""A story: how a property came to be broken, as a dozen lines of plain text.

A `Story` is made of plain values and of the records of a trace. The page of a story is made by
`story_page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats.spelling import spelled
from flux_trio.messages import Control, Request, topics
from flux_trio.trace import Kind, Record
from flux_trio.views.arrows import content, headline, sender_of

LINES_MAX: Final = 12
"""Records that a story tells: those that say most about what was broken."""

PUT_RIGHT: Final = f"{'':15}--- from here on everything is put right"

CHARS_MAX: Final = 150
"""A longer line is cut."""

_FAULT: Final = 1  # the rank of faults
_REPEATED: Final = 6  # the rank of what tells events again

_OF_USERS: Final = (topics.JOB_RAISE, topics.JOB_URGENCY)
"""What a user asks for, which comes out of nowhere without its request."""

_OF_ADMINS: Final = (
    topics.JOB_QUEUE_ENABLE,
    topics.JOB_QUEUE_START,
    topics.RESOURCE_DRAIN,
    topics.RESOURCE_UNDRAIN,
)
"""Requests about queues and nodes. They act on all jobs, as faults do."""

_TOLD_SERVICES: Final = (topics.SCHED, topics.JOB_EXEC, topics.RESOURCE, topics.JOB_MANAGER)


@dataclass(frozen=True, slots=True)
class Change:
    """What one turn of a module did to the state of its core.

    The records of the turn come after the place `since`; `after` is the place of the last one.
    `lines` has a line for each place in the state that differs. `state` is the whole state as text.
    The first state of a core is a change at the place 0, without lines.
    """

    since: int
    after: int
    module: str
    lines: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class Story:
    """A broken property, what was played, and the trace."""

    broken: str
    """The id of the clause, or the name of the property."""
    found: str
    """What was found, in a sentence."""
    trace: Sequence[Record]
    sentence: str = ""
    """What the property asks for."""
    party: str = ""
    """Who broke it; empty if that is not known."""
    at: int = 0
    """The place of the record that broke it; 0 if no single record did."""
    because: frozenset[int] = frozenset()
    """Places of the earlier records that explain it."""
    jobid: int | None = None
    """The job concerned, if it is one."""
    played: tuple[str, ...] = ()
    """Lines on what was played: the machine, the jobs, the requests, the faults."""
    changes: Sequence[Change] = field(default=(), repr=False)
    right_after: int = 0
    """The place of the last record before the faults were ended and everything was put right; 0 if
    that is not known."""
    doubt: str = ""
    """Why the plan may hold when somebody plays it again; empty if it was seen to break again."""


def story_text(story: Story) -> str:
    """Return the story as text: the property, what was played, and who did what when."""
    lines = [*story_head(story), ""]
    lines += [f"  {line}" for line in story.played]
    return "\n".join([*lines, "", *story_lines(story), ""])


def story_head(story: Story) -> list[str]:
    """Return the lines on the broken property: name, what it asks for, what was found, doubt."""
    by = f" by {story.party}" if story.party else ""
    lines = [f"{story.broken} is broken{by}"]
    if story.sentence:
        lines.append(f"  expected: {story.sentence}")
    lines.append(f"  found:    {spelled(story.found)}")
    return [*lines, f"  again:    {story.doubt}"] if story.doubt else lines


def story_lines(story: Story) -> list[str]:
    """Return the lines of the LINES_MAX beats that say most, and where everything is put right."""
    lines = []
    is_right = not story.right_after
    for beat in shown_beats(story, LINES_MAX):
        if not is_right and beat[0].n > story.right_after:
            lines.append(PUT_RIGHT)
            is_right = True
        lines.append(telling(beat, story.trace[0].t, story.at))
    return lines


Beat = list[Record]
"""One record; or the events of one job at one moment, if no fault came between them, and they are
all before everything is put right or all after it."""


def shown_beats(story: Story, count: int) -> list[Beat]:
    """Return the `count` beats that say most about the violation, in their order.

    First come the violation and what explains it, then the faults, then the events of the job
    concerned, requests of users about it, or about queues and nodes, what plugins refuse, and
    denied requests; then messages between the job manager, the scheduler and the other services.
    Of those that say the same, the last ones are told. What puts everything right comes last.
    """
    ranked = sorted(_ranked_beats(story), key=lambda each: (each[0], -each[1][0].n))
    return sorted((beat for _, beat in ranked[:count]), key=lambda beat: beat[0].n)


def _ranked_beats(story: Story) -> list[tuple[int, Beat]]:
    found: list[tuple[int, Beat]] = []
    open_beats: dict[int, Beat] = {}  # by job, the beat that its next event at this moment joins
    explaining, last = _sends(story), last_of(story)
    was_right = False
    for record in story.trace:
        if record.n > last:
            break
        is_right = _is_put_right(record, story)
        if is_right and not was_right:
            open_beats.clear()  # an event after PUT_RIGHT is told below it
        was_right = is_right
        rank = 0 if record.n in explaining else _rank(record, story)
        if rank is None:
            continue
        if rank == _FAULT:
            open_beats.clear()
        if record.kind != Kind.EVENT:
            found.append((rank, [record]))
            continue
        jobid = (record.data or {})["id"]
        beat = open_beats.get(jobid)
        if beat is not None and beat[0].t == record.t and record.n not in explaining:
            beat.append(record)
        else:
            beat = [record]
            found.append((rank, beat))
        open_beats[jobid] = beat
    return found


def last_of(story: Story) -> int:
    """Return the place of the last record that the story is about."""
    return story.at or (story.trace[-1].n if story.trace else 0)


def _sends(story: Story) -> set[int]:
    """Return the places of the violation and its reasons; of a message its send, if it is there."""
    sends = {record.n for record in story.trace if record.kind == Kind.SEND}
    refs = {record.n: record.ref for record in story.trace if record.kind == Kind.RECV}
    because = {refs[n] if refs.get(n) in sends else n for n in story.because if n != story.at}
    return {*because, story.at} - {0}


def _rank(record: Record, story: Story) -> int | None:
    """Return how little a record says about the violation; None if it is not told."""
    data = record.data or {}
    match record.kind:
        case Kind.MODULE:
            is_told = data["what"] != "started" or _is_back(record, story)
            return (5 if _is_put_right(record, story) else _FAULT) if is_told else None
        case Kind.CLOCK | Kind.FAULT:
            return _FAULT
        case Kind.EVENT:
            return 2 if story.jobid in (None, data.get("id")) else 4
        case Kind.HOOK:
            return _rank_of_answer(data, story)
        case Kind.SEND:
            return _rank_of_send(record, story)
    return None


def _rank_of_answer(data: Mapping[str, Any], story: Story) -> int | None:
    """Return the rank of an answer of a plugin; the builtin ones have a period in their names."""
    if data["plugin"].startswith("."):
        return None
    is_about_it = story.jobid in (None, data.get("id"))
    if data["error"] is not None or isinstance(data["result"], str):
        return 2 if is_about_it else 4  # it has failed, or does not say yes
    return 3 if is_about_it and data["result"] is not None else 5


def _is_put_right(record: Record, story: Story) -> bool:
    """Whether this came after the faults, when everything is put right: it explains nothing."""
    return 0 < story.right_after < record.n


def _is_back(record: Record, story: Story) -> bool:
    """Whether a module starts that was there before."""
    module = (record.data or {})["module"]
    earlier = (each for each in story.trace if each.n < record.n and each.kind == Kind.MODULE)
    return any((each.data or {})["module"] == module for each in earlier)


def _rank_of_send(record: Record, story: Story) -> int | None:
    message = record.message
    if message is None or isinstance(message, Control):
        return None
    if message.topic.partition(".")[0] not in _TOLD_SERVICES:
        return None
    payload: Any = message.payload
    if message.topic in (topics.JOB_JOURNAL, topics.JOB_EVENTS):
        return _REPEATED
    if message.topic in _OF_ADMINS:
        is_of_story = isinstance(message, Request) and not _is_put_right(record, story)
        return 2 if is_of_story else 5
    jobid = payload.get("id") if isinstance(payload, dict) else None
    if jobid is None:
        return 5
    if message.topic == topics.SCHED_ALLOC and payload.get("type") == AllocType.DENY:
        return 2  # this ends a job
    if message.topic in _OF_USERS and story.jobid in (None, jobid):
        return 2
    return 3 if story.jobid in (None, jobid) else 5


def telling(beat: Beat, t_zero: float, broken: int = 0) -> str:
    """Return a line: seconds after `t_zero`, who, what; the record `broken` is marked."""
    first = beat[0]
    mark = ">" if any(record.n == broken for record in beat) else " "
    text = sentence(first)
    if len(beat) > 1:
        names = [(record.data or {})["name"] for record in beat[1:]]
        text = f"{first.party}: {headline(first)}, then {', '.join(names)}"
    line = f"{mark} {first.t - t_zero:9.3f} s  {text}"
    return line if len(line) <= CHARS_MAX else f"{line[: CHARS_MAX - 3]}..."


def sentence(record: Record) -> str:
    """Return what happened in plain words: subject, verb, object."""
    data = record.data or {}
    match record.kind:
        case Kind.SEND:
            to = f" to {record.peer}" if record.peer else " to all who subscribe"
            return f"{record.party} sends {content(record)}{to}"
        case Kind.RECV:
            sender = sender_of(record)
            return f"{record.party} takes {content(record)}" + (f" of {sender}" * bool(sender))
        case Kind.DROP:
            return f"the broker drops {content(record)} for {record.party}"
        case Kind.MODULE:
            return _of_module(data)
        case Kind.CLOCK:
            return _of_clock(data)
        case Kind.FAULT:
            return _of_fault(data)
    return f"{record.party}: {content(record)}"


def _of_module(data: Mapping[str, Any]) -> str:
    match data["what"]:
        case "started":
            return f"{data['module']} is loaded"
        case "removed":
            return f"{data['module']} is unloaded"
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"{data['module']} has {data['what']}{reason}"


def _of_fault(data: Mapping[str, Any]) -> str:
    """Return the kind of a fault and its values, without the moment, which has come."""
    named = {key: value for key, value in data.items() if key not in ("type", "when", "which")}
    values = ", ".join(f"{key} {listed(value)}" for key, value in named.items())
    return f"fault {data['type']}" + (f" ({values})" if values else "")


def listed(value: Any) -> str:
    """Return a value of a fault as text: several names or numbers with commas, without blanks."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _of_clock(data: Mapping[str, Any]) -> str:
    by = data["by"]
    return f"the wall clock is set {abs(by):g} s {'ahead' if by > 0 else 'back'}"
