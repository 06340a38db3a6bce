"""Each known departure of flux-core 0.88 is shown by a script that its maintainers can run.

A script ends with 1 while flux-core departs; one that ends with 0 says that an entry can go.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.real.conformance.reasons import FLUXION_SCRIPTS
from tests.support.live_scheduling import FLUXION, FLUXION_MODULES, fluxion_path
from tests.support.real_flux import NEEDS_FLUX, REAL, STORY_S_MAX

pytestmark = NEEDS_FLUX

SHOWN = {
    "release-names-all-ranks.sh": [r'"ranks":"all"'],
    "expiration-is-no-integer.sh": [r'"expiration": \d+\.\d+', r'"expiration":\d+\.\d+'],
    "free-without-release.sh": [r"start exception free clean"],
    "finish-without-release.sh": [r"finish exception free clean"],
    "beyond-the-limit.sh": [r"tx > sched\.cancel tx > sched\.alloc rx < sched\.alloc"],
    "long-error-text.sh": [r"unsatisfiable request.{60}"],
    "disconnect-has-a-matchtag.py": [r"matchtag [1-9]"],
    "success-twice.sh": [r"[1-9]\d* jobs with a second SUCCESS"],
    "alloc-answered-with-enosys.sh": [r"sched\.alloc \[0\] ENOSYS"],
    "start-answered-with-enosys.sh": [r"job-exec\.start \[0\] ENOSYS"],
    "exception-without-note.py": [r"no exception in \d+ events"],
    "finish-twice.sh": [r"[1-9]\d* jobs with a second finish"],
    "status-of-a-canceled-job.sh": [r'"status":256'],
    "eventlog-is-rewritten.sh": [r"flags 0 32"],
    "free-before-ready.py": [r"0 sched\.free"],
    "r-of-a-job-that-waits.sh": [r"priority flux-restart priority $"],
    "epilog-never-finishes.sh": [r"epilog-start exception prolog-finish free clean"],
}
"""What each script says that it got."""


OF_FLUXION = {
    "no-nslots.sh": [r'"version": ?1'],
    "alloc-answered-with-enosys.sh": [r"sched\.alloc \[0\] ENOSYS"],
    "denied-while-drained.sh": [r"^F .*unsatisfiable"],
}
"""The same of fluxion's."""


@pytest.mark.skipif(
    None in map(fluxion_path, FLUXION), reason=f"no modules of fluxion in ${FLUXION_MODULES}"
)
@pytest.mark.parametrize("script", OF_FLUXION)
def test_departure_of_fluxion_is_shown_by_its_script(script: str) -> None:
    _is_shown(["-s", "2", str(REAL / "departures" / "fluxion" / script)], OF_FLUXION[script])


@pytest.mark.parametrize("script", SHOWN)
def test_departure_is_shown_by_its_script(script: str) -> None:
    interpreter = ["flux", "python"] if script.endswith(".py") else []
    _is_shown([*interpreter, str(REAL / "departures" / script)], SHOWN[script])


def _is_shown(command: list[str], shown: list[str]) -> None:
    done = subprocess.run(
        ["flux", "start", *command],
        capture_output=True,
        timeout=STORY_S_MAX,
        check=False,
        text=True,
    )
    expected = re.findall(r"^expected: (.+)", done.stdout, re.MULTILINE)
    got = re.findall(r"^got: +(.+)", done.stdout, re.MULTILINE)
    assert len(expected) == len(got) == len(shown), done.stdout + done.stderr
    for said, wanted in zip(got, shown, strict=True):
        assert re.search(wanted, said)
    assert done.returncode == 1, done.stderr


def test_every_script_is_played() -> None:
    scripts = {path.name for path in (REAL / "departures").glob("*.*")} - {"said.sh"}
    assert scripts == SHOWN.keys()
    scripts = {path.name for path in (REAL / "departures" / "fluxion").iterdir()} - {"loaded.sh"}
    assert scripts == OF_FLUXION.keys() == set(FLUXION_SCRIPTS.values())
