"""Continues with the values of `waiting.py` when the answer that they wait for has come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from flux_trio.cores.job_manager.hooks.hooks import ABANDONED, Hooks
from flux_trio.cores.job_manager.hooks.operations import Operations
from flux_trio.cores.job_manager.hooks.plugin_replays import PluginReplays
from flux_trio.cores.job_manager.hooks.presenting import JobPresentation
from flux_trio.cores.job_manager.hooks.state_answers import StateAnswers
from flux_trio.cores.job_manager.hooks.waiting import (
    Admit,
    AllocateBypass,
    Answered,
    ApplyExpiration,
    ApplyUpdate,
    AskPriorities,
    AskPriority,
    AskState,
    AskUpdate,
    Change,
    ConfigurationThen,
    Configured,
    Deferred,
    FinishOrphans,
    GoOn,
    KeyAnswered,
    LifetimeProposed,
    LogEvent,
    Operate,
    Present,
    PresentAll,
    PriorityGot,
    Proposal,
    ProposeExpiration,
    Purpose,
    Readmit,
    Resume,
    StateAnswered,
    StepAnswered,
    Sweep,
    Then,
    UpdateHeard,
    UpdateProposed,
    UpdateValidated,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.lifetime import Lifetime
from flux_trio.cores.job_manager.jobs.orphans import Orphans
from flux_trio.cores.job_manager.queues.methods import QueueMethods
from flux_trio.cores.job_manager.requests.submission import Submission
from flux_trio.cores.job_manager.requests.updates import Updates
from flux_trio.cores.job_manager.scheduler.bypass import Bypass
from flux_trio.cores.job_manager.scheduler.priorities import Priorities
from flux_trio.messages import Errno, Response
from flux_trio.protocols import HookAnswer, Operation


class Acting(msgspec.Struct, frozen=True):
    """The parts that continue after an answer."""

    hooks: Hooks
    presentation: JobPresentation
    state_answers: StateAnswers
    operations: Operations
    plugin_replays: PluginReplays
    submission: Submission
    updates: Updates
    priorities: Priorities
    bypass: Bypass
    orphans: Orphans
    lifetime: Lifetime
    queue_methods: QueueMethods


class Carrier:
    """Calls the part that a value is for."""

    def __init__(self, parts: Acting) -> None:
        self._parts = parts

    def operate(self, operation: Operation) -> None:
        """Perform an operation of a plugin."""
        self._parts.operations.do(operation)

    def entered(self, job: ActiveJob, answer: HookAnswer) -> None:
        """Continue after the hook of the state that `job` is in."""
        self._parts.state_answers.answered(job, answer)

    def answered(self, job: ActiveJob, then: Then, answer: HookAnswer) -> None:
        """Continue with `then`, after the operations of the answer."""
        parts = self._parts
        match then:
            case StateAnswered(question):
                if job.question == question and answer != ABANDONED:
                    parts.state_answers.answered(job, answer)
            case PriorityGot():
                parts.priorities.got(job, answer)
            case StepAnswered(chain):
                parts.presentation.answered(job, chain, answer)
            case UpdateHeard(event):
                parts.hooks.update_heard(job, event, answer)
            case KeyAnswered(updating):
                parts.updates.key_answered(job, updating, answer)
            case UpdateValidated(updating):
                parts.updates.validated(job, updating, answer)
            case _:
                assert_never(then)

    def do(self, job: ActiveJob, deferred: Deferred) -> None:
        """Process an entry of the queue of `job`."""
        parts = self._parts
        match deferred:
            case Answered(then, answer):
                self.answered(job, then, answer)
            case LogEvent(name, context):
                parts.hooks.log_deferred(job, name, context)
            case Operate(operation):
                parts.hooks.operate(job, operation)
            case AskState(previous):
                parts.hooks.ask_state(job, None, previous)
            case AskPriority():
                parts.priorities.ask(job)
            case Present():
                parts.presentation.present(job, deferred)
            case GoOn():
                parts.plugin_replays.go_on(job)
            case FinishOrphans():
                parts.orphans.finish(job)
            case AllocateBypass(commit, resources):
                parts.bypass.allocated(job, commit, resources)
            case _:
                self._change(job, deferred)

    def _change(self, job: ActiveJob, change: Change) -> None:
        """Continue with a change of the jobspec or of the expiration of `job`."""
        match change:
            case AskUpdate(updating):
                self._parts.updates.ask(job, updating)
            case ApplyUpdate(updating, expiration):
                self._parts.updates.apply(job, updating, expiration)
            case ProposeExpiration(end):
                self._parts.lifetime.propose(job, end)
            case ApplyExpiration(expiration, end):
                self._parts.lifetime.apply(job, expiration, end)
            case _:
                assert_never(change)

    def introduced(self, job: ActiveJob, purpose: Purpose, refusal: str | None) -> None:
        """Continue after `job` was presented to plugins; `refusal` is the reason to refuse it."""
        parts = self._parts
        match purpose:
            case Admit(batch):
                parts.submission.decided(job, batch, refusal)
            case Readmit():
                parts.submission.decided_again(job, refusal)
            case Resume():
                parts.plugin_replays.resumed(job)
            case Present():
                parts.plugin_replays.presented(job, purpose)
            case _:
                assert_never(purpose)

    def configured(self, then: ConfigurationThen, answer: HookAnswer) -> None:
        """Continue after conf.update."""
        if isinstance(then, Configured):
            self._parts.queue_methods.configured(then.request, then.config, answer)

    # --- sweeps

    def choose(self, sweep: Sweep) -> Iterable[ActiveJob]:
        """Return the jobs of `sweep`, which begins now."""
        match sweep:
            case PresentAll(arrival):
                return self._parts.plugin_replays.choose(arrival)
            case AskPriorities():
                return self._parts.priorities.choose()
            case _:
                assert_never(sweep)

    def is_quick(self, sweep: Sweep, job: ActiveJob) -> bool:
        """Return whether `sweep` calls no handler of a plugin for this job alone."""
        return isinstance(sweep, AskPriorities) and self._parts.priorities.is_quick(job)

    def do_some(self, sweep: Sweep, jobs: list[ActiveJob]) -> None:
        """Do with these jobs, in order, what `sweep` is for."""
        match sweep:
            case PresentAll(arrival):
                for job in jobs:
                    self._parts.plugin_replays.present(job, arrival)
            case AskPriorities():
                self._parts.priorities.ask_some(jobs)
            case _:
                assert_never(sweep)

    def swept(self, sweep: Sweep) -> None:
        """Continue after the last job of `sweep`."""
        match sweep:
            case PresentAll(arrival):
                self._parts.plugin_replays.one_less(arrival)
            case AskPriorities():
                self._parts.priorities.asked_all()
            case _:
                assert_never(sweep)

    # --- calls

    def proposed(self, proposal: Proposal, response: Response) -> None:
        """Take the answer to sched.expiration. A scheduler that answers ENOSYS accepts."""
        accepted = response.errnum in (0, Errno.ENOSYS)
        self.decided(proposal, accepted=accepted)

    def decided(self, proposal: Proposal, *, accepted: bool) -> None:
        """Make the change that `proposal` is for if it is `accepted`, else refuse it."""
        match proposal:
            case UpdateProposed(updating, expiration):
                self._parts.updates.expiration_answered(updating, expiration, accepted=accepted)
            case LifetimeProposed(jobid, expiration, end):
                self._parts.lifetime.answered(jobid, expiration, end, accepted=accepted)
            case _:
                assert_never(proposal)
