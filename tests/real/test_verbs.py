"""Flux's own, unmodified programs say the same to flux-trio as to flux-core.

`story.txt` has the commands; both instances play it, with bad input among them. Each difference is
in `differences.toml` with its reason. One that is not there fails, and so does one that is there
and has gone: the list may only shrink. What differs by chance, such as times, is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.real.verbs.comparing import CommandResult, differences, read
from tests.support.real_flux import NEEDS_FLUX, REAL

pytestmark = NEEDS_FLUX

VERBS = REAL / "verbs"
PLAYING = [sys.executable, str(VERBS / "playing.py")]
NODES = "4"
STORY_S_MAX = 3600.0
CHANCE = (
    "flux job timeleft JOB",
    "flux uptime",
    "flux run -l -n2 echo c",
    r"flux run -n2 sh -c echo\ $FLUX_TASK_RANK\ of\ $FLUX_JOB_SIZE",
)
"""Commands of the list whose answers may also be equal, by chance."""


def played(command: list[str], **environ: str) -> list[tuple[str, CommandResult]]:
    done = subprocess.run(
        command,
        cwd=REAL.parents[1],
        env={**os.environ, **environ},
        capture_output=True,
        timeout=STORY_S_MAX,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return read(iter(done.stdout.splitlines()))


@pytest.mark.timeout(2 * STORY_S_MAX)
def test_each_difference_is_listed_and_no_other(tmp_path: Path) -> None:
    core = played(["flux", "start", "-s", NODES, *PLAYING])
    config = tmp_path / "current.toml"
    config.write_text('edition = "current"\n')
    statedir = tmp_path / "s"
    start = [sys.executable, "-m", "flux_trio", "start", "-s", NODES, "-c", str(config)]
    ours = played(
        [*start, "--statedir", str(statedir), *PLAYING], FLUX_URI=f"local://{statedir}/local-0"
    )
    found: dict[str, set[str]] = {}
    for place, keys in differences(core, ours).items():
        found.setdefault(place.partition(" ")[2], set()).update(keys)
    listed = {
        line: set(entry["differs"])
        for line, entry in tomllib.loads((VERBS / "differences.toml").read_text()).items()
    }
    told = {line: keys for line, keys in found.items() if not keys <= listed.get(line, set())}
    assert told == {}, "not on the list"
    gone = {line for line in listed if line not in found and line not in CHANCE}
    assert gone == set(), "no difference any more: take it off the list"
