"""The catalogue of faults: each is a typed, frozen value that a plan holds.

A kind of fault is a class with the decorator `fault`; `FAULTS` has all kinds, in the order of the
page docs/reference/faults.md.
"""

from typing import TYPE_CHECKING, TypeAlias, Union

from flux_trio.lab.catalogue import (
    broken_clause,
    lies,
    messages,
    modules,
    nodes,
    peers,
    plugins,
    recovery,
    storage,
    times,
)
from flux_trio.lab.catalogue.base import FAULTS as FAULTS
from flux_trio.lab.catalogue.base import BaseFault as BaseFault
from flux_trio.lab.catalogue.base import Holds as Holds
from flux_trio.lab.catalogue.base import Lie as Lie
from flux_trio.lab.catalogue.base import Strike as Strike
from flux_trio.lab.catalogue.base import is_drawn as is_drawn
from flux_trio.lab.catalogue.breaches import BREACHES as BREACHES
from flux_trio.lab.catalogue.breaches import UNBREAKABLE as UNBREAKABLE
from flux_trio.lab.catalogue.breaches import Breach as Breach
from flux_trio.lab.catalogue.broken_clause import *  # noqa: F403
from flux_trio.lab.catalogue.lies import *  # noqa: F403
from flux_trio.lab.catalogue.messages import *  # noqa: F403
from flux_trio.lab.catalogue.modules import *  # noqa: F403
from flux_trio.lab.catalogue.nodes import *  # noqa: F403
from flux_trio.lab.catalogue.peers import *  # noqa: F403
from flux_trio.lab.catalogue.places import Moment as Moment
from flux_trio.lab.catalogue.places import SentMessage as SentMessage
from flux_trio.lab.catalogue.places import When as When
from flux_trio.lab.catalogue.plugins import *  # noqa: F403
from flux_trio.lab.catalogue.recovery import *  # noqa: F403
from flux_trio.lab.catalogue.storage import *  # noqa: F403
from flux_trio.lab.catalogue.times import *  # noqa: F403

_CHAPTERS = [
    chapter.__name__
    for chapter in (
        *(modules, peers, nodes, storage, recovery, times),
        *(messages, plugins, lies, broken_clause),
    )
]
FAULTS.sort(key=lambda kind: _CHAPTERS.index(kind.__module__))

if TYPE_CHECKING:
    Fault: TypeAlias = BaseFault
else:
    Fault = Union[tuple(FAULTS)]  # noqa: UP007 - the kinds have registered themselves
    """Any fault, as msgspec reads and writes one."""
