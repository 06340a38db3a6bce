"""Kill an instance COUNT times under load, from SEED: `python -m tests.kill [COUNT] [SEED]`.

One round of ten can be seen again by its seed, as far as other processes allow.
"""

from __future__ import annotations

import random
import sys

from tests.kill.run import Unsound, run_many
from tests.support.surroundings import set_surroundings


def main(words: list[str]) -> int:
    """The exit code: 1 when something was found, which is then printed."""
    count = int(words[0]) if words else 200
    seed = int(words[1]) if len(words) > 1 else random.SystemRandom().randrange(1_000_000)
    try:
        run_many(count, seed)
    except Unsound as found:
        print(found)
        return 1
    return 0


if __name__ == "__main__":
    set_surroundings()  # also with nohup, and under a service manager
    raise SystemExit(main(sys.argv[1:]))
