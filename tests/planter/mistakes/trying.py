"""Tries mutants: each in a process of its own, which plays seeds until one breaks a property.

The seeds are played in rounds, more in each: most mistakes are found by the first few, and a run
that is stopped has tried all of them a little. Findings are kept; a later run goes on with the seed
after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Final

import msgspec

from tests.planter.findings import Finding, Findings
from tests.planter.mistakes.forking import Forks
from tests.planter.mistakes.processes import ask
from tests.planter.mistakes.worker import Answer, Task
from tests.planter.mistakes.worlds import PLAIN, Worlds

ROUNDS: Final = (20, 60, 200, 400, 1000)
"""Seeds that have been played at the end of each round, with `seeds_max` at most."""


@dataclass(frozen=True)
class Target:
    """One mistake, and where it is looked for."""

    name: str
    plants: Callable[[], dict[str, str]]
    """Returns the changed files."""
    worlds: Worlds = PLAIN
    seeds_max: int | None = None
    """At most so many seeds, if that is fewer than a `Trial` plays."""


@dataclass
class Trial:
    """Tries targets, at most `seeds_max` seeds each."""

    findings: Findings
    say: Callable[[str], None]
    seeds_max: int
    processes: int = 2
    unsound: Mapping[Worlds, Collection[int]] = field(default_factory=dict)
    """By worlds, the seeds that break a property without a mutant: they prove nothing."""
    worker: str = "tests.planter.mistakes.worker"
    """The module that plays; for another one a seed is the place of one of its worlds."""
    name: Callable[[int], str] = "seed {}".format
    """Returns the name of a seed."""
    rounds: Sequence[int] = ROUNDS
    forks: Forks | None = None
    """Play what they can plant, instead of a process of `worker` for each mutant."""

    def run(self, targets: Sequence[Target]) -> None:
        """Play the rounds; what is found is kept after each mutant."""
        for most in sorted({min(each, self.seeds_max) for each in (*self.rounds, self.seeds_max)}):
            left = [each for each in targets if self._is_due(each, most)]
            if left:
                self._round(left, most)

    def _is_due(self, target: Target, most: int) -> bool:
        found = self.findings.of(target.name)
        return found is None or (not found.by and found.ran < self._end(target, most))

    def _end(self, target: Target, most: int) -> int:
        """Return how many seeds of a target have been played at the end of a round."""
        return most if target.seeds_max is None else min(most, target.seeds_max)

    def _round(self, targets: Sequence[Target], most: int) -> None:
        with ThreadPoolExecutor(self.processes) as pool:
            futures = {
                pool.submit(self._try, each, self._end(each, most)): each for each in targets
            }
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    found = future.result()
                    self.findings.add(found)
                    said = f"{found.by} at {self.name(found.ran - 1)}" if found.by else "alive"
                    place = f"{done}/{len(targets)} to {self.name(most - 1)}"
                    self.say(f"{place} {found.mutant}: {said} ({found.seconds:.1f} s)")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _try(self, target: Target, most: int) -> Finding:
        before = self.findings.of(target.name)
        first, seconds = (0, 0.0) if before is None else (before.ran, before.seconds)
        without = tuple(self.unsound.get(target.worlds, ()))
        task = Task(first, most, target.plants(), without, target.worlds)
        answer = self.forks.play(task) if self.forks else None
        answer = answer or play(task, self.worker)
        return Finding(
            target.name, answer.broken, answer.problem, answer.seed + 1, seconds + answer.seconds
        )


def play(task: Task, worker: str = Trial.worker) -> Answer:
    """Play the seeds of a task in a process of its own."""
    return msgspec.convert(ask(worker, asdict(task)), Answer)
