"""A process in which one mistake is planted, and which explores a small world with two searches.

The module is as `tests.planter.mistakes.searching`, but that it explores the
first world alone, first as `make explore` does and then with the order of records.
"""

from __future__ import annotations

from tests.planter.mistakes.worker import Task, main


def search_twice(task: Task) -> tuple[int, str, str]:
    """Explore the world with both searches; say what each has found."""
    from tests.explore.in_order import InOrder, Noting
    from tests.planter.mistakes.small_worlds import SMALL_WORLDS

    plan = list(SMALL_WORLDS.values())[task.first]
    broken = [search(plan).run().broken for search in (Noting, InOrder)]
    named = [f"{each.name} after {len(each.path)} steps" for each in broken if each is not None]
    return task.first, ", ".join(named), ""


if __name__ == "__main__":
    main(search_twice)
