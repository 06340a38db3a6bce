"""Every benchmark works: it measures something and says so in JSON. Its figures fail nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks.__main__ import BENCHMARKS

ROOT: Final = Path(__file__).parents[2]
SMALL: Final = {**os.environ, "BENCH_SMALL": "1"}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_says_what_it_has_measured(name: str) -> None:
    command = [sys.executable, "-m", "tests.benchmarks", name]
    done = subprocess.run(command, env=SMALL, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert figures, "a benchmark that cannot measure here says why"
    for figure in figures:
        assert figure["name"] == name
        assert {"value", "unit", "n"} <= figure.keys()
