"""The scheduler: RFC 27 and RFC 28 as a scheduler speaks them, over a policy of `policies`.

`SchedCore` is the whole of its decisions; `run` serves the `sched` service with it.
"""

from flux_trio.services.sched.core import SchedCore
from flux_trio.services.sched.service import run

__all__ = ["SchedCore", "run"]
