"""Values that say how the job manager continues after an answer.

A question to plugins is kept with a `Then`, the purpose of its answer. While a question about a job
is open, the job has `Deferred` values in its queue; they are processed in order when the answer has
come. A `Sweep` is work on many jobs. `Continuations` in `parts.py` continues with these values.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from flux_trio.config import Config
from flux_trio.editions import job_requests
from flux_trio.formats import Event, ResourceSet
from flux_trio.formats.meanings import JobId, Json, Meaning, Time
from flux_trio.messages import Request, Response, respond
from flux_trio.protocols import DependencyAsked, HookAnswer, JobState, Operation

# --- the hooks by which a job is presented to plugins, one after another


class Admit(msgspec.Struct, frozen=True, gc=False):
    """Validate a new job of the submit request `batch`."""

    batch: int


class Readmit(msgspec.Struct, frozen=True):
    """Validate a job that was stored but not validated when the job manager stopped."""


class Resume(msgspec.Struct, frozen=True):
    """Present a job that was read back to all plugins."""


class Present(msgspec.Struct, frozen=True):
    """Present a job to `plugin`, which was loaded: see `PluginReplays.open`."""

    arrival: int
    plugin: str


Purpose: TypeAlias = Admit | Readmit | Resume | Present

Step: TypeAlias = tuple[str, DependencyAsked | None]
"""A topic, and the further input of its hook."""


class Chain(msgspec.Struct, frozen=True, gc=False):
    """The questions about one job, in order."""

    purpose: Purpose
    steps: tuple[Step, ...]
    place: int = 0  # of the current step


# --- a request to update a jobspec


class Updating(msgspec.Struct, frozen=True):
    """One job-manager.update request, and what plugins have said about it so far."""

    number: int  # of the request in `Updates`
    jobid: JobId
    updates: dict[str, Json]
    keys: tuple[str, ...]  # of `updates`, as the request has them
    place: int = 0  # of the key that plugins are asked about
    is_validated: bool = True  # by the plugins asked so far
    further: dict[str, Json] = msgspec.field(
        default_factory=dict
    )  # what plugins want updated as well


# --- the purpose of an answer


class StateAnswered(msgspec.Struct, frozen=True, gc=False):
    """The answer to the hook of a job's state; ignored unless `question` is the last number."""

    question: int


class StepAnswered(msgspec.Struct, frozen=True, gc=False):
    """The hook of the current step of `chain`."""

    chain: Chain


class UpdateAnswered(msgspec.Struct, frozen=True):
    """job.update, after the event that changed the jobspec."""

    event: Event


class PriorityGot(msgspec.Struct, frozen=True):
    """job.priority.get."""


class KeyAnswered(msgspec.Struct, frozen=True):
    """job.update.KEY of the current key of `updating`."""

    updating: Updating


class UpdateValidated(msgspec.Struct, frozen=True):
    """job.validate with the jobspec as it would be."""

    updating: Updating


Then: TypeAlias = (
    StateAnswered | StepAnswered | UpdateAnswered | PriorityGot | KeyAnswered | UpdateValidated
)


class Configured(msgspec.Struct, frozen=True):
    """conf.update of the configuration in `request`."""

    request: Request
    config: Config


class ConfiguredAgain(msgspec.Struct, frozen=True):
    """conf.update of the previous configuration: a plugin has refused the new one."""


ConfigurationThen: TypeAlias = Configured | ConfiguredAgain


# --- what waits while a question about a job is open


class AnswerOfMany(msgspec.Struct):
    """What a request for an event of each of several jobs is answered when the last one is logged,
    or cannot be.
    """

    request: Request
    left: int  # jobs of which that is not known yet
    count: int = 0
    errors: int = 0

    def response(self) -> Response | None:
        counted = job_requests.Counted(self.count, self.errors)
        return respond(self.request, job_requests.COUNTED.write(counted))


class LogEvent(msgspec.Struct, frozen=True):
    """Log an event of the job, and send `answer` to who asked for it."""

    name: str
    context: dict[str, Json] | None
    answer: Response | AnswerOfMany | None = None


class Answered(msgspec.Struct, frozen=True):
    """Continue with `then`, after the operations of the answer."""

    then: Then
    answer: HookAnswer


class Operate(msgspec.Struct, frozen=True):
    """Perform an operation of a plugin."""

    operation: Operation


class AskState(msgspec.Struct, frozen=True):
    """Ask the hook of the job's state; `previous` is the state before it."""

    previous: JobState


class AskPriority(msgspec.Struct, frozen=True):
    """Ask job.priority.get."""


class GoOn(msgspec.Struct, frozen=True):
    """Go on with a job that was read back: all such jobs have been presented to plugins."""


class FinishOrphans(msgspec.Struct, frozen=True):
    """Finish the prologs and epilogs that no plugin has resumed."""


class AskUpdate(msgspec.Struct, frozen=True):
    """Ask plugins about `updating`, from its first key on."""

    updating: Updating


class ProposeExpiration(msgspec.Struct, frozen=True):
    """Ask the scheduler whether the job may expire at `end`, when the instance ends."""

    end: Time


class AllocateBypass(msgspec.Struct, frozen=True):
    """Log alloc: the commit of R that a plugin gave the job is durable."""

    commit: int
    resources: ResourceSet


class UpdateProposed(msgspec.Struct, frozen=True):
    """sched.expiration for an update: the job is to run until `expiration`.

    None: the scheduler that agreed to one is lost, and the next one is to be asked.
    """

    updating: Updating
    expiration: Annotated[int, Meaning.TIME] | None


class LifetimeProposed(msgspec.Struct, frozen=True):
    """sched.expiration for a job that expires by its duration, or at `end`, with the instance."""

    jobid: JobId
    expiration: Annotated[int, Meaning.TIME]
    end: Time


Proposal: TypeAlias = UpdateProposed | LifetimeProposed
"""A call to the scheduler; once it has agreed, the change itself, which is to be made."""

Change: TypeAlias = AskUpdate | ProposeExpiration | Proposal

Deferred: TypeAlias = (
    LogEvent
    | Answered
    | Operate
    | AskState
    | AskPriority
    | Present
    | GoOn
    | FinishOrphans
    | AllocateBypass
    | Change
)


def proposed_anew(waiting: Deferred) -> Deferred:
    """Return what waits as it is for a scheduler that has not agreed to it, as another one has."""
    match waiting:
        case UpdateProposed(updating, _):
            return UpdateProposed(updating, None)
        case LifetimeProposed(_, _, end):
            return ProposeExpiration(end)
        case _:
            return waiting


# --- work on many jobs, some in each turn


class PresentAll(msgspec.Struct, frozen=True):
    """Present all active jobs to the plugin of `arrival`."""

    arrival: int


class AskPriorities(msgspec.Struct, frozen=True):
    """Ask job.priority.get about all jobs in PRIORITY or SCHED."""


Sweep: TypeAlias = PresentAll | AskPriorities


# --- calls about one job


class BypassStored(msgspec.Struct, frozen=True):
    """The commit of R that a plugin gave a job."""

    jobid: JobId
    commit: int
    resources: ResourceSet
