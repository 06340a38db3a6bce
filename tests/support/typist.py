"""Types the steps of a recording: commands of ours, in this process, for an instance that listens.

Each is said as flux-core would say it: ids by the labels of the recording.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import takewhile

import click.testing
import trio
from trio.testing import MockClock

from flux_trio.cli import main
from flux_trio.formats import format_fluid, parse_fluid
from tests.support.comparing import BEHAVIOUR
from tests.support.recordings import EVENTS, MODULES, Player, Recording, Special, StepInfo

OURS = ("submit", "cancel", "jobs", "job", "queue", "update", "resource", "module")
SLOWLY = 0.1  # so that no job ends early because the machine is busy
GROUPS = ("job", "queue", "resource", "module")  # of commands
SED = "s/ [0-9.]*$/ NUMBER/"  # what a step's output went through (13)


@dataclass(frozen=True)
class Said:
    """What a command said; None is what the recording did not keep."""

    rc: int = 0
    stderr: str | None = None
    stdout: str | None = None


def theirs_as_ours(words: list[str], info: StepInfo) -> Said:
    """What flux-core said, with the names that commands have here.

    A command of a group is named in full here. A refused submission says `[Errno N]` there; here it
    has the form of every error.
    """
    stdout = info.stdout or None
    if not info.rc:
        if words[1] == "submit" and info.label:
            stdout = "\n".join(f"{{{label}}}" for label in info.label.split(","))
        return Said(stdout=stdout)
    name = " ".join(words[1:3] if words[1] in GROUPS else words[1:2])
    stderr = re.sub(rf"^flux-{words[1]}: ", f"flux-trio {name}: ", info.stderr)
    return Said(info.rc, re.sub(r"^\[Errno \d+\] ", "flux-trio submit: ERROR: ", stderr), stdout)


def as_typed(words: list[str]) -> list[str]:
    """A step's words up to a pipe or redirection, with our names of modules, without `flux`."""
    options = takewhile(lambda word: not word.startswith(("|", ">")), words[1:])
    return [
        MODULES.get(option, option) for option in options if not option.startswith("queue-depth=")
    ]


def pretending(command: list[str]) -> list[str]:
    """The submission of a job that behaves as its command would if it ran."""
    for words, (seconds, status) in BEHAVIOUR.items():
        if tuple(command[-len(words) :]) == words and "run_duration" not in " ".join(command):
            test = "--setattr=system.exec.test"
            more = [f"{test}.run_duration={seconds}", f"{test}.wait_status={status}"]
            return [command[0], *more, *command[1:]]
    return command


class Typist(Player):
    """Types the steps that are ours; `said` has of each its words, theirs and ours."""

    def __init__(self, recording: Recording, clock: MockClock, special: dict[str, Special]) -> None:
        super().__init__(recording, lambda jobspec: jobspec, special)
        self.said: list[tuple[list[str], Said, Said]] = []
        self._clock = clock
        self._labels = iter([job.label for job in recording.jobs])

    async def _play_step(self, words: list[str], info: StepInfo) -> None:
        if words[0] == "#":
            return
        if words[:3] == ["flux", "job", "wait-event"]:
            await self._wait(*words[-2:])  # in the time of the simulation
            if words[-1] not in EVENTS:
                return  # what only 0.88's shell or a debug event tells
        if words[0] != "flux" or words[1] not in OURS:
            await super()._play_step(words, info)
            return
        if words[1] == "submit" and not info.rc and not self.recording.step_info:
            info.label = info.label or next(self._labels, "")
        theirs = theirs_as_ours(words, info)
        self.said.append((words, theirs, await self._type(words, info, theirs)))

    async def _type(self, words: list[str], info: StepInfo, theirs: Said) -> Said:
        typed = as_typed(words)
        for label in self.ids:
            typed = [word.replace(f"{{{label}}}", self._name(label)) for word in typed]
        if words[1] == "submit":
            typed = pretending(typed)
        result = await self._invoke(typed)
        if words[1] == "submit" and info.label and not result.exit_code:
            for label, line in zip(info.label.split(","), result.stdout.split(), strict=True):
                self.ids[label] = parse_fluid(line)
        stderr = self._with_labels(result.stderr) if result.exit_code else None
        stdout = self._with_labels(result.stdout) if theirs.stdout is not None else None
        if stdout is not None and SED in words:
            stdout = re.sub(" [0-9.]*$", " NUMBER", stdout, flags=re.MULTILINE)
        return Said(result.exit_code, stderr, stdout)

    def _name(self, label: str) -> str:
        return format_fluid(self.ids[label], "f58")

    def _with_labels(self, text: str) -> str:
        for label in self.ids:
            text = text.replace(self._name(label), f"{{{label}}}")
        return text.strip()

    async def _invoke(self, typed: list[str]) -> click.testing.Result:
        """What a command says that runs in a thread; meanwhile time goes on, but slowly."""
        env = {"FLUX_TRIO_URI": self.instance.uri, "FLUX_TRIO_TOKEN": self.instance.owner_token}
        runner = click.testing.CliRunner(env=env)
        self._clock.autojump_threshold, self._clock.rate = math.inf, SLOWLY
        try:
            return await trio.to_thread.run_sync(
                lambda: runner.invoke(main, typed, prog_name="flux-trio")
            )
        finally:
            self._clock.autojump_threshold, self._clock.rate = 0.0, 0.0
