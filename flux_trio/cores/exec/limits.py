"""Limits of processes: flux-core's shell option `rlimit`, soft limits by name. Pure.

The option is an object such as `{"nofile": 1024, "core": -1}`; -1 means no limit.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from flux_trio.formats import FormatError, Jobspec

RLIMIT: Final = "system.shell.options.rlimit"
UNLIMITED: Final = -1
LIMITS: Final = (
    "as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc", "ofile",
    "rss", "rtprio", "rttime", "sigpending", "stack",
)  # fmt: skip

_Limit = Annotated[int, msgspec.Meta(ge=UNLIMITED, le=(1 << 63) - 1)]


def limits_of(jobspec: Jobspec) -> dict[str, int]:
    """Return the soft limits that a jobspec asks for. Raises FormatError."""
    value = jobspec.attribute(RLIMIT)
    if value is None:
        return {}
    try:
        limits = msgspec.convert(value, dict[str, _Limit])
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at(RLIMIT) from None
    for name in limits:
        if name not in LIMITS:
            raise FormatError(f"names of limits ({', '.join(LIMITS)})", name, RLIMIT)
    return limits
