"""Every topic a plugin can handle: when it is asked, its arguments and its allowed answers.

The one table of hooks: loading checks handlers by it, the host checks answers by it, and the hook
reference in the documentation is printed from it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import msgspec

from flux_trio.formats.glob import glob_matches, is_glob, literal_head
from flux_trio.jobtap.values import PRIORITIES, PluginError, expected_text
from flux_trio.protocols import (
    CONF_UPDATE,
    CREATE,
    DEPENDENCY_PREFIX,
    DESTROY,
    EVENT_PREFIX,
    EXPLAIN,
    INACTIVE_ADD,
    INACTIVE_REMOVE,
    NEW,
    PRIORITY_GET,
    QUERY,
    STATE_TOPICS,
    UPDATE_PREFIX,
    UPDATED,
    VALIDATE,
    JobState,
)


class Returns(Enum):
    """What a handler may return, as the reference prints it."""

    NOTHING = "None"
    PRIORITY = "int, UNAVAILABLE or None"
    ALLOWED = "UpdateAllowed or None"
    OBJECT = "dict"
    TEXT = "str or None"
    ANYTHING = "anything"


_HELD: Final = "the job is held in that state; the reason names the plugin"


class Hook(msgspec.Struct, frozen=True):
    """One topic; or a family of topics, whose last part is a word in capitals."""

    topic: str
    when: str
    parameters: tuple[str, ...] = ("job",)
    returns: Returns = Returns.NOTHING
    rejects: bool = False
    on_failure: str = _HELD
    is_notification: bool = False  # a notification: the job manager does not wait
    waits_for_async: bool = True
    of_many: bool = False  # may be asked about many jobs at once

    @property
    def prefix(self) -> str:
        """The beginning of all topics of a family, "" for a single topic."""
        head, _, last = self.topic.rpartition(".")
        return f"{head}." if last.isupper() else ""

    def covers(self, topic: str) -> bool:
        """Return whether `topic` is this topic, or belongs to this family."""
        prefix = self.prefix
        if prefix:
            return topic.startswith(prefix) and len(topic) > len(prefix)
        return topic == self.topic

    def may_match(self, glob: str) -> bool:
        """Return whether `glob` matches this topic, or might match one of this family."""
        prefix = self.prefix
        if not prefix:
            return glob_matches(glob, self.topic)
        head = literal_head(glob)
        return head.startswith(prefix) or prefix.startswith(head)


_REFUSED: Final = "the submission is refused; a failure for an accepted job is logged"
_LOGGED: Final = "the failure is logged"

_STATES: Final = {
    JobState.DEPEND: "A job has come into DEPEND; a plugin adds dependencies here.",
    JobState.PRIORITY: "A job has come into PRIORITY, or its urgency or jobspec has changed there.",
    JobState.SCHED: "A job has come into SCHED, possibly again; `job.allocate` works here only.",
    JobState.RUN: "A job has its resources; it starts when no prolog is open.",
    JobState.CLEANUP: "A job is ending; its resources are freed when no epilog is open.",
    JobState.INACTIVE: "A job is over.",
}

HOOKS: Final = (
    Hook(
        CREATE,
        "A job is seen for the first time: when submitted, read back, or the plugin is loaded.",
        rejects=True,
        on_failure=_REFUSED,
    ),
    Hook(
        VALIDATE,
        "A job is submitted, or an update would change its jobspec, which it shows.",
        rejects=True,
        on_failure="the submission or update is refused",
    ),
    Hook(
        f"{DEPENDENCY_PREFIX}SCHEME",
        "Once for each entry of the jobspec's dependencies; a scheme without a handler is refused.",
        ("job", "dependency"),
        rejects=True,
        on_failure=_REFUSED,
    ),
    Hook(
        NEW,
        "A job is valid: when submitted, read back, or the plugin is loaded.",
        returns=Returns.PRIORITY,
        on_failure=_LOGGED,
    ),
    *(
        Hook(
            STATE_TOPICS[state],
            when,
            returns=Returns.PRIORITY,
            on_failure=_LOGGED if state == JobState.INACTIVE else _HELD,
        )
        for state, when in _STATES.items()
    ),
    Hook(
        PRIORITY_GET,
        "Priorities are computed again: after `reprioritize_all`, and when a plugin is loaded.",
        returns=Returns.PRIORITY,
        on_failure="the job keeps its priority",
        of_many=True,
    ),
    Hook(
        f"{UPDATE_PREFIX}KEY",
        "A user asks to set the jobspec's KEY; a key that no plugin allows is refused.",
        ("job", "update"),
        returns=Returns.ALLOWED,
        rejects=True,
        on_failure="the update is refused",
    ),
    Hook(UPDATED, "A jobspec-update was applied.", ("job", "updates"), on_failure=_LOGGED),
    Hook(
        f"{EVENT_PREFIX}NAME",
        "An event was logged of a job that the plugin subscribed to.",
        ("job", "event"),
        on_failure=_LOGGED,
        is_notification=True,
    ),
    Hook(
        EXPLAIN,
        "A user asks why the job waits, or why it has its priority; the answer is a sentence.",
        returns=Returns.TEXT,
        on_failure="the user is told the failure",
    ),
    Hook(
        INACTIVE_ADD,
        "A job is among the inactive ones now.",
        on_failure=_LOGGED,
        is_notification=True,
    ),
    Hook(INACTIVE_REMOVE, "An inactive job was purged.", on_failure=_LOGGED, is_notification=True),
    Hook(
        DESTROY,
        "A job was refused or is over; its `data` is deleted right after.",
        on_failure=_LOGGED,
        is_notification=True,
    ),
    Hook(
        CONF_UPDATE,
        "The plugin is loaded (this hook comes first), or the configuration was loaded again.",
        ("config",),
        rejects=True,
        on_failure="the plugin, or the new configuration, is refused",
    ),
    Hook(
        QUERY,
        "The owner asks for the plugin's own data: `flux-trio jobtap query`.",
        (),
        returns=Returns.OBJECT,
        on_failure="the query fails",
    ),
)

CUSTOM: Final = Hook(
    "a topic of your own",
    "Another plugin calls it with `call(topic, args)`.",
    ("args",),
    returns=Returns.ANYTHING,
    rejects=True,
    on_failure="the call raises",
    waits_for_async=False,
)

_TOPICS_KEPT: Final = 4096  # users choose the topics of updates and events
_CUSTOM_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_*?-]+)+")
_RESERVED: Final = ("job", "conf", "plugin")
_NEARLY: Final = 0.8  # jobs is like job, myjob is not


def problem_with(hook: Hook, said: Any) -> str:
    """Return the text for a value that is not allowed: what was expected, what came."""
    expected = {
        Returns.PRIORITY: PRIORITIES,
        Returns.ALLOWED: "UpdateAllowed",
        Returns.OBJECT: "a dict",
        Returns.TEXT: "a str",
    }
    return expected_text(expected.get(hook.returns, "None"), said)


@functools.lru_cache(maxsize=_TOPICS_KEPT)
def hook_of(topic: str) -> Hook:
    """Return the row of a topic; `CUSTOM` for a topic that plugins have invented."""
    for hook in HOOKS:
        if hook.covers(topic):
            return hook
    return CUSTOM


def check_handler(topic: str, handler: Callable[..., Any]) -> None:
    """Raise PluginError unless the topic exists and `handler` takes its parameters."""
    if topic.partition(".")[0] in _RESERVED or _is_misspelled(topic):
        hooks = [hook for hook in HOOKS if _is_meant(hook, topic)]
        if not hooks:
            raise PluginError(f"no hook is called {topic}: {_meant(topic)}{_names_like(topic)}")
    elif _CUSTOM_TOPIC.fullmatch(topic):
        hooks = [CUSTOM]
    else:
        raise PluginError(
            f"{topic!r} is no topic: expected a hook, or words of your own with periods between"
        )
    most = max((hook.parameters for hook in hooks), key=len)
    fewest = min((hook.parameters for hook in hooks), key=len)
    if not (takes(handler, len(fewest)) if fewest != most else takes(handler, len(most))):
        expected = f"({', '.join(most)})"
        if fewest != most:
            expected = f"({', '.join(fewest)}), since only some of these topics have more"
        got = inspect.signature(handler)
        raise PluginError(f"handler {_name(handler)} of {topic}: expected {expected}, got {got}")


def takes(handler: Callable[..., Any], count: int) -> bool:
    """Return whether `handler` can be called with `count` arguments."""
    try:
        inspect.signature(handler).bind(*[None] * count)
    except TypeError:
        return False
    return True


def _is_meant(hook: Hook, topic: str) -> bool:
    if is_glob(topic):
        return hook.parameters[:1] == ("job",) and hook.may_match(topic)
    return hook.covers(topic)


def _is_misspelled(topic: str) -> bool:
    """Return whether `topic` would be a hook except for its first word, which is nearly right."""
    head, _, rest = topic.partition(".")
    like = difflib.get_close_matches(head.lower(), _RESERVED, n=1, cutoff=_NEARLY)
    return bool(like) and any(_is_meant(hook, f"{like[0]}.{rest}") for hook in HOOKS)


def _meant(topic: str) -> str:
    """Return a question that names the hook most like `topic`; "" if no hook is like it."""
    last = topic.rpartition(".")[2]
    spellings = [f"{hook.prefix}{last}" if hook.prefix else hook.topic for hook in HOOKS]
    found = difflib.get_close_matches(topic.lower(), spellings, n=1)
    return f"did you mean {found[0]}? " if found else ""


def _names_like(topic: str) -> str:
    head = topic.partition(".")[0]
    like = [hook.topic for hook in HOOKS if hook.topic.partition(".")[0] == head]
    return "there are " + ", ".join(like or [hook.topic for hook in HOOKS])


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__name__", repr(handler))
