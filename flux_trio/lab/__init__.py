"""Faults from one seed: a world that falls apart in every order, and is judged.

A world of cores has the cores of all modules on the instance's router, and no Trio. A world of the
stack has the services themselves, and Trio in virtual time. In both, one generator decides which
module runs next, which messages have reached it, and how many of them it takes in one turn.
`Plan` says which jobs and faults there are; `run_plan` plays it and checks its properties. The
faults are in `catalogue`.
"""

from flux_trio.lab import catalogue
from flux_trio.lab.catalogue import *  # noqa: F403 - every fault of the catalogue
from flux_trio.lab.plans.drawing import draw_plan
from flux_trio.lab.plans.files import plan_of_file
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.reached import Reached, all_faults, all_transitions
from flux_trio.lab.plans.workload import Do, JobPlan
from flux_trio.lab.properties.property import (
    Property,
    Watcher,
    after_each_step,
    at_each_pause,
    at_rest,
    over_trace,
    watching,
)
from flux_trio.lab.stories.campaign import (
    PropertyRaised,
    SeedResult,
    Setup,
    breaks,
    main_property,
    play_seed,
    play_seeds,
    property_errors,
)
from flux_trio.lab.stories.running import Outcome, run_plan
from flux_trio.lab.stories.shrinking import shrink
from flux_trio.lab.stories.telling import tell_story, untold_story
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.plugin_files import PluginFile

__all__ = [
    "CoresWorld",
    "Do",
    "JobPlan",
    "Outcome",
    "Plan",
    "PluginFile",
    "Property",
    "PropertyRaised",
    "Reached",
    "SeedResult",
    "Setup",
    "Watcher",
    "after_each_step",
    "all_faults",
    "all_transitions",
    "at_each_pause",
    "at_rest",
    "breaks",
    "draw_plan",
    "main_property",
    "over_trace",
    "plan_of_file",
    "play_seed",
    "play_seeds",
    "property_errors",
    "run_plan",
    "shrink",
    "tell_story",
    "untold_story",
    "watching",
]
__all__ += catalogue.__all__
