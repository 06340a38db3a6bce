"""Faults from one seed: a world that falls apart in every order, and is judged.

A world of cores has the cores of all modules on the instance's router, and no Trio. A world of the
stack has the services themselves, and Trio in virtual time. In both, one generator decides which
module runs next, which messages have reached it, and how many of them it takes in one turn.
`Plan` says which jobs and faults there are; `run_plan` plays it and checks its properties. The
faults are in `catalogue`.
"""

from flux_trio.lab.catalogue import *  # noqa: F403 - every fault of the catalogue
from flux_trio.lab.plans.campaign_coverage import SITUATIONS as SITUATIONS
from flux_trio.lab.plans.campaign_coverage import Situations as Situations
from flux_trio.lab.plans.drawing import draw_plan as draw_plan
from flux_trio.lab.plans.files import plan_of_file as plan_of_file
from flux_trio.lab.plans.plan import Plan as Plan
from flux_trio.lab.plans.reached import Reached as Reached
from flux_trio.lab.plans.reached import all_faults as all_faults
from flux_trio.lab.plans.reached import all_transitions as all_transitions
from flux_trio.lab.plans.workload import JobPlan as JobPlan
from flux_trio.lab.plans.workload import OwnerRequest as OwnerRequest
from flux_trio.lab.properties.property import Property as Property
from flux_trio.lab.properties.property import Watcher as Watcher
from flux_trio.lab.properties.property import after_each_step as after_each_step
from flux_trio.lab.properties.property import at_each_pause as at_each_pause
from flux_trio.lab.properties.property import at_rest as at_rest
from flux_trio.lab.properties.property import over_trace as over_trace
from flux_trio.lab.properties.property import watching as watching
from flux_trio.lab.stories.campaign import PropertyRaised as PropertyRaised
from flux_trio.lab.stories.campaign import SeedResult as SeedResult
from flux_trio.lab.stories.campaign import Setup as Setup
from flux_trio.lab.stories.campaign import breaks as breaks
from flux_trio.lab.stories.campaign import main_property as main_property
from flux_trio.lab.stories.campaign import play_seed as play_seed
from flux_trio.lab.stories.campaign import play_seeds as play_seeds
from flux_trio.lab.stories.campaign import property_errors as property_errors
from flux_trio.lab.stories.outcome import Outcome as Outcome
from flux_trio.lab.stories.running import run_plan as run_plan
from flux_trio.lab.stories.shrinking import shrink as shrink
from flux_trio.lab.stories.telling import tell_story as tell_story
from flux_trio.lab.stories.telling import untold_story as untold_story
from flux_trio.lab.world.cores_world import CoresWorld as CoresWorld
from flux_trio.lab.world.plugin_files import PluginFile as PluginFile
