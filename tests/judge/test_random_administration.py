"""Whatever an administrator does, and whatever lies are told, the judge accuses only those who lie.

Each hour is drawn from one seed, the test's parameter; `--administration 0:200` plays 200 of them.
Each is judged twice: as a trace, and by the process of `flux-trio start --monitor`.
"""

from __future__ import annotations

import io
import random
import re

import pytest
from msgspec.structs import replace

from flux_trio.cli.judge.monitor_process import decode_records, encode_records, watch
from flux_trio.cli.judge.monitoring import BATCH
from flux_trio.judge import Violation, load_clauses
from flux_trio.judge.clauses.registry import ADVICE
from flux_trio.judge.rules import rules_of_instance
from flux_trio.trace import Record
from tests.support.administration import LIARS, Administrator, draw_config, machine
from tests.support.judged import judge
from tests.support.scenarios import Stage, play_on


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, _, last = metafunc.config.getoption("--administration").partition(":")
    metafunc.parametrize("seed", range(int(first), int(last)))


def is_true(violation: Violation) -> bool:
    """Whether a liar is accused, or the producer of a text that a liar sends."""
    party = violation.party
    said_by = violation.record.party if party.endswith("-producer") else party
    return said_by.startswith(LIARS)


@pytest.mark.in_part(3)
def test_nobody_is_accused_of_what_others_do(seed: int, request: pytest.FixtureRequest) -> None:
    edition = request.config.getoption("--edition")
    draw = random.Random(seed)

    async def play(stage: Stage) -> None:
        await Administrator(stage, draw, config.edition_value).work()

    config = replace(draw_config(draw), edition=edition)
    trace = play_on(play, config, seed, machine())
    found = judge(trace, rules_of_instance(edition, load_clauses())).violations
    false = [each for each in found if not is_true(each) and each.clause not in ADVICE]
    assert [f"{v.clause} of {v.party} at {v.record.n}: {v.text}" for v in false] == []
    assert accused_by_the_monitor(trace, edition) <= {each.clause for each in found}


def accused_by_the_monitor(trace: list[Record], edition: str) -> set[str]:
    """The clauses that the process of --monitor says are broken, to which records go in frames."""
    frames = [encode_records(trace[at : at + BATCH], 1) for at in range(0, len(trace), BATCH)]
    said = io.StringIO()
    watch(decode_records(io.BytesIO(b"".join(frames))), said, edition)
    return set(re.findall(r"^(\S+) broken by ", said.getvalue(), re.MULTILINE))
