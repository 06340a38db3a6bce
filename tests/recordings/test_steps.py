"""Our commands against real flux-core's, step by step: exit code, standard error and output.

Each scenario is played as it was typed: our commands, in this process, ask an instance that
listens and only pretends to run jobs. Ids are given the labels of the recording. The recordings
kept the errors of commands that fail, and output where it matters; of the others the exit code is
compared, and that a submission prints the ids of its jobs.

Not played: what no command of ours does (`tests.support.specials`, `touch`, `flux python`); 04,
which needs the real executor; and 34, since the classic edition of RFC 33 has no virtual queues.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import click.testing
import pytest
import trio
from trio.testing import MockClock

from flux_trio.cli import main
from flux_trio.config import Config, ExecConfig, JobManagerConfig, PerilogConfig, SchedConfig
from flux_trio.cores.job_manager.calls import User
from flux_trio.formats import format_fluid, parse_fluid
from flux_trio.instance import Surroundings, open_instance
from tests.support.comparing import BEHAVIOUR, SIMULATED, given_of, our_config
from tests.support.perilog import Acting
from tests.support.recordings import (
    EVENTS,
    MODULES,
    Player,
    Recording,
    Special,
    StepInfo,
    load_recording,
)
from tests.support.specials import Background, nothing, rpcs, specials

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


SCENARIOS = [f"{n:02}" for n in (*range(1, 4), *range(5, 34), *range(35, 46))]
STOPS = "# shut the instance down"


@dataclass(frozen=True)
class Different:
    """A step of a scenario where we say something else, and why."""

    scenario: str
    step: str
    ours: Said
    why: str


# --- what may differ

AT_INGEST = "0.88 was told to ask the scheduler before it takes a job; here it is denied later"
ENDS_JOBS = "0.88 cancels running jobs at an orderly end of the instance; here they go on"
IN_MINUTES = "61 minutes are not an hour: rounded, the refusal contradicts itself"
ACCESS = "0.88 takes jobs that RFC 33 has refused"

DIFFERENT = [
    *(
        Different("07", f"flux submit {options} true", Said(), AT_INGEST)
        for options in (
            "-n3",
            "-N2 -n2",
            "-n1 -g1",
            "-n1 --requires=gpunode",
            "-n1 --requires=host:nosuch",
        )
    ),
    Different(
        "35",
        "flux submit -q batch -t 61m -n1 --setattr=system.exec.test.run_duration=0.1s true",
        Said(
            1,
            "flux-trio submit: ERROR: "
            "requested duration (61m) exceeds policy limit of 1h for queue batch",
        ),
        IN_MINUTES,
    ),
    Different(
        "36",
        "flux submit -q closed -n1 --setattr=system.exec.test.run_duration=0.1s true",
        Said(1, "flux-trio submit: ERROR: user root has no access to queue closed", ""),
        ACCESS,
    ),
    Different(
        "43",
        "flux queue status -v",
        Said(
            stdout="Job submission is disabled: closed for restart\nScheduling is started\n"
            "0 alloc requests queued\n1 alloc requests pending to scheduler\n1 running jobs"
        ),
        ENDS_JOBS,
    ),
]

# Steps that are not played, with what they would need.
UNPLAYED = {
    # frees wait for the next scheduler (readings: No scheduler, job ends), so A is not clean yet
    "15": ["flux job wait-event -t 15 {A} clean"],
    "18": ["flux module list | grep -c sched-simple"],  # the shell's exit code
    # A is refused here, and no command submits B
    "36": ["flux job wait-event -t 15 {A} clean", "flux job wait-event -t 15 {B} clean"],
    "39": ["touch /tmp/rec-fail-prolog", "rm -f /tmp/rec-fail-prolog"],  # no prolog fails here
}


# --- what instances are like


async def root(_userid: int) -> User:
    return User("root")


def simulated(**sched: Any) -> Config:
    return Config(exec=ExecConfig(simulate=True), sched=SchedConfig(**sched))


def config_of(recording: Recording) -> Config:
    """0.88 takes two queues without a default queue (36)."""
    theirs = recording.config
    match recording.name[:2]:
        case "13":  # its sched-fifo makes estimates
            return simulated(policy="conservative")
        case "16":
            return simulated(mode="limited", limit=2)
        case "33" | "35":
            return our_config(theirs)
        case "36":
            policy = {"jobspec": {"defaults": {"system": {"queue": "open"}}}}
            return our_config(theirs | {"policy": policy})
        case "39":
            command = PerilogConfig(["prolog or epilog"])
            manager = JobManagerConfig([], command, command)
            return Config(exec=ExecConfig(simulate=True), job_manager=manager)
    return SIMULATED


def surroundings(recording: Recording) -> Surroundings:
    """In 41 0.88's scheduler was told to refuse; ours does for an instance that ends soon."""
    now = time.time()  # which the commands ask too
    given = replace(given_of(recording), epoch=now, listen=True, users=root)
    match recording.name[:2]:
        case "39":
            return replace(given, plugins=[Acting({"seconds": 0.3}, {"seconds": 0.3})])
        case "41":
            return replace(given, inventory=given.inventory.with_times(0.0, now + 60))
    return given


def specials_of(recording: Recording, stack: AsyncExitStack) -> dict[str, Special]:
    """The steps that are not typed."""
    special = specials(Background(stack)) | rpcs(recording)
    typed = ("flux queue", "flux cancel", "flux job", "flux resource")
    special = {step: play for step, play in special.items() if not step.startswith(typed)}
    unplayed = UNPLAYED.get(recording.name[:2], [])
    return special | dict.fromkeys(unplayed, nothing)


# --- the comparison


@pytest.mark.parametrize("name", SCENARIOS)
async def test_commands_say_what_those_of_flux_core_say(
    name: str, autojump_clock: MockClock
) -> None:
    recording = load_recording(name)
    given = surroundings(recording)
    different = {
        tuple(shlex.split(each.step)): each.ours for each in DIFFERENT if each.scenario == name
    }
    async with AsyncExitStack() as stack:
        typist = Typist(recording, autojump_clock, specials_of(recording, stack))
        with trio.fail_after(1000):
            while recording.steps:
                now = replace(given, epoch=given.epoch + trio.current_time())
                async with (
                    open_instance(config_of(recording), now) as instance,
                    instance.connect() as client,
                ):
                    await typist.play(instance, client, until=STOPS)
    for words, theirs, ours in typist.said:
        expected = different.pop(tuple(words), theirs)  # each once: a second time it must be equal
        assert ours == expected, shlex.join(words)
    assert not different, "no such step"


@pytest.mark.parametrize("each", DIFFERENT, ids=lambda each: f"{each.scenario} {each.step}")
def test_what_may_differ_does(each: Different) -> None:
    recording = load_recording(each.scenario)
    theirs = [
        theirs_as_ours(shlex.split(step), info)
        for step, info in zip(recording.steps, recording.step_info, strict=True)
        if step == each.step
    ]
    assert theirs, "no such step"
    assert each.ours not in theirs
