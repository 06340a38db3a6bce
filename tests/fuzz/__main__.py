"""`python -m tests.fuzz [--socket] [COUNT] [SEED]`: COUNT cases, a million unless given.

Of each thousand 900 are frames at the codec, 97 payloads at services, 3 connections at the door,
and as many at the native one.
As many frames again are for the codec of Flux's own wire.
With --socket all of them come in at the native door of an instance in a process of its own.
The line that is printed before a round has the command that goes on there after Ctrl-C.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random

import trio
from trio.testing import MockClock

from tests.fuzz.at_socket import fuzz_socket
from tests.fuzz.run import (
    check_codec_does_not_grow,
    fuzz_codec,
    fuzz_door,
    fuzz_native,
    fuzz_native_door,
    fuzz_services,
)

ROUND = 20_000  # cases of one seed


def shares(count: int) -> tuple[int, int, int]:
    """How many are for the codec, the services and the door."""
    door = count * 3 // 1000
    services = count * 97 // 1000
    return count - services - door, services, door


def run(count: int, seed: int) -> None:
    """`count` cases from `seed`. Raises Finding."""
    source = Random(seed)
    codec, services, door = shares(count)
    print(f"seed {seed}: codec {dict(fuzz_codec(source, codec).most_common())}", flush=True)
    print(f"seed {seed}: native {dict(fuzz_native(source, count).most_common())}", flush=True)
    answers = trio.run(
        partial(fuzz_services, source, services), clock=MockClock(autojump_threshold=0)
    )
    print(f"seed {seed}: answers by errno {dict(answers.most_common())}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        trio.run(fuzz_door, source, door, Path(directory))
        trio.run(fuzz_native_door, source, door, Path(directory))


def main(count: int, seed: int) -> None:
    began = time.monotonic()
    for fuzz in (fuzz_codec, fuzz_native):
        check_codec_does_not_grow(fuzz, Random(seed), 5000)
    for start in range(0, count, ROUND):
        of_round = seed + start // ROUND
        print(f"from here: make fuzz-wire COUNT={count - start} SEED={of_round}", flush=True)
        run(min(ROUND, count - start), of_round)
    print(
        f"{count} cases and {count} native frames in {time.monotonic() - began:.0f} s: no finding"
    )


if __name__ == "__main__":
    at_socket = "--socket" in sys.argv
    given = [int(each) for each in sys.argv[1:] if each != "--socket"]
    count, seed = given[0] if given else 1_000_000, given[1] if len(given) > 1 else None
    seed = secrets.randbits(32) if seed is None else seed
    if at_socket:
        print(f"again: make fuzz-wire SOCKET=1 COUNT={count} SEED={seed}", flush=True)
        fuzz_socket(Random(seed), count)
    else:
        main(count, seed)
