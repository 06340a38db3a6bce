"""How plugins get to know a job: job.create, job.validate, its dependencies, job.new.

In this order at submission, and again (without job.validate) when the job manager has read the job
back after a restart, and for one plugin when it is loaded. What a plugin refuses at submission
refuses the job. Later there is nobody to refuse it to: a dependency that cannot be taken up raises
an exception of severity 4, the rest is logged.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import ABANDONED, NOTHING_SAID, Hooks
from flux_trio.cores.job_manager.hooks.waiting import (
    Admit,
    Chain,
    Present,
    Readmit,
    Resume,
    Step,
    StepAnswered,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.protocols import (
    CREATE,
    DEPENDENCY_PREFIX,
    NEW,
    VALIDATE,
    HookAnswer,
    JobState,
)

_UNDECIDED = JobState.NEW | JobState.DEPEND


class Introduction(Part):
    """Asks these hooks of one job after another, then tells the carrier."""

    def __init__(self, ledger: Ledger, hooks: Hooks) -> None:
        self._ledger = ledger
        self._hooks = hooks

    def admit(self, job: ActiveJob, purpose: Admit | Readmit) -> None:
        """Validate a job in NEW. job.new is for those that are accepted."""
        try:
            dependencies = _dependencies(job)
        except ValueError as error:
            self._hooks.carrier.introduced(job, purpose, str(error))
            return
        steps = ((CREATE, None), (VALIDATE, None), *dependencies, (NEW, None))
        self._run(job, Chain(purpose, steps))

    def present(self, job: ActiveJob, purpose: Resume | Present) -> None:
        """Tell of a job that was accepted before, all plugins or one."""
        if not job.is_active:
            self._hooks.carrier.introduced(job, purpose, None)
            return
        dependencies: list[Step] = []
        if job.state & _UNDECIDED:
            try:
                dependencies = _dependencies(job)
            except ValueError as error:
                self._warn(job, str(error))
        self._run(job, Chain(purpose, ((CREATE, None), *dependencies, (NEW, None))))

    def answered(self, job: ActiveJob, chain: Chain, answer: HookAnswer) -> None:
        """The hook of the step at which `chain` is was answered."""
        if self._goes_on(job, chain, answer):
            self._run(job, _after(chain, answer))

    # --- one question after another

    def _run(self, job: ActiveJob, chain: Chain) -> None:
        """Ask on as long as the answers are there at once."""
        job.introduced = True
        while chain.place < len(chain.steps):
            answer = self._ask(job, chain)
            if answer is None or not self._goes_on(job, chain, answer):
                return
            chain = _after(chain, answer)
        self._hooks.carrier.introduced(job, chain.purpose, None)

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
        """Take note of a refusal or failure; whether the next step follows."""
        reason = answer.reject or answer.error
        if reason is None or answer == ABANDONED:
            return True
        topic, _ = chain.steps[chain.place]
        match chain.purpose:
            case Admit() | Readmit() if topic != NEW:
                self._hooks.carrier.introduced(job, chain.purpose, reason)
                return False
            case Resume() | Present() if topic.startswith(DEPENDENCY_PREFIX):
                self._warn(job, reason)
            case Admit() | Readmit() | Resume() | Present():
                self._hooks.log_error(job, HookAnswer(error=reason))
            case _:
                assert_never(chain.purpose)
        return True

    def _warn(self, job: ActiveJob, text: str) -> None:
        note = f"{text} (job may be stuck in DEPEND state)"
        self._ledger.raise_exception(job, "dependency", 4, note)


def _after(chain: Chain, answer: HookAnswer) -> Chain:
    """The chain at its next step; at its end when the job has come to its own."""
    return msgspec.structs.replace(
        chain, place=len(chain.steps) if answer == ABANDONED else chain.place + 1
    )


def _dependencies(job: ActiveJob) -> list[Step]:
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
