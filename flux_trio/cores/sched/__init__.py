"""The scheduler: the scheduler's side of RFC 27 and RFC 28, with a policy of `policies`."""

from flux_trio.cores.sched.core import SchedCore

__all__ = ["SchedCore"]
