"""What a tap does to the messages of its module: rules, read from the arguments of the module.

An argument that begins with `tap-` is the tap's; all others are the module's own.

    tap-trace=FILE                      record the messages there
    tap-loader=PROGRAM                  start the module by this loader
    tap-drop=PATTERN                    do not pass the message on
    tap-duplicate=PATTERN               pass it on twice
    tap-delay=PATTERN,s=SECONDS         pass it on so much later
    tap-hold=PATTERN[,until=PATTERN]    pass it on after one of the other pattern, or when told

A PATTERN is `DIRECTION,TYPE,TOPIC[,KEY=VALUE]...[,n=WHICH]`. The direction is `tx` or `rx`, as the
module sees it and `flux module trace` prints it. The topic may be a glob. KEY is a field of the
header or a key of the payload. WHICH counts the messages of the pattern from 1: `2`, `2-4`, `2-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, cast, get_args

import msgspec

from flux_trio.formats import FormatError
from flux_trio.formats.glob import GLOB_CHARS_MAX, glob_matches
from flux_trio.messages import Message

Direction = Literal["tx", "rx"]
Type = Literal["request", "response", "event", "control"]
Deed = Literal["drop", "duplicate", "delay", "hold"]

PREFIX: Final = "tap-"
RULES_MAX: Final = 256
"""Rules of one module: each message is compared with all of them."""
DELAY_S_MAX: Final = 3600.0

_DIRECTIONS: Final = get_args(Direction)
_TYPES: Final = get_args(Type)
_DEEDS: Final = get_args(Deed)
_PATTERN: Final = "DIRECTION,TYPE,TOPIC[,KEY=VALUE]...[,n=WHICH]"
_WHICH: Final = re.compile(r"([1-9]\d{0,8})(-([1-9]\d{0,8})?)?")
_HEADER: Final = frozenset({"matchtag", "errnum", "flags", "nodeid", "userid", "rolemask"})


class Pattern(msgspec.Struct, frozen=True):
    """Matches messages; of those, the `first` to the `last` are meant (None: all further ones)."""

    direction: Direction
    type: Type
    topic: str
    values: tuple[tuple[str, Any], ...] = ()
    first: int = 1
    last: int | None = 1

    def matches(self, direction: Direction, message: Message) -> bool:
        """Return whether the message is one of those that count."""
        return (
            direction == self.direction
            and type_of(message) == self.type
            and glob_matches(self.topic, getattr(message, "topic", ""))
            and all(_value(message, key) == value for key, value in self.values)
        )

    def means(self, count: int) -> bool:
        """Return whether the message that is number `count` of those that match is meant."""
        return count >= self.first and (self.last is None or count <= self.last)


class Rule(msgspec.Struct, frozen=True):
    """One deed to the messages that `pattern` means; `text` is the argument that says so."""

    text: str
    deed: Deed
    pattern: Pattern
    seconds: float = 0.0
    until: Pattern | None = None


class Orders(msgspec.Struct, frozen=True):
    """What the arguments of a module say: to the tap, and (`args`) to the module."""

    trace: str = ""
    loader: str = ""
    rules: tuple[Rule, ...] = ()
    args: tuple[str, ...] = ()


def parse_orders(args: Iterable[str]) -> Orders:
    """Read the arguments of a module; FormatError names the one that is wrong."""
    rules: list[Rule] = []
    texts: dict[str, str] = {}
    others: list[str] = []
    for arg in args:
        if not arg.startswith(PREFIX):
            others.append(arg)
            continue
        key, _, text = arg.removeprefix(PREFIX).partition("=")
        if key in _DEEDS and text:
            rules.append(_rule(key, text, arg))
        elif key not in ("trace", "loader") or key in texts or not text:
            wanted = ", ".join(f"{PREFIX}{each}=" for each in ("trace", "loader", *_DEEDS))
            raise FormatError(f"one of {wanted} with a value, the first two once", arg)
        else:
            texts[key] = text
    if len(rules) > RULES_MAX:
        raise FormatError(f"at most {RULES_MAX} rules", len(rules))
    return Orders(texts.get("trace", ""), texts.get("loader", ""), tuple(rules), tuple(others))


def type_of(message: Message) -> str:
    return type(message).__name__.lower()


def _value(message: Message, key: str) -> Any:
    if key in _HEADER:
        return getattr(message, key, None)
    payload = getattr(message, "payload", None)
    return payload.get(key) if isinstance(payload, dict) else None


def _rule(deed: str, text: str, arg: str) -> Rule:
    shown, is_until, after = text.partition(",until=")
    pattern, seconds = _pattern(shown, arg)
    until = _pattern(after, arg)[0] if is_until else None
    if until is not None and deed != "hold":
        raise FormatError("until= only with tap-hold", arg)
    if (seconds is None) != (deed != "delay"):
        raise FormatError("s=SECONDS with tap-delay, and with no other", arg)
    return Rule(arg, cast(Deed, deed), pattern, seconds or 0.0, until)


def _pattern(text: str, arg: str) -> tuple[Pattern, float | None]:
    """Return the pattern, and the seconds if there is `s=`."""
    direction, type_, topic, *options = (*text.split(","), "", "")
    if direction not in _DIRECTIONS or type_ not in _TYPES or not (topic or type_ == "control"):
        raise FormatError(f"{_PATTERN}, as in tx,response,sched.alloc,n=2", arg)
    values: list[tuple[str, Any]] = []
    first, last, seconds = 1, cast("int | None", 1), None
    for option in filter(None, options):
        key, is_given, value = option.partition("=")
        if not key or not is_given:
            raise FormatError(_PATTERN, arg)
        if key == "n":
            first, last = _which(value, arg)
        elif key == "s":
            seconds = _seconds(value, arg)
        else:
            values.append((key, _plain(value)))
    if len(topic) > GLOB_CHARS_MAX:
        raise FormatError(f"a topic of at most {GLOB_CHARS_MAX} characters", arg)
    found = Pattern(cast(Direction, direction), cast(Type, type_), topic, tuple(values))
    return msgspec.structs.replace(found, first=first, last=last), seconds


def _which(text: str, arg: str) -> tuple[int, int | None]:
    match = _WHICH.fullmatch(text)
    if match is None:
        raise FormatError("n=2, n=2-4 or n=2-", arg)
    first, last = int(match[1]), match[3]
    if match[2] is None:
        return first, first
    if last is not None and int(last) < first:
        raise FormatError("n=FIRST-LAST with the lesser one first", arg)
    return first, int(last) if last is not None else None


def _seconds(text: str, arg: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= DELAY_S_MAX:
        raise FormatError(f"s= with more than 0 and at most {DELAY_S_MAX:.0f} seconds", arg)
    return seconds


def _plain(text: str) -> Any:
    """Return the value of a JSON literal, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
