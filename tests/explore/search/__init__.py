"""Every interleaving of a small world: breadth first over the cores, each transition judged.

`Search` goes from a booted world through all that may happen next: a core takes one message or one
timer, or a fault strikes. `WORLDS` are the worlds that come with flux-trio.
"""

from tests.explore.search.search import Broken, Path, Report, Search
from tests.explore.search.small_world import SmallWorld, UnsuitablePlan
from tests.explore.search.telling import tell_path
from tests.explore.search.worlds import WORLDS

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
