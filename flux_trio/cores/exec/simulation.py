"""How a job is simulated: `attributes.system.exec.test` of a jobspec, as in flux-core's testexec.

Left out: the key `reattach_finish`, which only flux-core's own tests use.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, converted, parse_duration

MOCK_TEXTS: Final = {
    "init": "mock initialization exception generated",
    "starting": "mock starting exception generated",
    "run": "mock run exception generated",
}


class _Test(msgspec.Struct):
    """`attributes.system.exec.test`."""

    run_duration: str | float | None = None
    wait_status: int = 0
    mock_exception: str | None = None
    override: int = 0


class Simulation(msgspec.Struct, frozen=True):
    """How a job is simulated."""

    run_s: float = 0.0
    """Seconds from its start to its end; `inf` to run until it is stopped."""
    until_limit: bool = False
    """`run_s` is the job's time limit: the job ends by itself just in time."""
    status: int = 0
    """The wait(2) status of its end."""
    mock_exception: str | None = None
    """A key of `MOCK_TEXTS`: the phase in which the job fails."""
    override: bool = False
    """The job starts when job-exec.override says so, and ends so if `run_s` is 0."""


def simulation_of(jobspec: dict[str, Any], simulate: bool) -> Simulation | None:
    """Return how the job is simulated; None for a job with processes.

    With `simulate` every job is simulated; it runs until its time limit if its jobspec has no other
    time. Raises FormatError that names the wrong key.
    """
    system = _get(_get(jobspec, "attributes"), "system")
    test = _get(system, "exec").get("test")
    if test is None and not simulate:
        return None
    wanted = converted({} if test is None else test, _Test, _PLACE)
    try:
        if wanted.mock_exception not in (None, *MOCK_TEXTS):
            raise FormatError(
                f"one of {', '.join(MOCK_TEXTS)}", wanted.mock_exception, "mock_exception"
            )
        run_s = None if wanted.run_duration is None else parse_duration(wanted.run_duration)
    except FormatError as error:
        raise error.at(_PLACE) from None
    until_limit = run_s is None
    return Simulation(
        _limit(system) if run_s is None else run_s,
        until_limit,
        wanted.wait_status,
        wanted.mock_exception,
        bool(wanted.override),
    )


_PLACE = "attributes.system.exec.test"


def _get(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _limit(system: dict[str, Any]) -> float:
    duration = system.get("duration", 0)
    return float(duration) if isinstance(duration, (int, float)) else 0.0
