"""What the job manager waits for: values that say what is done when it comes.

A question to plugins is kept with a `Then`, which says what its answer is for. A job whose hook is
being asked has `Deferred` values in its queue, done in order once the answer is there. A sweep over
many jobs is a `Sweep`, a call that is about one job a `JobCall`. `carrier.py` does what they say.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from flux_trio.config import Config
from flux_trio.formats import Event, ResourceSet
from flux_trio.formats.meanings import JobId, Meaning, Time
from flux_trio.messages import Request
from flux_trio.protocols import HookAnswer, JobState, Operation

# --- the hooks by which plugins get to know a job, one after another


class Admit(msgspec.Struct, frozen=True):
    """A new job of the submit request `batch` is validated."""

    batch: int


class Readmit(msgspec.Struct, frozen=True):
    """A job is validated that an earlier life of the job manager had not validated."""


class Resume(msgspec.Struct, frozen=True):
    """A job that was read back is presented to all plugins, and then goes on."""


class Present(msgspec.Struct, frozen=True):
    """A job is presented to one plugin that was loaded: to that of `arrival`."""

    arrival: int
    plugin: str


Purpose: TypeAlias = Admit | Readmit | Resume | Present

Step: TypeAlias = tuple[str, Any]
"""A topic to ask, and the further input of its hook."""


class Chain(msgspec.Struct, frozen=True):
    """The questions about one job that are still to be asked, the first one first."""

    purpose: Purpose
    steps: tuple[Step, ...]
    place: int = 0  # the step that is asked now


# --- a request to update a jobspec


class Updating(msgspec.Struct, frozen=True):
    """One job-manager.update request, as far as it is decided."""

    request: Request
    jobid: JobId
    updates: dict[str, Any]
    keys: tuple[str, ...]  # of `updates`, as the request has them
    place: int = 0  # the key that is asked about now
    is_validated: bool = True  # by the plugins asked so far
    further: dict[str, Any] = msgspec.field(
        default_factory=dict
    )  # what plugins want updated as well


# --- what the answer of a hook is for


class StateAnswered(msgspec.Struct, frozen=True):
    """The hook of a job's state, unless `question` is not the last one about it any more."""

    question: int


class StepAnswered(msgspec.Struct, frozen=True):
    """The hook of the step at which `chain` is."""

    chain: Chain


class UpdateHeard(msgspec.Struct, frozen=True):
    """job.update, after the event that changed the jobspec."""

    event: Event


class PriorityGot(msgspec.Struct, frozen=True):
    """job.priority.get."""


class KeyAnswered(msgspec.Struct, frozen=True):
    """job.update.KEY of the key at which `updating` is."""

    updating: Updating


class UpdateValidated(msgspec.Struct, frozen=True):
    """job.validate of a job as it would be."""

    updating: Updating


Then: TypeAlias = (
    StateAnswered | StepAnswered | UpdateHeard | PriorityGot | KeyAnswered | UpdateValidated
)


class Configured(msgspec.Struct, frozen=True):
    """conf.update of the configuration that `request` has brought."""

    request: Request
    config: Config


class ConfiguredAgain(msgspec.Struct, frozen=True):
    """conf.update of the configuration before, since a plugin has refused the new one."""


ConfigurationThen: TypeAlias = Configured | ConfiguredAgain


# --- what waits while a hook of a job is being asked


class LogEvent(msgspec.Struct, frozen=True):
    """Log an event of the job."""

    name: str
    context: dict[str, Any] | None


class Answered(msgspec.Struct, frozen=True):
    """Go by the answer of a hook, once what it wants done is done."""

    then: Then
    answer: HookAnswer


class Operate(msgspec.Struct, frozen=True):
    """Do what a plugin wants done."""

    operation: Operation


class AskState(msgspec.Struct, frozen=True):
    """Ask the hook of the job's state; `previous` is where the job came from."""

    previous: JobState


class AskPriority(msgspec.Struct, frozen=True):
    """Ask job.priority.get."""


class FinishOrphans(msgspec.Struct, frozen=True):
    """Finish the prologs and epilogs that no plugin has taken up."""


class AskUpdate(msgspec.Struct, frozen=True):
    """Begin to ask plugins about `updating`."""

    updating: Updating


class ApplyUpdate(msgspec.Struct, frozen=True):
    """Log what `updating` asks for; the scheduler has agreed to `expiration`."""

    updating: Updating
    expiration: Annotated[int, Meaning.TIME]


class ProposeExpiration(msgspec.Struct, frozen=True):
    """Ask the scheduler whether the job may end with the instance, which ends at `end`."""

    end: Time


class ApplyExpiration(msgspec.Struct, frozen=True):
    """Log the expiration that the scheduler has agreed to."""

    expiration: Annotated[int, Meaning.TIME]


class AllocateBypass(msgspec.Struct, frozen=True):
    """Log alloc: R that a plugin gave is stored, by the commit of this number."""

    commit: int
    resources: ResourceSet


Change: TypeAlias = AskUpdate | ApplyUpdate | ProposeExpiration | ApplyExpiration

Deferred: TypeAlias = (
    LogEvent
    | Answered
    | Operate
    | AskState
    | AskPriority
    | Present
    | FinishOrphans
    | AllocateBypass
    | Change
)


# --- work on many jobs, a slice a turn


class PresentAll(msgspec.Struct, frozen=True):
    """Present all active jobs to the plugin of `arrival`."""

    arrival: int


class AskPriorities(msgspec.Struct, frozen=True):
    """Ask job.priority.get of all jobs in PRIORITY or SCHED."""


Sweep: TypeAlias = PresentAll | AskPriorities


# --- calls about one job


class UpdateProposed(msgspec.Struct, frozen=True):
    """The scheduler is asked whether a job of this update may run until `expiration`."""

    updating: Updating
    expiration: Annotated[int, Meaning.TIME]


class LifetimeProposed(msgspec.Struct, frozen=True):
    """The same for a job that shall end with the instance."""

    jobid: JobId
    expiration: Annotated[int, Meaning.TIME]


Proposal: TypeAlias = UpdateProposed | LifetimeProposed


class BypassStored(msgspec.Struct, frozen=True):
    """The commit of R that a plugin gave a job."""

    jobid: JobId
    commit: int
    resources: ResourceSet
