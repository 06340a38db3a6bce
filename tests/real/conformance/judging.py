"""Plays the stories of a testee, and says of each clause whether each party has kept it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flux_trio.editions import CLASSIC, CURRENT
from flux_trio.judge import Judgement, judge_trace, load_clauses
from flux_trio.judge.clauses.registry import Clause
from flux_trio.judge.engine.monitor import Verdict
from flux_trio.judge.rules import rules_of
from flux_trio.trace import read_trace
from tests.real.conformance.reasons import departure_of
from tests.real.conformance.results import Broken, Examined, Found, today
from tests.real.conformance.testees import (
    PRINTED,
    SEED,
    TRACED,
    Examinee,
    command_of,
    stories,
    traced_modules,
)
from tests.real.innocent.kinds import Kind, Setting
from tests.support.live_scheduling import OWN_SOCKET
from tests.support.real_flux import REAL

INSTANCE_S_MAX: Final = 400.0
CLAUSES: Final = load_clauses()

PARTIES: Final = {
    "scheduler": "scheduler",
    "R-producer": "scheduler",
    "job-manager": "job-manager",
    "queue-config": "job-manager",
    "eventlog-writer": "job-manager",
    "exec": "job-exec",
    "resource": "resource",
}
"""Whose clause it is, by the role that the registry names. Clauses of other roles are not shown."""


def party_of(clause: Clause, breaker: str = "") -> str | None:
    """Return whose clause it is; one of another role is shown if the module `breaker` breaks it."""
    if breaker in TRACED:
        return breaker
    party = PARTIES.get(clause.violator or clause.actor)
    return "scheduler" if party is None and "sched" in breaker else party


def examine(testee: Examinee, keep: Path | None = None) -> Examined:
    """Play all stories with a testee, and judge them; a directory `keep` gets their traces."""
    found = Examined(today())
    for number, (setting, kinds) in enumerate(stories()):
        with tempfile.TemporaryDirectory() as directory:
            traces = _play(found, testee, setting, kinds, Path(directory))
            for trace in traces if keep else ():
                name = f"{testee.name}-{number}-{trace.name}".replace(", ", "-").replace(" ", "-")
                shutil.copy(trace, keep / name)
    return found


def _play(
    found: Examined, testee: Examinee, setting: Setting, kinds: tuple[Kind, ...], directory: Path
) -> list[Path]:
    """Play a story, take in what it shows, and return its traces."""
    start, names = command_of(testee, setting, directory)
    told = {
        "scheduler": testee.scheduler,
        "kinds": kinds,
        "seed": SEED,
        "nodes": setting.brokers,
        "traced": [] if testee.traces_itself else traced_modules(testee),
        "lacks": ["job-info"] if testee.is_ours else [],
    }
    (directory / "told.json").write_text(json.dumps(told))
    program = [sys.executable, "-m", "tests.real.conformance.playing", str(directory)]
    code, said = _run([*start, *program], directory, testee)
    played = directory / "played.json"
    if played.exists():
        done = json.loads(played.read_text())
        found.wrong |= done["wrong"]
        found.njobs += done["njobs"]
    if code or not played.exists():
        found.wrong[f"the instance ({setting})"] = f"ended with {code}: {said[-300:]}"
    traces = [directory / name for name in names if (directory / name).exists()]
    for trace in traces:
        _judge(found, testee, trace, is_only=len(names) == 1)
    return traces


def _judge(found: Examined, testee: Examinee, trace: Path, *, is_only: bool) -> None:
    """Take in what a trace shows: of a scheduler in its own process only the printed one."""
    edition = testee.edition or CURRENT.name
    with trace.open(encoding="utf-8") as lines:
        source = read_trace(lines)
        is_classic = edition == CLASSIC.name
        rules = rules_of(edition)
        judgement = judge_trace(source, rules, CLAUSES, classic=is_classic, at_rest=True)
    found.nrecords += judgement.nrecords
    for party, each in _by_party(judgement):
        if is_only or (party == "scheduler") == (trace.name == PRINTED):
            found.parties.setdefault(party, Found()).add(each)


def _run(command: list[str], directory: Path, testee: Examinee) -> tuple[int, str]:
    """Run an instance; one that does not end is killed with all that it has started."""
    output = directory / "instance.text"
    environ = dict(os.environ)
    if testee.is_ours:
        environ["FLUX_URI"] = f"local://{directory}/s/local-0"
        if testee.edition == CLASSIC.name:
            environ[OWN_SOCKET] = f"unix://{directory}/s/local"
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=REAL.parents[1],
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=environ,
        )
        try:
            code = process.wait(INSTANCE_S_MAX)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, output.read_text(errors="replace")


def _by_party(judgement: Judgement) -> Iterator[tuple[str, Found]]:
    broken: dict[str, list[tuple[str, Broken]]] = defaultdict(list)
    for violation in judgement.violations:
        known = departure_of(violation)
        each = Broken(violation.clause, 1, violation.text, known.why if known else "")
        broken[violation.clause].append((violation.party, each))
    found: dict[str, Found] = defaultdict(Found)
    for clause, verdict in judgement.verdicts.items():
        if clause not in CLAUSES:
            continue  # an invariant
        for breaker, each in broken[clause]:
            party = party_of(CLAUSES[clause], breaker)
            if party is not None:
                found[party].add(Found(broken=[each], all={clause}))
        party = party_of(CLAUSES[clause])
        if party is not None:
            kept = {clause} if verdict is Verdict.KEPT else set()
            found[party].add(Found(kept=kept, all={clause}))
    yield from found.items()
