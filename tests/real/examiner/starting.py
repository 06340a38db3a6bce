"""`flux start` of an examination: starts flux-trio, or a command with no instance at all.

The options of flux-core's `flux start` become those of `flux-trio start`. What only says how
flux-core bootstraps and tests its brokers says nothing here, and is left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
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


def fake_hosts(size: int, hosts: str) -> dict[str, Any]:
    """Return the tables for an instance on hosts of other names, as `--test-hosts` says them."""
    found = re.fullmatch(r"(.*)\[0-\d+\]", hosts)
    if found is None:
        return {}
    return {
        "fake-resources": {
            "nnodes": size,
            "cores-per-node": os.cpu_count() or 1,
            "host-prefix": found.group(1),
        }
    }


def is_personality(attributes: Mapping[str, str], name: str) -> bool:
    """Return whether a script has asked for one of flux-core's rc scripts of tests.

    An instance inside a job has the same environment, but not this attribute.
    """
    return Path(attributes.get("broker.rc1_path", "")).name == f"rc1-{name}.py"


def scheduler() -> dict[str, Any]:
    """Return the table of the scheduler that flux-core's rc1-job.py gives."""
    mode, _, limit = os.environ.get("TEST_UNDER_FLUX_SCHED_SIMPLE_MODE", "limited=8").partition("=")
    return {"mode": mode, **({"limit": int(limit)} if limit else {})}


def beginning(size: int) -> list[str]:
    """Return the commands for the resources that flux-core's rc1-job.py puts into the kvs."""
    ncores = int(os.environ.get("TEST_UNDER_FLUX_CORES_PER_RANK", "2"))
    encode = f"flux R encode -r{Idset.of(range(size))} -c{Idset.of(range(ncores))}"
    commands = [
        f"{encode} | tr -d '\\n' | flux kvs put -r resource.R=-",
        "flux module remove sched",
        "flux module reload resource noverify",
        "flux module load sched",
    ]
    if os.environ.get("TEST_UNDER_FLUX_NO_JOB_EXEC") == "y":
        commands.append("flux module remove job-exec")
    return commands


def command_of(words: list[str], before: Sequence[str] = ()) -> list[str]:
    """Return the command as flux-core's broker runs it, after the commands of its rc1.

    The shell reads a single word; several are a command and its arguments.
    """
    if not words or (not before and len(words) > 1):
        return words
    command = words[0] if len(words) == 1 else shlex.join(words)
    return [SHELL, "-c", "; ".join([*before, command])]


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
        size = asked.test_size or 1
        before: list[str] = []
        if is_personality(attributes, "job"):
            tables.setdefault("sched", scheduler())
            before = beginning(size)
        for key, table in fake_hosts(size, hosts).items():
            tables.setdefault(key, table)
        config = where / "flux-trio.toml"
        config.write_text(tomli_w.dumps(tables))
        start = [sys.executable, "-m", "flux_trio", "start", "--edition=current", f"-c{config}"]
        named = {"resource", "fake-resources"} & tables.keys()
        start += [] if asked.test_size is None or named else [f"-s{asked.test_size}"]
        start += [f"--statedir={attributes['statedir']}"] if "statedir" in attributes else []
        return subprocess.run(  # in a job it has a descriptor for PMI
            [*start, *command_of(asked.command, before)], env=environ, check=False, close_fds=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
