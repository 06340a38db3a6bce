"""A process in which one mistake is planted, and which explores small worlds.

It is as `tests.planter.mistakes.worker`, but that a seed is the place of
one of SMALL_WORLDS: each is explored until STATES_MAX states are met, or a property is broken.
"""

from __future__ import annotations

from tests.planter.mistakes.worker import HANGS, WORLD_S, Hangs, Task, limit_time, main


def search_worlds(task: Task) -> tuple[int, str, str]:
    """Explore small worlds as `make explore` does."""
    from tests.explore.search import Search
    from tests.planter.mistakes.small_worlds import SMALL_WORLDS, STATES_MAX

    worlds = list(SMALL_WORLDS.items())
    for place in range(task.first, task.end):
        if place in task.without:
            continue
        name, plan = worlds[place]
        limit_time()
        try:
            broken = Search(plan).run(STATES_MAX).broken  # without the rules it gets further
        except Hangs:
            return place, HANGS, f"{name}, more than {WORLD_S:g} s"
        if broken is not None:
            return place, broken.name, f"{name}, {len(broken.path)} steps: {broken.found}"[:300]
    return task.end - 1, "", ""


if __name__ == "__main__":
    main(search_worlds)
