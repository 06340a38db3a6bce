"""The commands at the prompt of `flux-trio replay --step`: how they are written, what words say."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any, Final

from flux_trio.lab import When
from flux_trio.protocols import JobState

USAGES: Final = {
    "step": "play the next turn, as the enter key does",
    "run": "go on until all is at rest",
    "stop event NAME [job JOB] [NTH]": "go on until the NTH event NAME is logged, of that job or of"
    " any",
    "stop state JOB STATE": "go on until the job is in STATE",
    "stop at SECONDS": "go on until so much time has passed",
    "stop TOPIC [NTH] [send|recv] [request|response|event]": "go on until the NTH such message was"
    " sent, or received",
    "hold": "hold the message, and what its sender sends after it",
    "release": "let all messages go on that are held",
    "delay SECONDS": "let the message arrive so much later",
    "drop": "lose the message",
    "duplicate": "let the message arrive twice",
    "crash MODULE": "end a module with an error",
    "unload MODULE": "remove a module in order",
    "load MODULE": "start a module",
    "states": "show the states of all cores; the name of a module shows one",
    "end": "put everything right, and play to the end without a stop",
    "help": "show the commands",
    "q": "end the replay",
}
"""How each command is written, and what it does; of those that begin alike the shortest is last."""

LOOKING: Final = frozenset({"step", "states", "end", "help", "q"})
"""Commands that are also for what cannot be interfered with."""

_SIDES: Final = ("send", "recv")
_TYPES: Final = ("request", "response", "event")


class Refused(Exception):
    """A command cannot be obeyed; the text says what was expected and what came."""


class Unfit(Exception):
    """The words of a command do not fit its usage."""


def usage_of(line: str) -> str:
    """Return how the command is written with which a line begins."""
    words = line.split()
    for usage in USAGES:
        name = list(takewhile(str.islower, usage.split()))
        if words[: len(name)] == name:
            return usage
    return "help"  # by another name, `?`


def no_more(words: str) -> None:
    if words:
        raise Unfit


def one_module(words: str) -> str:
    if len(words.split()) != 1:
        raise Unfit
    return words


def read_seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise Unfit from None


def read_nth(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word)):
        raise Unfit
    return int(word)


def read_state(name: str) -> JobState:
    if name not in JobState.__members__:
        states = ", ".join(JobState.__members__)
        raise Refused(f"expected a state of a job, one of {states}, got {name}")
    return JobState[name]


def read_message(topic: str, words: Iterable[str]) -> When:
    found: dict[str, Any] = {}
    for word in words:
        if word in _SIDES:
            found["side"] = word
        elif word in _TYPES:
            found["type"] = word
        else:
            found["nth"] = read_nth(word)
    return When(topic, **found)
