"""An exec service that is put down and taken up at any moment does what it would have done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flux_trio.config import ExecConfig
from flux_trio.cores.exec.core import ExecCore
from flux_trio.cores.exec.vocabulary import (
    Chunk,
    OutputRead,
    ReadOutput,
    ShellConnected,
    ShellFailed,
    ShellLost,
)
from flux_trio.cores.turns import ClearTimer, ClockStepped, SetTimer, TimerFired
from flux_trio.formats import Event, format_eventlog
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.shell.protocol import (
    Done,
    Failure,
    Fed,
    Listing,
    Postponed,
    Started,
    TaskSize,
    Unknown,
)
from tests.support.asking import OWNER_USERID, asked, gone, service_back
from tests.support.eventlogs import inactive, pending
from tests.support.exec_script import (
    MANAGER,
    ExecScript,
    job_exception,
    job_key,
    jobspec,
    journal,
    offline,
    online,
    resources,
    start_request,
    stored_release,
    streamed,
)
from tests.support.reborn_twin import Twins

pytestmark = pytest.mark.gate

KINDS = ["true", "true", "input", "signal", "simulated"]
OPTIONS: dict[str, dict[str, Any]] = {
    "input": {"input": {"stdin": {"type": "service"}}},
    "signal": {"signal": {"signum": 10, "timeleft": 2}},
}
FAILURE = Failure(0, "no such command")
JOBS = st.integers(1, 2)
START = 1e6  # seconds since the Unix epoch
OUTPUT = b"a line of output\n" * 3


class TwinScript(ExecScript):
    """The script with twins in place of its core, whose questions can be made to wait."""

    def __init__(self, *, simulate: bool) -> None:
        config = ExecConfig(simulate=simulate, output_limit="40")
        self.core: Any = Twins(lambda: ExecCore(config, has_shell=True))
        self.now = START
        self.kvs = {}
        self.down = {}
        self.errors = {}
        self.refused_keys = set()
        self.lookups = []
        self.commits = []
        self.journal = None
        self.unanswered: list[Request | ReadOutput] = []
        self.timers: dict[Any, float] = {}
        self.waits = False  # questions are answered one by one, when the test says so
        self.take(self.core.start(self.now))

    def turn(self, *inputs: Any) -> list[Any]:
        """The actions of one turn; what they ask is answered unless it `waits`."""
        actions: list[Any] = self.core.turn(self.now, inputs)
        self.take(actions)
        while self.unanswered and not self.waits:
            self.answer(0)
        return actions

    def take(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, SetTimer):
                self.timers[action.key] = action.at
            elif isinstance(action, ClearTimer):
                self.timers.pop(action.key, None)
            elif isinstance(action, ReadOutput) or (
                isinstance(action, Request)
                and action.matchtag
                and action.topic != topics.EXEC_HELLO
            ):
                self.unanswered.append(action)
            elif isinstance(action, Request) and action.topic == topics.EXEC_HELLO:
                self.hello = action

    def answer(self, place: int, errnum: int = 0) -> None:
        """Answer one of the open questions."""
        question = self.unanswered.pop(place % len(self.unanswered))
        if isinstance(question, ReadOutput):
            chunks = [
                Chunk(part.taskid, part.stream, part.offset, data)
                for part in question.parts
                if (data := OUTPUT[part.offset : part.offset + part.nbytes])
            ]
            self.turn(OutputRead(question.key, question.id, tuple(chunks)))
        elif question.topic == topics.JOB_JOURNAL:
            self.journal = question
            self.turn(streamed(question, {"events": []}))
        elif question.topic == topics.RESOURCE_STATUS:
            self.turn(Response(question.topic, {"down": {}}, 0, question.matchtag))
        elif errnum:
            self.turn(Response(question.topic, "it failed", errnum, question.matchtag))
        else:
            self.turn(self._kvs(question))


class Reborn(RuleBasedStateMachine):
    """All that an exec service hears, in any order."""

    @initialize(simulate=st.sampled_from([False, False, False, True]))
    def attach(self, simulate: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("flux_trio.cores.exec.keeping.READ_BYTES_MAX", 24)  # two pieces
        self.script = TwinScript(simulate=simulate)
        self.script.turn(ShellConnected())
        self.manager("hello", 1)

    def teardown(self) -> None:
        self.patch.undo()

    @rule()
    def put_down(self) -> None:
        self.script.core.put_down_and_take_up()

    # Jobs

    @rule(
        jobid=JOBS,
        kind=st.sampled_from([*KINDS, "no R"]),
        seconds=st.sampled_from([0, 5]),
        reattach=st.booleans(),
        age=st.sampled_from([-0.5, 50.0]),
    )
    def start(self, jobid: int, kind: str, seconds: int, reattach: bool, age: float) -> None:
        spec = jobspec(test={"run_duration": "3s"} if kind == "simulated" else None)
        system = spec["attributes"]["system"]
        system["shell"] = {"options": OPTIONS.get(kind, {})}
        if kind != "no R":
            now = self.script.now
            r = resources(starttime=now - age, expiration=now + seconds if seconds else 0.0)
            self.script.put_resources(jobid, r)
        self.script.turn(start_request(jobid, spec, reattach=reattach))

    @rule(jobid=JOBS, kind=st.sampled_from(KINDS), failure=st.sampled_from([None, None, FAILURE]))
    def runs(self, jobid: int, kind: str, failure: Failure | None) -> None:
        self.start(jobid, kind, 5, False, -0.5)
        self.script.turn(Started(jobid, failure))
        if kind == "input":
            self.user("input", jobid, 1)

    @rule(jobid=JOBS, lost=st.sampled_from([[], [], [0]]), size=st.sampled_from([0, 17, 70]))
    def ends(self, jobid: int, lost: list[int], size: int) -> None:
        sizes = [TaskSize(0, size, len(OUTPUT))]
        self.script.turn(Done(jobid, 0, 1, lost, sizes))

    @rule(jobid=JOBS, kind=st.sampled_from(["started", "postponed", "unknown", "fed", "listed"]))
    def shell_says(self, jobid: int, kind: str) -> None:
        notices = {
            "started": Started(jobid),
            "postponed": Postponed(jobid, "no memory"),
            "unknown": Unknown(jobid),
            "fed": Fed(jobid, True),
            "listed": Listing([jobid]),
        }
        self.script.turn(notices[kind])

    @rule(
        what=st.sampled_from(
            [
                ShellConnected(),
                ShellConnected(),
                ShellLost("it died"),
                ShellFailed("no fork"),
                offline("0", "power"),
                offline("x"),
                online("0"),
                online("0"),
            ]
        )
    )
    def something_changes(self, what: Any) -> None:
        self.script.turn(what)

    # The job manager

    @rule(
        what=st.sampled_from(
            [
                *("hello", "hello", "deaf", "back", "goes"),
                *("release", "expiration", "end"),  # of its journal
                *("exception", "note"),
            ]
        ),
        jobid=JOBS,
    )
    def manager(self, what: str, jobid: int) -> None:
        script, hello, stream = self.script, self.script.hello, self.script.journal
        match what:
            case "hello":
                script.turn(Response(hello.topic, None, 0, hello.matchtag))
            case "deaf":
                script.turn(Response(hello.topic, "nobody", Errno.ENOSYS, hello.matchtag))
            case "back":
                script.turn(service_back(topics.JOB_MANAGER), service_back(topics.RESOURCE))
            case "goes":
                script.turn(gone(topics.JOB_EXEC, MANAGER))
            case "exception" | "note":
                script.turn(job_exception(jobid, severity=0 if what == "exception" else 2))
            case "release" if stream is not None:
                script.turn(stored_release(script, jobid))
            case "expiration" if stream is not None:
                script.turn(journal(script, jobid, script.now + 3))
            case "end" if stream is not None:
                script.journal = None
                script.turn(Response(stream.topic, "", Errno.ENODATA, stream.matchtag))

    # The kvs

    @rule(
        waits=st.sampled_from([False, False, True]),
        place=st.integers(0, 9),
        errnum=st.sampled_from([0, 0, 0, Errno.EIO]),
    )
    def question_is_answered(self, waits: bool, place: int, errnum: int) -> None:
        self.script.waits = waits
        if self.script.unanswered:
            self.script.answer(place, errnum)

    @rule(jobid=JOBS, knows=st.booleans())
    def job_has_ended_before(self, jobid: int, knows: bool) -> None:
        log = inactive(userid=OWNER_USERID) if knows else pending(userid=OWNER_USERID)
        complete = [Event(1.0, "complete", {"status": 0})] if knows else [Event(1.0, "init")]
        self.script.kvs[job_key(jobid, "guest.exec.eventlog")] = format_eventlog(complete)
        self.script.kvs[job_key(jobid, "eventlog")] = format_eventlog(log)

    # Users

    @rule(jobid=JOBS, tag=st.integers(1, 3), credit=st.sampled_from([{}, {"credit": 1}]))
    def attaches(self, jobid: int, tag: int, credit: dict[str, int]) -> None:
        self.script.turn(
            asked("job-exec.attach", {"id": jobid} | credit, by="alice", tag=tag, streaming=True)
        )

    @rule(
        what=st.sampled_from(["attach-credit", "attach-cancel", "kill", "input", "leave"]),
        jobid=JOBS,
        tag=st.integers(1, 3),
    )
    def user(self, what: str, jobid: int, tag: int) -> None:
        payloads: dict[str, dict[str, Any]] = {
            "attach-credit": {"matchtag": tag, "credit": 2},
            "attach-cancel": {"matchtag": tag},
            "kill": {"id": jobid, "signum": 15},
            "input": {"id": jobid, "data": "YQ=="},
        }
        if what == "leave":
            self.script.turn(gone(topics.JOB_EXEC, "alice"))
        else:
            self.script.turn(asked(f"job-exec.{what}", payloads[what], by="alice", tag=9))

    # Time

    @rule(steps_by=st.sampled_from([0.0, 0.0, 0.0, -3600.0, 7.0]))
    def time_passes(self, steps_by: float) -> None:
        script = self.script
        if steps_by:
            script.now += steps_by
            script.timers = {key: at + steps_by for key, at in script.timers.items()}
            script.turn(ClockStepped(steps_by))
        elif script.timers:
            key = min(script.timers, key=script.timers.__getitem__)
            script.now = max(script.now, script.timers.pop(key))
            script.turn(TimerFired(key))

    @invariant()
    def streams_are_of_jobs(self) -> None:
        """Nothing is known of the start stream of a job that is forgotten."""
        core = self.script.core.core
        assert set(core._starts.streams) <= set(core._jobs.by_id)


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
