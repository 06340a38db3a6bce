"""Our services as modules of a live flux-core, and one of the docs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tests.support import tapped
from tests.support.real_flux import NEEDS_FLUX, played

pytestmark = NEEDS_FLUX

GREETER = Path(__file__).parents[2] / "docs" / "howto" / "flux-modules" / "greeter.py"


def test_our_services_run_as_modules_and_are_reloaded_under_a_job(tmp_path: Path) -> None:
    loader = tapped.executable(tmp_path, "module-loader")
    said = played("modules.sh", str(loader), str(GREETER), brokers=1).splitlines()
    assert [line for line in said if not line.startswith("flux-module: ")] == [
        "a job",
        f"salut, user {os.getuid()}",
        "after the reload",
        "sleep RUN",
        "as before",
    ]
    assert [line for line in said if line.startswith("flux-module: ")] == [
        f"flux-module: load {GREETER}: Invalid argument"
    ]


def test_no_job_is_lost_or_run_twice_when_our_modules_are_killed(tmp_path: Path) -> None:
    loader, ran = tapped.executable(tmp_path, "module-loader"), tmp_path / "ran"
    said = played("killed_modules.sh", str(loader), str(ran), brokers=1).splitlines()
    assert Counter(said) == {"COMPLETED": 100}
    assert sorted(map(int, ran.read_text().split())) == list(range(1, 101))
