"""How plugins get to know a job: job.create, job.validate, its dependencies, job.new.

In this order at submission, and again (without job.validate) when the job manager has read the job
back after a restart, and for one plugin when it is loaded. What a plugin refuses at submission
refuses the job. Later there is nobody to refuse it to: a dependency that cannot be taken up raises
an exception of severity 4, the rest is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import ABANDONED, Hooks
from flux_trio.cores.job_manager.jobs.ledger import ActiveJob, Ledger
from flux_trio.protocols import (
    CREATE,
    DEPENDENCY_PREFIX,
    NEW,
    VALIDATE,
    HookAnswer,
    JobState,
)

Decided = Callable[[str | None], None]
"""Gets why the job was refused, or None."""

_Step = tuple[str, Any]  # topic, args

_UNDECIDED = JobState.NEW | JobState.DEPEND


class _Chain(msgspec.Struct):
    """The questions about one job, under way."""

    job: ActiveJob
    steps: Iterator[_Step]
    refused: Callable[[str, str], bool]  # topic, reason: whether to go on
    then: Callable[[], None]  # after the last
    only: str | None = None  # the plugin that is asked, None for all
    is_running: bool = False
    goes_on: bool = False


class Introduction:
    """Asks these hooks of one job after another."""

    def __init__(self, ledger: Ledger, hooks: Hooks) -> None:
        self._ledger = ledger
        self._hooks = hooks

    def admit(self, job: ActiveJob, then: Decided) -> None:
        """A job in NEW: `then` is told whether it is accepted. job.new is for those that are."""
        try:
            dependencies = _dependencies(job)
        except ValueError as error:
            then(str(error))
            return

        def refused(topic: str, reason: str) -> bool:
            if topic != NEW:
                then(reason)
                return False
            self._hooks.log_error(job, HookAnswer(error=reason))
            return True

        steps = iter([(CREATE, None), (VALIDATE, None), *dependencies, (NEW, None)])
        self._run(_Chain(job, steps, refused, partial(then, None)))

    def present(self, job: ActiveJob, then: Callable[[], None], only: str | None = None) -> None:
        """A job that was accepted before, to all plugins or to one."""
        if not job.is_active:
            then()
            return
        dependencies: list[_Step] = []
        if job.state & _UNDECIDED:
            try:
                dependencies = _dependencies(job)
            except ValueError as error:
                self._warn(job, str(error))

        def refused(topic: str, reason: str) -> bool:
            if topic.startswith(DEPENDENCY_PREFIX):
                self._warn(job, reason)
            else:
                self._hooks.log_error(job, HookAnswer(error=reason))
            return True

        steps = iter([(CREATE, None), *dependencies, (NEW, None)])
        self._run(_Chain(job, steps, refused, then, only))

    # --- one question after another

    def _run(self, chain: _Chain) -> None:
        chain.is_running = True
        chain.job.introduced = True
        for topic, args in chain.steps:
            chain.goes_on = False
            if self._hooks.handles(topic):
                heard = partial(self._heard, chain, topic)
                self._hooks.ask(chain.job, topic, heard, args, only=chain.only)
            elif topic.startswith(DEPENDENCY_PREFIX):
                scheme = topic.removeprefix(DEPENDENCY_PREFIX)
                unknown = f'dependency scheme "{scheme}" not supported'
                self._heard(chain, topic, HookAnswer(reject=unknown))
            else:
                continue
            if not chain.goes_on:
                chain.is_running = False
                return
        chain.then()

    def _heard(self, chain: _Chain, topic: str, answer: HookAnswer) -> None:
        if answer is ABANDONED:
            chain.steps = iter(())  # the job has come to its end
        elif (reason := answer.reject or answer.error) and not chain.refused(topic, reason):
            return
        chain.goes_on = True
        if not chain.is_running:
            self._run(chain)

    def _warn(self, job: ActiveJob, text: str) -> None:
        note = f"{text} (job may be stuck in DEPEND state)"
        self._ledger.raise_exception(job, "dependency", 4, note)


def _dependencies(job: ActiveJob) -> list[_Step]:
    """The questions about the jobspec's dependencies. Raises ValueError for what is none."""
    if b'"dependencies"' not in job.current_jobspec_bytes():
        return []  # nearly always, and without a look at the whole
    system = job.current_jobspec().get("attributes", {}).get("system", {})
    entries = system.get("dependencies", [])
    if not isinstance(entries, list):
        raise ValueError("dependencies object must be an array")
    return [(_topic(each, index), each) for index, each in enumerate(entries)]


def _topic(entry: Any, index: int) -> str:
    scheme = entry.get("scheme") if isinstance(entry, dict) else None
    if not isinstance(scheme, str):
        raise ValueError(f"dependency[{index}] missing string scheme")
    return DEPENDENCY_PREFIX + scheme
