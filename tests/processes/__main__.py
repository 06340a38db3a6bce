"""`python -m tests.processes A:B`: play the seeds from A up to B, without B, on two processes."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from tests.processes.worlds import play


def problems_of(seed: int) -> tuple[str, ...]:
    """Return what was wrong in the world of a seed."""
    return play(seed).problems


def main(text: str) -> int:
    """Print the seeds whose worlds break a property; return 1 if there is one."""
    begin, end = map(int, text.split(":"))
    broken = 0
    with ProcessPoolExecutor(2) as pool:
        for seed, problems in enumerate(pool.map(problems_of, range(begin, end)), begin):
            if problems:
                broken += 1
                print(f"seed {seed}:", *problems, sep="\n  ", flush=True)
    print(f"{end - begin} worlds, {broken} with a broken property")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
