"""An instance: its services, configuration, clock, store and listening addresses.

`open_instance` starts a whole Flux instance in the calling task's scope and stops it at the end.
The caller passes in everything that differs between production, a test and a simulated run, as
`Surroundings`. Real processes outlive the instance on purpose: they belong to the shell host of the
state directory.
"""

from flux_trio.instance.last_jobs import IDLE_S_MAX, Step, cancel_jobs, end_jobs
from flux_trio.instance.opening import ListenError, error_of_start, open_instance
from flux_trio.instance.running import TAKE_DOWN_S, Instance
from flux_trio.instance.surroundings import (
    MODULES,
    Enclosing,
    Surroundings,
    durable_store,
    more_sinks,
)

__all__ = [
    "IDLE_S_MAX",
    "MODULES",
    "TAKE_DOWN_S",
    "Enclosing",
    "Instance",
    "ListenError",
    "Step",
    "Surroundings",
    "cancel_jobs",
    "durable_store",
    "end_jobs",
    "error_of_start",
    "more_sinks",
    "open_instance",
]
