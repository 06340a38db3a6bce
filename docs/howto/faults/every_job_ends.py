"""A property of a user: no limit lets a job wait for ever."""

from flux_trio.formats import parse_eventlog
from flux_trio.lab import CoresWorld, at_rest


@at_rest("every-job-ends")
def every_job_ends(world: CoresWorld) -> str:
    """When all has come to rest after the faults, each job has ended."""
    store = world.disk.store
    keys = [key for key in store.dir("") if key.startswith("job.") and key.endswith(".eventlog")]
    for key, text in zip(keys, store.lookup(keys), strict=True):
        if isinstance(text, str) and all(each.name != "clean" for each in parse_eventlog(text)):
            return f"{key} has no clean event"
    return ""
