"""A plugin host without an instance: what it is asked, what it tells, traces and logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio

from flux_trio.config import Config
from flux_trio.cores.job_manager.hooks.interests import Interests
from flux_trio.jobtap import (
    HookAnswer,
    HostServices,
    Plugin,
    PluginHost,
    UpdateAsked,
    on,
    open_host,
)
from flux_trio.protocols import AskHook, HookAnswered, JobState, JobView
from tests.support.job_view import SeenJob

PRIORITY = "job.state.priority"
JOB = SeenJob(state=JobState.PRIORITY)
OWNER = 1000


def handling(topic: str, function: Callable[..., Any], name: str = "a", **more: Any) -> Plugin:
    """A plugin with one handler, which takes no `self`."""
    made: Plugin = type(
        "Handling", (Plugin,), {"handle": staticmethod(on(topic)(function)), "name": name, **more}
    )()
    return made


def chain(topic: str, *functions: Callable[..., Any]) -> list[Plugin]:
    """Plugins a, b, c… with one handler each."""
    return [handling(topic, each, name) for each, name in zip(functions, "abcdef", strict=False)]


class SomeJobs:
    """Jobs to be looked up (`Jobs`)."""

    def __init__(self, jobs: Iterable[SeenJob]) -> None:
        self.by_id = {job.id: job for job in jobs}

    def get(self, jobid: int) -> JobView | None:
        return self.by_id.get(jobid)

    def active(self) -> Iterable[JobView]:
        return [job for job in self.by_id.values() if job.state != JobState.INACTIVE]


class Rig:
    """A host, and everything that leaves it."""

    def __init__(self) -> None:
        self.host: PluginHost
        self.posted: list[Any] = []
        self.notes: list[dict[str, Any]] = []
        self.recounts: list[dict[str, Any]] = []
        self.logged: list[str] = []
        self.abandoned: list[str] = []
        self.is_traced = True
        self.called: list[tuple[str, Any]] = []
        self._interests = Interests()

    @property
    def given(self) -> HostServices:
        return HostServices(
            post=self.posted.append,
            note_all=self._note_all,
            is_traced=lambda: self.is_traced,
            now=trio.current_time,
            log=lambda _level, text: self.logged.append(text),
            rpc=self._rpc,
            owner=OWNER,
            users="users",
            abandon=self.abandoned.extend,
        )

    def jobs(self, *jobs: SeenJob) -> None:
        """From now on these are the jobs that there are, and those that are asked about later."""
        self._jobs = self.host.jobs = SomeJobs(jobs)

    @property
    def interests(self) -> Interests:
        """What the job manager knows that plugins want to hear."""
        if (news := self.host.news()) is not None:
            self._interests.update(news)
        return self._interests

    def ask(
        self, topic: str = PRIORITY, job: SeenJob | None = JOB, args: Any = None, **more: Any
    ) -> HookAnswer | None:
        if job is not None:
            self._jobs.by_id[job.id] = job
        return self.host.ask(AskHook(more.pop("ticket", 1), topic, job, args, **more))

    def answer(self, *question: Any, **more: Any) -> HookAnswer:
        """What is answered at once."""
        answer = self.ask(*question, **more)
        assert answer is not None
        return answer

    def move(self, job: SeenJob, *states: JobState) -> SeenJob:
        """Take a job through states, asking their hooks; the job in the last one."""
        for state in states:
            job = replace(job, state=state)
            self.jobs(job)
            self.answer(f"job.state.{state.name.lower()}", job)
        return job

    @property
    def answers(self) -> list[HookAnswered]:
        """Those that came later."""
        return [each for each in self.posted if isinstance(each, HookAnswered)]

    def _note_all(self, kind: str, notes: Sequence[dict[str, Any]]) -> None:
        kept = {"hook": self.notes, "counters": self.recounts}[kind]
        kept.extend(notes)

    async def _rpc(self, topic: str, payload: dict[str, Any] | None) -> dict[str, Any]:
        self.called.append((topic, payload))
        return {"from": topic}


@asynccontextmanager
async def rig(
    *plugins: Plugin, config: Config | None = None, look_s: float = 60.0
) -> AsyncIterator[Rig]:
    """A host with these plugins, for the length of the block."""
    made = Rig()
    async with open_host(made.given, config, look_s) as made.host:
        made.jobs()
        for plugin in plugins:
            await made.host.load(plugin)
        made.posted.clear()
        yield made


def asked_to_set(key: str, value: Any) -> UpdateAsked:
    return UpdateAsked(key, value, userid=7, is_owner=False)
