"""The catalogue of faults: each is a typed, frozen value that a plan holds.

`Fault` is any of them, in the order of the page docs/reference/faults.md.
"""

from typing import Final

from flux_trio.lab.catalogue.base import (
    BaseFault,
    Holds,
    Lie,
    Moment,
    Strike,
    When,
    Which,
)
from flux_trio.lab.catalogue.breaches import BREACHES, UNBREAKABLE, Breach
from flux_trio.lab.catalogue.broken_clause import BrokenClause
from flux_trio.lab.catalogue.lies import (
    AlsoAsked,
    AlsoSaid,
    ChangedKey,
    ErrorAnswer,
    GrantForeign,
    GrantOverlap,
    NoObject,
    NotStreaming,
    RemovedKey,
    Repeated,
    StrayAnswer,
    UnknownId,
    Withheld,
    WrongType,
)
from flux_trio.lab.catalogue.messages import (
    Delay,
    Drop,
    Duplicate,
    HeldUntil,
    JumpQueue,
    OnTheWay,
    Overtaken,
)
from flux_trio.lab.catalogue.modules import (
    Crash,
    CrashLoop,
    CrashTogether,
    FullInbox,
    Linger,
    Reload,
    Return,
    Slow,
    Unload,
)
from flux_trio.lab.catalogue.nodes import Drain, Exclude, NodesDown, NodesUp, Shrink
from flux_trio.lab.catalogue.peers import (
    Disconnect,
    GuestFlood,
    LateSpeech,
    LoseClient,
    LostReader,
    SecondScheduler,
    WrongRequest,
)
from flux_trio.lab.catalogue.plugins import (
    PluginFault,
    PluginHangs,
    PluginRaises,
    PluginRejects,
    PluginSaysWrong,
    PluginUnavailable,
    PluginWrongPriority,
)
from flux_trio.lab.catalogue.storage import (
    DamagedValue,
    DiskFails,
    DiskFull,
    KillInstance,
    RestartInstance,
    SlowDisk,
    TornCommit,
)
from flux_trio.lab.catalogue.times import ClockDrift, ClockJump, Sleep

AtMoment = (
    Crash
    | Return
    | Unload
    | Reload
    | CrashTogether
    | CrashLoop
    | Linger
    | Slow
    | FullInbox
    | Disconnect
    | LateSpeech
    | SecondScheduler
    | LoseClient
    | LostReader
    | GuestFlood
    | WrongRequest
    | NodesDown
    | NodesUp
    | Drain
    | Shrink
    | Exclude
    | SlowDisk
    | DiskFull
    | DiskFails
    | TornCommit
    | DamagedValue
    | KillInstance
    | RestartInstance
    | ClockJump
    | ClockDrift
    | Sleep
)
"""The faults that strike at a moment."""

InFlight = Delay | Overtaken | HeldUntil | Drop | Duplicate | JumpQueue
"""The faults of a message on its way."""

Plugins = (
    PluginRaises
    | PluginHangs
    | PluginSaysWrong
    | PluginWrongPriority
    | PluginRejects
    | PluginUnavailable
)
"""The faults of a plugin."""

Lies = (
    RemovedKey
    | ChangedKey
    | NoObject
    | WrongType
    | UnknownId
    | Repeated
    | StrayAnswer
    | AlsoSaid
    | AlsoAsked
    | NotStreaming
    | Withheld
    | ErrorAnswer
    | GrantOverlap
    | GrantForeign
    | BrokenClause
)
"""What a party says in breach of a clause."""

UNDRAWN: Final = (AlsoSaid, AlsoAsked, NotStreaming, BrokenClause)
"""The faults that no seed draws: they are for plans that somebody writes."""

Fault = AtMoment | InFlight | Plugins | Lies

__all__ = [
    "BREACHES",
    "UNBREAKABLE",
    "UNDRAWN",
    "AlsoAsked",
    "AlsoSaid",
    "AtMoment",
    "BaseFault",
    "Breach",
    "BrokenClause",
    "ChangedKey",
    "ClockDrift",
    "ClockJump",
    "Crash",
    "CrashLoop",
    "CrashTogether",
    "DamagedValue",
    "Delay",
    "Disconnect",
    "DiskFails",
    "DiskFull",
    "Drain",
    "Drop",
    "Duplicate",
    "ErrorAnswer",
    "Exclude",
    "Fault",
    "FullInbox",
    "GrantForeign",
    "GrantOverlap",
    "GuestFlood",
    "HeldUntil",
    "Holds",
    "InFlight",
    "JumpQueue",
    "KillInstance",
    "LateSpeech",
    "Lie",
    "Lies",
    "Linger",
    "LoseClient",
    "LostReader",
    "Moment",
    "NoObject",
    "NodesDown",
    "NodesUp",
    "NotStreaming",
    "OnTheWay",
    "Overtaken",
    "PluginFault",
    "PluginHangs",
    "PluginRaises",
    "PluginRejects",
    "PluginSaysWrong",
    "PluginUnavailable",
    "PluginWrongPriority",
    "Plugins",
    "Reload",
    "RemovedKey",
    "Repeated",
    "RestartInstance",
    "Return",
    "SecondScheduler",
    "Shrink",
    "Sleep",
    "Slow",
    "SlowDisk",
    "StrayAnswer",
    "Strike",
    "TornCommit",
    "UnknownId",
    "Unload",
    "When",
    "Which",
    "Withheld",
    "WrongRequest",
    "WrongType",
]
