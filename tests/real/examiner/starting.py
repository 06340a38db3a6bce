"""`flux start` of an examination: starts flux-trio, or a command with no instance at all.

The options of flux-core's `flux start` become those of `flux-trio start`. What only says how
flux-core bootstraps and tests its brokers says nothing here, and is left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import tomli_w

from flux_trio.formats import Idset

BOOTSTRAP: Final = "bootstrap"  # the table that says how brokers find each other
SHELL: Final = "/bin/sh"


def options(words: list[str]) -> argparse.Namespace:
    """Return the options of `flux start`, and its command as `command`."""
    parser = argparse.ArgumentParser(prog="flux start", allow_abbrev=False)
    parser.add_argument("-s", "--test-size", type=int)
    parser.add_argument("-c", "--config-path", type=Path)
    parser.add_argument("-S", "--setattr", action="append", default=[])
    parser.add_argument("-o", "--broker-opts", action="append", default=[], nargs="?")
    parser.add_argument("--test-hosts", default="")
    for ignored in ("exit-mode", "exit-timeout", "start-mode", "rundir", "pmi-clique"):
        parser.add_argument(f"--test-{ignored}")
    parser.add_argument("--test-rundir-cleanup", action="store_true")
    parser.add_argument("--wrap", action="append")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(separated(words))


def separated(words: list[str]) -> list[str]:
    """Return the words with attributes in `-o -Sname=value` and `-o,-Sname=value` by themselves."""
    found: list[str] = []
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("-o,"):
            found += word.split(",")[1:]
        elif word != "-o" or not following.startswith("-S"):
            found.append(word)
    return found


def settings(config_path: Path | None) -> dict[str, Any]:
    """Return the tables of a configuration file, or of all the files of a directory."""
    if config_path is None:
        return {}
    files = sorted(config_path.glob("*.toml")) if config_path.is_dir() else [config_path]
    tables: dict[str, Any] = {}
    for file in files:
        for name, table in tomllib.loads(file.read_text()).items():
            tables.setdefault(name, {}).update(table)
    tables.pop(BOOTSTRAP, None)
    return tables


def personality(size: int, hosts: str, where: Path) -> dict[str, Any]:
    """Return the tables for the resources and the scheduler that flux-core's rc1-job.py gives."""
    name = os.environ.get("TEST_UNDER_FLUX_PERSONALITY", "")
    if os.environ.get("TEST_UNDER_FLUX_ACTIVE") != "t" or (name != "job" and not hosts):
        return {}
    tables: dict[str, Any] = {}
    ncores = os.cpu_count() or 1
    encode = ["flux", "R", "encode", f"-r{Idset.of(range(size))}"]
    if name == "job":
        ncores = int(os.environ.get("TEST_UNDER_FLUX_CORES_PER_RANK", "2"))
        mode, _, limit = os.environ.get("TEST_UNDER_FLUX_SCHED_SIMPLE_MODE", "limited=8").partition(
            "="
        )
        tables["sched"] = {"mode": mode, **({"limit": int(limit)} if limit else {})}
    encode += [f"-c{Idset.of(range(ncores))}", *([f"-H{hosts}"] if hosts else [])]
    resources = where / "R"
    resources.write_bytes(subprocess.run(encode, stdout=subprocess.PIPE, check=True).stdout)
    tables["resource"] = {"path": str(resources), "noverify": True}
    return tables


def command_of(words: list[str]) -> list[str]:
    """Return the command as flux-core's broker runs it: by the shell."""
    if not words:
        return []
    command = " ".join(words)
    if (
        os.environ.get("TEST_UNDER_FLUX_NO_JOB_EXEC") == "y"
        and "TEST_UNDER_FLUX_ACTIVE" in os.environ
    ):
        command = f"flux module remove job-exec; {command}"
    return [SHELL, "-c", command]


def main() -> int:
    asked = options(sys.argv[sys.argv.index("start") + 1 :])
    environ = {
        key: word for key, word in os.environ.items() if key != "TEST_UNDER_FLUX_NO_JOB_EXEC"
    }
    if os.environ["EXAMINED_SETTING"] == "none":
        environ.pop("FLUX_URI", None)
        return subprocess.run(command_of(asked.command), env=environ, check=False).returncode
    attributes = dict(each.partition("=")[::2] for each in asked.setattr)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        tables = settings(asked.config_path)
        hosts = asked.test_hosts or attributes.get("hostlist", "")
        # flux-core asks whether a job can ever run only if it is configured
        tables.setdefault("ingest", {}).setdefault("validator", {}).setdefault(
            "plugins", ["jobspec"]
        )
        for key, table in personality(asked.test_size or 1, hosts, where).items():
            tables.setdefault(key, table)
        config = where / "flux-trio.toml"
        config.write_text(tomli_w.dumps(tables))
        start = [sys.executable, "-m", "flux_trio", "start", "--edition=current", f"-c{config}"]
        start += [] if asked.test_size is None or "resource" in tables else [f"-s{asked.test_size}"]
        start += [f"--statedir={attributes['statedir']}"] if "statedir" in attributes else []
        return subprocess.run(
            [*start, *command_of(asked.command)], env=environ, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
