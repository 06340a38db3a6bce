"""The options of `submit`, `run` and `bulksubmit`, and the jobspec, urgency and flags they make."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_trio.cli.submit.constraint_query import parse_constraint_query
from flux_trio.cli.submit.environment import job_environment
from flux_trio.cli.submit.job_shape import JobShape
from flux_trio.cli.submit.resource_limits import job_limits
from flux_trio.cli.terminal.values import (
    check_dotted_key,
    read_json_or_text,
    read_time,
    read_time_limit,
    read_urgency,
    read_warning_signal,
)
from flux_trio.formats import LESS_DEEP, Jobspec, check_utf8, parse_dependency_uri
from flux_trio.protocols import JobFlag

_NOT_IN_JOBSPEC: Final = {"command", "debug", "exclusive", "log", "log_stderr"}  # or named apart

SHELL_OPTIONS: Final = frozenset(
    {
        "cpu-affinity",
        "env-expand",
        "exit-on-error",
        "exit-timeout",
        "gpu-affinity",
        "input",
        "output",
        "per-resource",
        "pmi",
        "rlimit",
        "signal",
        "taskmap",
        "verbose",
    }
)
"""The shell options that have an effect here; others stay in the jobspec."""


@dataclass(frozen=True, kw_only=True)
class Submission(JobShape):
    """The options that describe a job, as typed; each field is the option of its name.

    `env` holds the rules of --env, --env-remove and --env-file in the order in which they were
    given.
    """

    command: tuple[str, ...] = ()
    time_limit: str | None = None
    urgency: str = "default"
    requires: tuple[str, ...] = ()
    dependency: tuple[str, ...] = ()
    begin_time: tuple[str, ...] = ()
    setattr: tuple[str, ...] = ()
    setopt: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None
    error: str | None = None
    cwd: str | None = None
    job_name: str | None = None
    signal: str | None = None
    taskmap: str | None = None
    rlimit: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    debug: bool = False
    queue: str | None = None
    bank: str | None = None
    cc: str | None = None
    bcc: str | None = None
    log: str | None = None
    log_stderr: str | None = None
    label_io: bool = False

    def with_texts(self, change: Callable[[str, str], list[str]]) -> Submission:
        """Replace each text by `change(field, text)`.

        A word of the command may become several words; of other fields the first text is used.
        """
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "command":
                changed["command"] = tuple(
                    word for text in value for word in change("command", text)
                )
            elif isinstance(value, tuple):
                changed[each.name] = tuple(change(each.name, text)[0] for text in value)
            elif isinstance(value, str):
                changed[each.name] = change(each.name, value)[0]
        return replace(self, **changed)

    def to_jobspec(
        self, environ: Mapping[str, str], cwd: str, now: float, limits: Mapping[str, int]
    ) -> Jobspec:
        """Return the jobspec; `now` is the Unix time, the others are those of this process.

        `limits` are soft limits. The ValueError names the option, a FormatError the path in the
        jobspec.
        """
        if not self.command:
            raise ValueError("job command and arguments are missing")
        self._check_words(cwd)
        environment, templates = _named("--env", job_environment, self.env, environ)
        given = {
            "env-expand": templates or None,
            "rlimit": _named("--rlimit", job_limits, self.rlimit, limits) or None,
        }
        return Jobspec.from_command(
            self.command,
            **self.counts(),
            duration=self.duration(),
            cwd=self.cwd or cwd,
            environment=environment,
            queue=self.queue,
            attributes=self._attributes(now, given),
        )

    def duration(self) -> float | None:
        """Return the time limit in seconds, 0 for none; None if it is not given. ValueError."""
        if self.time_limit is None:
            return None
        return float(_named("--time-limit", read_time_limit, self.time_limit))

    def _check_words(self, cwd: str) -> None:
        """Raise a FormatError that names a word that is not UTF-8: a jobspec cannot have it."""
        words = [(f"argument {number} of the command", w) for number, w in enumerate(self.command)]
        if self.cwd is None:
            words.append(("the current directory", cwd))
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in _NOT_IN_JOBSPEC:
                texts = value if isinstance(value, tuple) else (value,)
                name = f"--{each.name.replace('_', '-')}"
                words += [(name, text) for text in texts if isinstance(text, str)]
        for where, word in words:
            check_utf8(word, where)

    def _attributes(self, now: float, options: dict[str, Any]) -> dict[str, Any]:
        options |= self._shell_options()
        given: dict[str, Any] = {
            "system.job.name": self.job_name,
            "system.bank": self.bank,
            **{f"system.shell.options.{name}": value for name, value in options.items()},
        }
        attributes = {path: value for path, value in given.items() if value is not None}
        if self.requires:
            for query in self.requires:  # each alone, so that an error shows the typed text
                constraint = _named("--requires", parse_constraint_query, query)
            if len(self.requires) > 1:
                constraint = parse_constraint_query(
                    " and ".join(f"({query})" for query in self.requires)
                )
            attributes["system.constraints"] = constraint
        if dependencies := self._dependencies(now):  # the key is absent without any (RFC 26)
            attributes["system.dependencies"] = dependencies
        for text in self.setopt:
            key, value = _named("--setopt", _key_value, text)
            attributes[f"system.shell.options.{key}"] = value
        for text in self.setattr:
            key, value = _named("--setattr", parse_attribute, text)
            attributes[key] = value
        return attributes

    def ignored_options(self) -> list[str]:
        """Return the names of `--setopt` that have no effect here, as typed."""
        typed = [text.partition("=")[0] for text in self.setopt]
        names = [name for name in typed if name.partition(".")[0] not in SHELL_OPTIONS]
        return list(dict.fromkeys(names))

    def _shell_options(self) -> dict[str, Any]:
        """Return the shell options that have a command option; None if it was not given."""
        files = {
            "input.stdin": self.input,
            "output.stdout": self.output,
            "output.stderr": self.error,
        }
        label = {"label": True} if self.label_io else {}
        return {
            "per-resource": self.per_resource(),
            "signal": self.signal and _named("--signal", read_warning_signal, self.signal),
            "taskmap": self.taskmap and _taskmap(self.taskmap),
            **{
                place: None
                if path is None
                else {"type": "file", "path": path, **(label if place != "input.stdin" else {})}
                for place, path in files.items()
            },
        }

    def _dependencies(self, now: float) -> list[dict[str, Any]]:
        dependencies = [
            _named("--dependency", parse_dependency_uri, uri) for uri in self.dependency
        ]
        for text in self.begin_time:
            begin = _named("--begin-time", read_time, text, now)
            dependencies.append({"scheme": "begin-time", "value": f"{begin:.3f}"})
        return dependencies

    def urgency_number(self) -> int:
        """Return the urgency, 0 to 31. Raises ValueError."""
        return int(_named("--urgency", read_urgency, self.urgency))

    def flag_mask(self) -> int:
        """Return the flags as a mask. Raises ValueError for an unknown flag."""
        mask = int(JobFlag.DEBUG) if self.debug else 0
        for name in ",".join(self.flags).split(","):
            if name:
                try:
                    mask |= JobFlag[name.upper()]
                except KeyError:
                    raise ValueError(f"--flags: Unknown flag {name}") from None
        return mask

    def __str__(self) -> str:
        """Return the command, quoted for a shell."""
        return shlex.join(self.command)


def parse_attribute(text: str) -> tuple[str, Any]:
    """Return a dotted key below `attributes` and its value, from KEY[=VALUE].

    The value is read as JSON, else it is a string; without =VALUE it is 1. A key is below `system`
    unless it begins with `system.`, `user.` or a dot. In ^KEY=FILE, the value is the JSON in FILE.
    """
    if text.startswith("^"):
        key, value = _key_value(text[1:])
        value = _read_json(str(value))
    else:
        key, value = _key_value(text)
    key = key.removeprefix("attributes.")
    if key.startswith("."):
        return key[1:], value
    return key if key.startswith(("system.", "user.")) else f"system.{key}", value


def _taskmap(text: str) -> dict[str, str]:
    scheme, _, value = text.partition(":")
    return {"scheme": scheme, "value": value}


def _key_value(text: str) -> tuple[str, Any]:
    key, has_value, value = text.partition("=")
    check_dotted_key(key.removeprefix("."), text)
    return key, read_json_or_text(key, value) if has_value else 1


def _read_json(path: str) -> Any:
    try:
        return msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: expected JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: expected {LESS_DEEP}") from None


def read_jobspec(text: bytes, where: str) -> Jobspec:
    """Parse the jobspec in a file. The FormatError names file and field."""
    return Jobspec.parse(text, where)


def _named(option: str, read: Any, *values: Any) -> Any:
    try:
        return read(*values)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
