"""The scheduler: RFC 27 and RFC 28 as a scheduler speaks them, over a policy of `policies`.

`SchedCore` is the whole of its decisions.
"""

from flux_trio.cores.sched.core import SchedCore

__all__ = ["SchedCore"]
