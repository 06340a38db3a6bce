"""Plays one of flux-core's test scripts in a setting."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

from tests.real.examiner.tap import Outcome, read

Setting = Literal["core", "none", "ours"]

HERE: Final = Path(__file__).parent
FILE_S_MAX: Final = 900.0
END_S_MAX: Final = 20.0
"""So long an instance may take to end, once a script has taken too long."""


def play(file: str, setting: Setting, source: Path, where: Path) -> dict[str, Outcome]:
    """Return the outcome of each case of a script, which leaves its files in `where`.

    `source` is a tree of flux-core's source in which `make check TESTS=` was run. What the commands
    of a script print stands in `NAME.output`, if a case fails.
    """
    flux = shutil.which("flux")
    if flux is None:
        raise FileNotFoundError("flux-core's `flux` is not on PATH")
    python = subprocess.run(
        [flux, "python", "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    environ = {key: word for key, word in os.environ.items() if not key.startswith("FLUX_")}
    environ |= {
        "EXAMINED_FLUX": flux,
        "EXAMINED_PYTHON": sys.executable,
        "EXAMINED_START": str(HERE / "starting.py"),
        "EXAMINED_SETTING": setting,
        "FLUX_TEST_INSTALLED_PATH": str(HERE),
        "FLUX_BUILD_DIR": str(source),
        "FLUX_SOURCE_DIR": str(source),
        "FLUX_TESTS_LOGFILE": "t",
        # `python3` of the scripts is to be that of flux-core's bindings
        "PATH": f"{HERE}:{Path(python).parent}:{environ['PATH']}",
    }
    where.mkdir(parents=True, exist_ok=True)
    printed = where / f"{file}.{setting}"
    with printed.open("w") as told:
        script = subprocess.Popen(
            ["sh", str(source / "t" / file), "--logfile"],
            cwd=where,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            script.wait(FILE_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(script.pid, signal.SIGTERM)
            try:
                script.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(script.pid, signal.SIGKILL)
                script.wait()
    return read(printed.read_text(errors="replace").splitlines())
