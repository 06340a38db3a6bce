"""How plugins get to know a job: job.create, job.validate, its dependencies, job.new.

At submission all plugins are asked these hooks in this order. After a restart all plugins are asked
them again, except job.validate; so is a plugin that is loaded later. A refusal at submission
refuses the job. After that a job cannot be refused: if a plugin refuses a dependency, an exception
of severity 4 is raised; other refusals and failures are logged.
"""

from __future__ import annotations

from typing import Any, assert_never

from flux_trio.cores.job_manager.hooks.hooks import ABANDONED, NOTHING_SAID, Hooks
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.waiting import (
    Admit,
    Chain,
    Present,
    Readmit,
    Resume,
    Step,
    StepAnswered,
)
from flux_trio.cores.state import Part
from flux_trio.protocols import (
    CREATE,
    DEPENDENCY_PREFIX,
    NEW,
    VALIDATE,
    DependencyAsked,
    HookAnswer,
    JobState,
)

_UNDECIDED = JobState.NEW | JobState.DEPEND


class JobPresentation(Part):
    """Asks these hooks about a job one after another, then continues with the purpose."""

    def __init__(self, ledger: Ledger, hooks: Hooks) -> None:
        self._ledger = ledger
        self._hooks = hooks

    def admit(self, job: ActiveJob, purpose: Admit | Readmit) -> None:
        """Validate a job in NEW. job.new is asked if no plugin refuses the job."""
        try:
            dependencies = _dependencies(job)
        except ValueError as error:
            self._hooks.continuation.introduced(job, purpose, str(error))
            return
        steps = ((CREATE, None), (VALIDATE, None), *dependencies, (NEW, None))
        self._run(job, Chain(purpose, steps))

    def present(self, job: ActiveJob, purpose: Resume | Present) -> None:
        """Present a job that was accepted before, to all plugins or to one."""
        if not job.is_active:
            self._hooks.continuation.introduced(job, purpose, None)
            return
        dependencies: list[Step] = []
        if job.state & _UNDECIDED:
            try:
                dependencies = _dependencies(job)
            except ValueError as error:
                self._warn(job, str(error))
        self._run(job, Chain(purpose, ((CREATE, None), *dependencies, (NEW, None))))

    def answered(self, job: ActiveJob, chain: Chain, answer: HookAnswer) -> None:
        """Continue after the answer to the current step of `chain`."""
        if self._goes_on(job, chain, answer):
            self._run(job, _after(chain, answer))

    # --- one question after another

    def _run(self, job: ActiveJob, chain: Chain) -> None:
        """Ask one step after another, until a step has no answer yet or ends the chain."""
        job.introduced = True
        while chain.place < len(chain.steps):
            answer = self._ask(job, chain)
            if answer is None or not self._goes_on(job, chain, answer):
                return
            chain = _after(chain, answer)
        self._hooks.continuation.introduced(job, chain.purpose, None)

    def _ask(self, job: ActiveJob, chain: Chain) -> HookAnswer | None:
        topic, args = chain.steps[chain.place]
        if self._hooks.interests.handled(topic):
            only = chain.purpose.plugin if isinstance(chain.purpose, Present) else None
            return self._hooks.ask(job, topic, StepAnswered(chain), args, only=only)
        if topic.startswith(DEPENDENCY_PREFIX):
            scheme = topic.removeprefix(DEPENDENCY_PREFIX)
            return HookAnswer(reject=f'dependency scheme "{scheme}" not supported')
        return NOTHING_SAID

    def _goes_on(self, job: ActiveJob, chain: Chain, answer: HookAnswer) -> bool:
        """Report a refusal or failure; return whether the next step follows."""
        reason = answer.reject or answer.error
        if reason is None or answer == ABANDONED:
            return True
        topic, _ = chain.steps[chain.place]
        match chain.purpose:
            case Admit() | Readmit() if topic != NEW:
                self._hooks.continuation.introduced(job, chain.purpose, reason)
                return False
            case Resume() | Present() if topic.startswith(DEPENDENCY_PREFIX):
                self._warn(job, reason)
            case Admit() | Readmit() | Resume() | Present():
                if answer.reject is not None:
                    self._hooks.log_error(job, answer.reject)
            case _:
                assert_never(chain.purpose)
        return True

    def _warn(self, job: ActiveJob, text: str) -> None:
        note = f"{text} (job may be stuck in DEPEND state)"
        self._ledger.raise_exception(job, "dependency", 4, note)


def _after(chain: Chain, answer: HookAnswer) -> Chain:
    """Return the chain at its next step; at its end if a fatal exception has ended the job."""
    place = len(chain.steps) if answer == ABANDONED else chain.place + 1
    return Chain(chain.purpose, chain.steps, place)


def _dependencies(job: ActiveJob) -> list[Step]:
    """Return the steps for the jobspec's dependencies. Raises ValueError for a malformed one."""
    if b'"dependencies"' not in job.current_jobspec_bytes():
        return []  # nearly always, and without decoding the jobspec
    system = job.current_jobspec().get("attributes", {}).get("system", {})
    entries = system.get("dependencies", [])
    if not isinstance(entries, list):
        raise ValueError("dependencies object must be an array")
    return [(_topic(each, index), DependencyAsked(each)) for index, each in enumerate(entries)]


def _topic(entry: Any, index: int) -> str:
    scheme = entry.get("scheme") if isinstance(entry, dict) else None
    if not isinstance(scheme, str):
        raise ValueError(f"dependency[{index}] missing string scheme")
    return DEPENDENCY_PREFIX + scheme
