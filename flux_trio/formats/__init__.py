"""The formats of messages and files, as pure values.

Parsing is strict and printing is canonical. The only error is `FormatError`; it names the place,
the expected format and the value received.
"""

from flux_trio.formats.characters import check_property_name, check_utf8, is_utf8
from flux_trio.formats.constraint import Constraint, Targets, both, parse_constraint
from flux_trio.formats.dependency import parse_dependency_uri
from flux_trio.formats.duration import format_duration, parse_duration
from flux_trio.formats.errors import LESS_DEEP, MISSING, FormatError, Words, converted
from flux_trio.formats.eventlog import (
    Event,
    format_event,
    format_eventlog,
    parse_event,
    parse_eventlog,
)
from flux_trio.formats.fields import document
from flux_trio.formats.fluid import (
    EVENTLOG,
    FLUID_MAX,
    FLUID_SPAN_S,
    GENERATORS_MAX,
    LOST_AND_FOUND,
    FluidForm,
    FluidGenerator,
    format_fluid,
    job_directory_of,
    job_key,
    parse_fluid,
    timestamp_of,
)
from flux_trio.formats.hostlist import HOSTS_MAX, Hostlist, HostRange
from flux_trio.formats.idset import IDS_MAX, Idset
from flux_trio.formats.jobspec import Jobspec, apply_update, apply_updates, parse_jobspec, value_at
from flux_trio.formats.jobspec_cost import COSTING, KEY_COST_MAX, check_costs, cost_of, costs_of
from flux_trio.formats.jobspec_resources import ResourceRequest
from flux_trio.formats.jobspec_tasks import Task
from flux_trio.formats.jobspec_wanted import Wanted
from flux_trio.formats.per_resource import PerResource, per_resource_of
from flux_trio.formats.printable import printable, printable_json, shortened
from flux_trio.formats.resource_json import ranks_named
from flux_trio.formats.resource_ops import Group, Groups, difference, intersection, union
from flux_trio.formats.resource_set import IndexedTargets, ResourceSet, format_r, parse_r
from flux_trio.formats.short_texts import SHORT_MAX, cached_for_short
from flux_trio.formats.size import format_size, parse_size
from flux_trio.formats.taskmap import (
    format_pmi_taskmap,
    format_raw_taskmap,
    parse_taskmap,
    taskmap_blocks,
    tasks_by_node,
)

__all__ = [
    "COSTING",
    "EVENTLOG",
    "FLUID_MAX",
    "FLUID_SPAN_S",
    "GENERATORS_MAX",
    "HOSTS_MAX",
    "IDS_MAX",
    "KEY_COST_MAX",
    "LESS_DEEP",
    "LOST_AND_FOUND",
    "MISSING",
    "SHORT_MAX",
    "Constraint",
    "Event",
    "FluidForm",
    "FluidGenerator",
    "FormatError",
    "Group",
    "Groups",
    "HostRange",
    "Hostlist",
    "Idset",
    "IndexedTargets",
    "Jobspec",
    "PerResource",
    "ResourceRequest",
    "ResourceSet",
    "Targets",
    "Task",
    "Wanted",
    "Words",
    "apply_update",
    "apply_updates",
    "both",
    "cached_for_short",
    "check_costs",
    "check_property_name",
    "check_utf8",
    "converted",
    "cost_of",
    "costs_of",
    "difference",
    "document",
    "format_duration",
    "format_event",
    "format_eventlog",
    "format_fluid",
    "format_pmi_taskmap",
    "format_r",
    "format_raw_taskmap",
    "format_size",
    "intersection",
    "is_utf8",
    "job_directory_of",
    "job_key",
    "parse_constraint",
    "parse_dependency_uri",
    "parse_duration",
    "parse_event",
    "parse_eventlog",
    "parse_fluid",
    "parse_jobspec",
    "parse_r",
    "parse_size",
    "parse_taskmap",
    "per_resource_of",
    "printable",
    "printable_json",
    "ranks_named",
    "shortened",
    "taskmap_blocks",
    "tasks_by_node",
    "timestamp_of",
    "union",
    "value_at",
]
