"""Standard streams from and to files, as the shell options `input` and `output` say. Pure.

`output.stdout` and `output.stderr` are {"type": "file", "path"}; without `output.stderr` errors go
to the file for output. A path may have the tags of `templates`. `output.mode` says whether a file
is emptied first. Left out: labels.
"""

from __future__ import annotations

from typing import Final

from flux_trio.formats import FormatError, Jobspec

OUTPUT_MODE: Final = "system.shell.options.output.mode"
_PLACES: Final = (("input", "stdin"), ("output", "stdout"), ("output", "stderr"))


def redirects_of(jobspec: Jobspec) -> dict[str, str]:
    """Return the path template of each stream that has a file."""
    found = {}
    for direction, stream in _PLACES:
        value = jobspec.attribute(f"system.shell.options.{direction}.{stream}")
        if isinstance(value, dict) and value.get("type") == "file":
            path = value.get("path")
            if isinstance(path, str) and path:
                found[stream] = path
    if "stdout" in found:
        found.setdefault("stderr", found["stdout"])
    return found


def takes_input(jobspec: Jobspec) -> bool:
    """Return whether the tasks read the input that commands send to the job, as in flux-core."""
    value = jobspec.attribute("system.shell.options.input.stdin")
    return isinstance(value, dict) and value.get("type") == "service"


def appends(jobspec: Jobspec) -> bool:
    """Return whether output is appended to what the files hold. Raises FormatError."""
    mode = jobspec.attribute(OUTPUT_MODE)
    if mode not in (None, "append", "truncate"):
        raise FormatError("append or truncate", mode, OUTPUT_MODE)
    return mode == "append"
