"""PMI, by which the tasks of a job find each other: whether a job has it, and with what. Pure.

The shell host speaks PMI-1's wire protocol (RFC 13). The shell option `pmi` is a list of names, as
in flux-core, whose shell takes `pmi1` and `pmi2` for `simple`. What else is asked for there, PMIx
above all, is refused: each task would run by itself, with exit code 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flux_trio.editions import exec_requests
from flux_trio.formats import FormatError, Jobspec, format_pmi_taskmap
from flux_trio.shell.protocol import PMI_VALUE_CHARS_MAX

OPTION: Final = "system.shell.options.pmi"
_SPOKEN: Final = {"simple", "pmi1", "pmi2"}
_OFF: Final = "off"


def has_pmi(jobspec: Jobspec) -> bool:
    """Return whether the tasks have PMI. Raises FormatError for another PMI than ours."""
    value = jobspec.attribute(OPTION)
    if value is None or (isinstance(value, str) and _SPOKEN & set(value.split(","))):
        return True
    if value == _OFF:
        return False
    expected = "simple, pmi1 or pmi2, which are PMI-1, or off: there is no other PMI here"
    raise FormatError(expected, value, OPTION)


def pmi_values(path: str, nodes: Sequence[int]) -> dict[str, str]:
    """Return what the tasks of a job find in PMI from the start, as in flux-core (RFC 13).

    `path` has the jobs around them, the outermost first; so it tells how deep they are. `nodes` has
    the node of each task.
    """
    taskmap = exec_requests.taskmap(nodes)["taskmap"]
    values = {
        "flux.instance-level": str(path.count("/")),
        "flux.taskmap": msgspec.json.encode(taskmap).decode(),
        "PMI_process_mapping": format_pmi_taskmap(nodes),
    }
    return {key: value for key, value in values.items() if len(value) <= PMI_VALUE_CHARS_MAX}
