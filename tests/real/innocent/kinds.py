"""Acts, states of jobs, and instances; a story is some kinds in an instance."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

STATES: Final = ("pending", "held", "starting", "running", "ending")

AT_JOBS: Final = ("memo", "urgency", "hold", "update", "cancel", "exception", "kill")
"""What somebody does to one of the jobs."""
AT_QUEUES: Final = ("stop", "disable", "limits", "list", "purge", "depend", "unsatisfiable")
"""What somebody does to all queues, or beside the jobs."""
AT_NODES: Final = ("drain", "drain all", "nested")
JOB_MANAGER: Final = "reload job-manager"
RELOADS: Final = (
    *("reload sched", "reload job-exec", "reload job-list", "reload job-info"),
    *("reload job-ingest", "reload resource", JOB_MANAGER, "kill sched"),
)
PAIRS: Final = (
    *("reload sched and job-exec", "reload job-list and job-info"),
    *("reload job-ingest and sched", "reload job-exec and job-list"),
)
ACTS: Final = (*AT_JOBS, *AT_QUEUES, *AT_NODES, *RELOADS, *PAIRS)

_NEVER: Final = {
    # a job that is over, or not yet there, has nothing to change
    *(("kill", state) for state in ("pending", "held", "starting", "ending")),
    *(("update", state) for state in ("starting", "ending")),
    *(("urgency", state) for state in ("starting", "running", "ending")),
    *(("hold", state) for state in ("held", "starting", "running", "ending")),
}
"""Acts that the job manager refuses in a state."""


class Kind(NamedTuple):
    """An act, and the state of the jobs at that time."""

    act: str
    state: str

    def __str__(self) -> str:
        return f"{self.act} x {self.state}"


class Setting(NamedTuple):
    """What an instance has."""

    scheduler: str
    brokers: int
    has_perilog: bool
    has_housekeeping: bool

    @property
    def is_plain(self) -> bool:
        """Whether jobs have neither epilogs nor housekeeping.

        flux-core forgets epilogs when its job manager is loaded again: such a job never ends.
        """
        return not (self.has_perilog or self.has_housekeeping)

    def __str__(self) -> str:
        parts = {"perilog": self.has_perilog, "housekeeping": self.has_housekeeping}
        more = [name for name, has in parts.items() if has]
        return ", ".join((self.scheduler, f"{self.brokers} brokers", *more))


SETTINGS: Final = (
    Setting("sched-simple", 4, has_perilog=True, has_housekeeping=False),
    Setting("sched-fifo", 4, has_perilog=False, has_housekeeping=True),
    Setting("sched-backfill", 4, has_perilog=False, has_housekeeping=False),
    Setting("attach:easy", 4, has_perilog=True, has_housekeeping=False),
    Setting("sched-simple", 2, has_perilog=True, has_housekeeping=True),
    Setting("attach:fifo", 2, has_perilog=False, has_housekeeping=False),
)


class Story(NamedTuple):
    """The kinds that an instance plays, and before which of them each observer begins."""

    setting: Setting
    kinds: tuple[Kind, ...]
    midst: int
    """The kind before which the second trace, and the pipe, begin."""
    joined: int
    """The kind before which the monitor joins."""
    seed: int


def all_kinds() -> list[Kind]:
    """Return every kind there is."""
    found = (Kind(act, state) for act in ACTS for state in STATES)
    return [each for each in found if tuple(each) not in _NEVER]


def draw_stories(seed: int, count: int) -> list[Story]:
    """Return stories with `count` different kinds, every act among them as far as there is room."""
    draw = random.Random(seed)
    every = all_kinds()
    draw.shuffle(every)
    first = {each.act: each for each in reversed(every)}
    chosen = [*first.values(), *(each for each in every if first[each.act] != each)][:count]
    draw.shuffle(chosen)
    plain = [at for at, each in enumerate(SETTINGS) if each.is_plain]
    dealt: list[list[Kind]] = [[] for _ in SETTINGS]
    for kind in sorted(chosen, key=lambda each: each.act != JOB_MANAGER):
        where = plain if kind.act == JOB_MANAGER else range(len(SETTINGS))
        min((dealt[at] for at in where), key=len).append(kind)
    stories = []
    for setting, kinds in zip(SETTINGS, dealt, strict=True):
        draw.shuffle(kinds)
        if kinds:
            midst, joined = (draw.randint(1, max(1, len(kinds) // 2)) for _ in range(2))
            seed = draw.randrange(1 << 31)
            stories.append(Story(setting, tuple(kinds), midst, joined, seed))
    return stories
