"""The environment of a job: `--env` rules change the command's own (flux-submit(1), Environment).

`-PATTERN` removes the variables that the glob matches (`-/REGEX/` a regular expression), `PATTERN`
adds them again, `NAME=VALUE` sets a variable, with `$NAME` in the value replaced, and `^FILE` reads
rules, one per line. A value with tags such as {{id}} is filled in where the job runs.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from string import Template

from flux_trio.client.jobs import for_jobs


def job_environment(
    rules: Iterable[str], current: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Apply `rules` to `current` in order; return the environment and the values that have tags.

    The ValueError names the rule.
    """
    current = for_jobs(current)
    environment, templates = dict(current), {}
    for rule in _all_rules(rules):
        name, _, value = rule.partition("=")
        if "{{" in value and not rule.startswith("-"):
            templates[name] = value
            continue
        try:
            environment = _apply(rule, environment, current)
        except re.error as error:
            raise ValueError(f"{rule!r}: {error}") from None
        except KeyError as error:
            raise ValueError(f"{rule!r}: there is no variable {error}") from None
        except ValueError as error:
            raise ValueError(f"{rule!r}: {error}") from None
    return environment, templates


def _all_rules(rules: Iterable[str]) -> Iterator[str]:
    for rule in rules:
        if not rule.startswith("^"):
            yield rule
            continue
        path = Path(rule[1:]).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8: {error}") from None
        yield from (line.strip() for line in lines if line.strip() and line[0] != "#")


def _apply(rule: str, environment: dict[str, str], current: Mapping[str, str]) -> dict[str, str]:
    name, is_assignment, value = rule.partition("=")
    if rule.startswith("-"):
        pattern = name_pattern(rule[1:])
        return {name: value for name, value in environment.items() if not pattern.match(name)}
    if is_assignment:
        if not name:
            raise ValueError("expected NAME=VALUE")
        expanded = Template(value).substitute({**current, **environment})
        return {**environment, name: expanded}
    pattern = name_pattern(rule)
    again = {name: value for name, value in current.items() if pattern.match(name)}
    return {**again, **environment}


def name_pattern(text: str) -> re.Pattern[str]:
    """Compile the pattern of a rule: a glob, or a regular expression if it begins with /."""
    if text.startswith("/"):
        return re.compile(text[1:].removesuffix("/"))
    return re.compile(fnmatch.translate(text))
