"""Build wheel and source archive twice, compare their bytes, and check them: `make dist`.

The time of the files in them is that of the last commit (SOURCE_DATE_EPOCH), so that whoever builds
the same commit gets the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(target: Path) -> dict[str, bytes]:
    """Build into `target`; the archives by name."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    command = [sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_bytes() for path in target.iterdir()}


def commit_time() -> str:
    """Seconds since the Unix epoch, as text."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(target: Path) -> None:
    """Leave the archives in `target`, or end with an error."""
    with tempfile.TemporaryDirectory() as name:
        first, second = Path(name, "first"), Path(name, "second")
        archives = build(first)
        different = sorted(name for name, data in build(second).items() if archives[name] != data)
        if different or len(archives) != 2:
            sys.exit(f"not the same bytes when built again: {different}")
        checked = [str(path) for path in first.iterdir()]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *checked], check=True)
        shutil.copytree(first, target, dirs_exist_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
