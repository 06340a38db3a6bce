"""Jobspecs of flux-core as our execution service reads them. Pure.

flux-core keeps the environment of a job only in J, the signed jobspec. The rest that is added here
is what flux-core's shell does with each job: its variables, and standard input that commands send,
unless the jobspec says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, apply_update, parse_jobspec
from flux_trio.formats.signed_jobspec import content

ENVIRONMENT: Final = "attributes.system.environment"
REMOVED: Final = "FLUX_PROXY_REMOTE"
"""A variable that says how the user has reached the instance: jobs reach it by FLUX_URI."""

_WHO: Final = "flux-trio attach exec"


def left_out_of(jobspec: dict[str, Any]) -> str:
    """Return a sentence about what a job needs and does not get here; "" if it needs no such thing.

    Without it the job would wait for ever, or do something else with exit code 0.
    """
    try:
        parsed = parse_jobspec(msgspec.json.encode(jobspec))
    except FormatError:
        return ""  # the core says what is wrong with it
    command = parsed.tasks[0].command
    if len(command) > 1 and (Path(command[0]).name, command[1]) == ("flux", "broker"):
        return f"{_WHO} runs no instances as jobs (flux batch, flux alloc): their brokers need PMI"
    if files := parsed.attribute("system.files"):
        names = ", ".join(files) if isinstance(files, dict) else files
        return f"{_WHO} brings no files to a job: {names!s:.80}"
    if parsed.attribute("system.shell.options.pty"):
        return f"{_WHO} gives tasks no pseudo terminal"
    return ""


def jobspec_in(j: str, more: Mapping[str, str]) -> str:
    """Return the jobspec in J, with `more` in its environment. Raises FormatError."""
    jobspec = parse_jobspec(content(j))
    environment = {**jobspec.environment, **more}
    environment.pop(REMOVED, None)
    json = apply_update(jobspec.to_json(), ENVIRONMENT, environment)
    return msgspec.json.encode(json).decode()
