"""Every interleaving of a small world: breadth first over the cores, each transition judged.

`Search` goes from a booted world through all that may happen next: a core takes one message or one
timer, or a fault strikes. `WORLDS` are the worlds that come with flux-trio.
"""

from flux_trio.explore.search import Broken, Path, Report, Search
from flux_trio.explore.small_world import SmallWorld, UnsuitablePlan
from flux_trio.explore.telling import tell_path
from flux_trio.explore.worlds import WORLDS

__all__ = [
    "WORLDS",
    "Broken",
    "Path",
    "Report",
    "Search",
    "SmallWorld",
    "UnsuitablePlan",
    "tell_path",
]
