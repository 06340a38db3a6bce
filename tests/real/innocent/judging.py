"""Starts an instance for a story, and asks what each judge says of what was traced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from flux_trio.judge import Judgement
from flux_trio.trace import read_trace
from tests.real.innocent.kinds import Setting, Story
from tests.support import recorded
from tests.support.real_flux import REAL

STORY_S_MAX: Final = 240.0
HELD: Final = '["sh", "-c", "sleep 0.2"]'
CONFIG: Final = """
[resource]
noverify = true
[[resource.config]]
hosts = "node[0-{last}]"
cores = "0-3"
"""
PERILOG: Final = f"""
[job-manager]
plugins = [{{ load = "perilog.so" }}]
[job-manager.prolog]
command = {HELD}
per-rank = true
[job-manager.epilog]
command = {HELD}
per-rank = true
"""
HOUSEKEEPING: Final = f"""
[job-manager.housekeeping]
command = {HELD}
release-after = "0"
"""


class Said(NamedTuple):
    """What one judge says: broken clauses, what is due for ever, and the known departures."""

    broken: dict[str, str]
    due: dict[str, str]
    known: dict[str, int]
    unexplained: tuple[str, ...]
    kept: frozenset[str]


class JudgedStory(NamedTuple):
    """What was played, and what each judge says of it."""

    story: Story
    played: list[dict[str, Any]]
    refused: list[str]
    said: dict[str, Said]

    def contradictions(self) -> list[str]:
        """Return the clauses that one judge says are broken and another one not."""
        broken = {clause for each in self.said.values() for clause in each.broken}
        found = []
        for clause in sorted(broken):
            accuse = [name for name, each in self.said.items() if clause in each.broken]
            do_not = [name for name, each in self.said.items() if clause in each.kept]
            if do_not:
                found.append(f"{clause}: broken for {', '.join(accuse)}, not for {do_not[0]}")
        return found


def config_of(setting: Setting) -> str:
    """Return the configuration of an instance, as TOML."""
    text = CONFIG.format(last=setting.brokers - 1)
    text += PERILOG if setting.has_perilog else ""
    return text + (HOUSEKEEPING if setting.has_housekeeping else "")


def play(seed: int, count: int, number: int, story: Story, directory: Path) -> JudgedStory:
    """Play a story in an instance of its own; return what is said of it."""
    config = directory / "flux.toml"
    config.write_text(config_of(story.setting))
    brokers = story.setting.brokers
    player = [sys.executable, "-m", "tests.real.innocent.play"]
    hosts = f"--test-hosts=node[0-{brokers - 1}]"
    player += [str(seed), str(count), str(number), str(directory)]
    command = ["flux", "start", "-s", str(brokers), hosts, f"--config-path={config}", *player]
    code, said_there = _run(command, directory / "instance.text")
    assert code == 0, f"story {number} of seed {seed}: {said_there[-4000:]}"
    told = json.loads((directory / "played.json").read_text())
    said = {
        "a whole trace": _said_of_trace(directory / "whole.trace"),
        "a trace from the midst": _said_of_trace(directory / "midst.trace"),
        "a pipe": _said_of_json(directory / "pipe.json"),
        "the monitor": _said_of_json(directory / "monitor.json"),
        "the monitor's trace": _said_of_trace(directory / "monitor.trace"),
    }
    return JudgedStory(story, told["played"], told["refused"], said)


def _run(command: list[str], output: Path) -> tuple[int, str]:
    """Run an instance; one that does not end is killed with all that it has started."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=REAL.parents[1], stdout=file, stderr=file, start_new_session=True
        )
        try:
            code = process.wait(STORY_S_MAX)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, output.read_text(errors="replace")


def _said_of_trace(path: Path) -> Said:
    with path.open(encoding="utf-8") as lines:
        judgement: Judgement = recorded.judged_source(read_trace(lines), at_rest=True)
    verdicts = judgement.verdicts.items()
    return Said(
        {each.clause: each.text for each in judgement.violations},
        {each.clause: each.text for each in judgement.debts},
        {each.clause: len(each.violations) for each in judgement.known if each.violations},
        tuple(each.text for each in judgement.unexplained),
        frozenset(clause for clause, verdict in verdicts if verdict.value == "kept"),
    )


def _said_of_json(path: Path) -> Said:
    found = json.loads(path.read_text())
    return Said(
        {each["clause"]: each["text"] for each in found["violations"]},
        {each["clause"]: each["text"] for each in found["debts"]},
        {each["clause"]: each["occurred"] for each in found["known"] if each["occurred"]},
        tuple(each["text"] for each in found["unexplained"]),
        frozenset(each["id"] for each in found["clauses"] if each["verdict"] == "kept"),
    )
