"""The runs of one `flux-trio simulate`, each policy with each plugin, and the figures of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import msgspec

import flux_trio
from flux_trio.broker import LogEntry, ModuleNotStarted
from flux_trio.cli.terminal import config_file
from flux_trio.cli.terminal.columns import short_duration
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.config import Config, PluginDirective, read_config
from flux_trio.formats import FormatError
from flux_trio.jobtap import PluginError
from flux_trio.messages import Level
from flux_trio.sim import (
    Metrics,
    Outcome,
    SimulationResult,
    SimulationStalled,
    WorkloadJob,
    deal_users,
    decode_log,
    read_workload,
)

COLUMN = "column"  # --users column: the users of the log
NOBODY = "unknown"  # the user of jobs whose user the log does not know

_PACKAGE: Final = Path(flux_trio.__file__).parent
WORKLOADS: Final = (_PACKAGE / "workloads", _PACKAGE.parent / "tests" / "data" / "workloads")
"""Directories of flux-trio's own logs: in the package, or in a checkout."""

NO_RESULT: Final = (SimulationStalled, ModuleNotStarted, PluginError)
"""A run raises these if it could not begin or does not end; their text is for the user."""

NO_PLUGIN = "none"  # --plugin none: only the builtin plugins


PROBLEMS_SHOWN: Final = 10  # of each run; a plugin may fail for every job


class Problems:
    """The warnings and errors in the log of a run."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._count = 0

    def write(self, entry: LogEntry) -> None:
        """Take an entry of the log (a log sink)."""
        if entry.level <= Level.WARNING:
            self._count += 1
            if self._count <= PROBLEMS_SHOWN:
                self._shown.append(str(entry))

    def lines(self) -> Iterator[str]:
        """Yield the first warnings and errors, and how many more there are."""
        yield from self._shown
        if self._count > PROBLEMS_SHOWN:
            yield f"{self._count - PROBLEMS_SHOWN} more warnings and errors were logged"


@dataclass(frozen=True, slots=True)
class Planned:
    """One run: its name, its policy and its configuration."""

    name: str
    policy: str
    config: Config


def plan(config: Config, plugins: Sequence[str], policies: Sequence[str]) -> Iterator[Planned]:
    """Yield a run for each policy with each of `plugins`, or with the configured plugins.

    If the configuration loads a compared plugin, that directive gives its `conf`, and only the
    plugin's own runs load it. Runs of files with the same name are named by their paths.
    """
    for policy in policies:
        for name, configured in _with_plugins(config, plugins):
            names: list[str] = [policy.rpartition(":")[2]] if len(policies) > 1 else []
            names += [name] if len(policies) == 1 or plugins else []
            yield Planned(", ".join(names), policy, configured)


def _with_plugins(config: Config, plugins: Sequence[str]) -> Iterator[tuple[str, Config]]:
    """Yield the name and the configuration for each plugin."""
    if not plugins:
        loads = [each.load for each in config.job_manager.plugins if each.load]
        yield ", ".join(Path(each).stem for each in loads) or "builtin plugins", config
        return
    directives = config.job_manager.plugins
    shared = [each for each in directives if not _is_one_of(each, plugins)]
    for plugin in plugins:
        own = [each for each in directives if _is_one_of(each, [plugin])]
        conf = own[-1].conf if own else {}
        loaded = [] if plugin == NO_PLUGIN else [PluginDirective(load=plugin, conf=conf)]
        job_manager = msgspec.structs.replace(config.job_manager, plugins=[*shared, *loaded])
        stem = Path(plugin).stem
        name = plugin if [Path(each).stem for each in plugins].count(stem) > 1 else stem
        if plugin == NO_PLUGIN:
            name = "no plugin"
        yield name, msgspec.structs.replace(config, job_manager=job_manager)


def _is_one_of(directive: PluginDirective, plugins: Iterable[str]) -> bool:
    return directive.load is not None and Path(directive.load).stem in {
        Path(each).stem for each in plugins
    }


def read_config_file(path: Path | None, edition: str | None) -> Config:
    """Return the configuration in the file of `--config`; without a file, the defaults.

    `edition` is that of `--edition`, which counts more than the file.

    Raises BadParameter, a usage error, for a file that cannot be read or is wrong.
    """
    try:
        if path is None:
            return read_config({}, edition=edition)
        return config_file.read_config_file(path, edition, trusted=True)
    except CommandError as error:
        raise click.BadParameter(error.message, param_hint="'--config'") from None


def find_workload(workload: Path) -> Path:
    """Return the path; if there is no such file, that of flux-trio's own log of this name."""
    if not workload.exists() and workload == Path(workload.name):
        for directory in WORKLOADS:
            if (directory / workload).exists():
                return directory / workload
    return workload


def read_jobs(
    workload: Path, limit: int | None, users: str | None, seed: int, cores_per_node: int
) -> list[WorkloadJob]:
    """Return the first `limit` jobs of a log, without users, with the log's, or with made-up ones.

    If the log has no core counts, each job has all `cores_per_node` of its nodes.
    """
    name = str(workload)
    try:
        lines = decode_log(find_workload(workload).read_bytes(), name, warn=remark)
        jobs = read_workload(lines, name, cores_per_node, warn=remark)[:limit]
    except OSError as error:
        raise CommandError(f"{workload}: {error.strerror}") from None
    except FormatError as error:
        raise CommandError(str(error)) from None
    if users is None:
        return [replace(job, user=None) for job in jobs]
    if users != COLUMN:
        return deal_users(jobs, int(users), seed)
    unknown = sum(job.user is None for job in jobs)
    if unknown == len(jobs):
        raise CommandError(f"{workload}: --users column: expected a column User, or an SWF log")
    if unknown:
        remark(f"{workload}: unknown user, named {NOBODY}: {unknown} of {len(jobs)} jobs")
    return [replace(job, user=job.user or NOBODY) for job in jobs]


# --- the figures of a run


_ALWAYS = (Outcome.COMPLETED, Outcome.TIMEOUT)  # printed even if the count is 0


def report_lines(result: SimulationResult) -> Iterator[str]:
    """Yield a line for each figure and one for what ran, names and values in columns."""
    for name, value in (*_figures(result.metrics), ("depth", result.depth)):
        yield f"{name:<22} {value}"


def _figures(metrics: Metrics) -> Iterator[tuple[str, str]]:
    yield "jobs", str(metrics.njobs)
    for outcome, count in metrics.outcomes.items():
        if count or outcome in _ALWAYS:
            yield f"  {_SAID.get(outcome, outcome.value)}", str(count)
    yield "makespan", short_duration(metrics.makespan_s)
    yield "mean wait", _seconds(metrics.wait_mean_s)
    yield "95th percentile wait", _seconds(metrics.wait_p95_s)
    slowdown = metrics.slowdown_mean
    yield "mean bounded slowdown", "-" if slowdown is None else f"{slowdown:.2f}"
    yield "utilisation", f"{metrics.utilisation:.1%}"


_SAID = {Outcome.TIMEOUT: "timed out"}


def _seconds(value: float | None) -> str:
    return "-" if value is None else short_duration(value)


def report_json(result: SimulationResult, seed: int) -> dict[str, Any]:
    """Return the same figures, times in seconds; null for a mean over no jobs."""
    metrics = result.metrics
    return {
        "seed": seed,
        "depth": result.depth,
        "jobs": metrics.njobs,
        "outcomes": {outcome.value: count for outcome, count in metrics.outcomes.items()},
        "makespan_s": metrics.makespan_s,
        "wait_mean_s": metrics.wait_mean_s,
        "wait_p95_s": metrics.wait_p95_s,
        "bounded_slowdown_mean": metrics.slowdown_mean,
        "utilisation": metrics.utilisation,
    }
