"""The runs of one `flux-trio simulate`: one for each plugin that is compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from flux_trio.broker import ModuleNotStarted
from flux_trio.cli.errors import CommandError, remark, sole_error
from flux_trio.config import Config, PluginDirective, parse_config
from flux_trio.formats import FormatError
from flux_trio.sim import SimulationStalled, WorkloadJob, deal_users, read_workload

COLUMN = "column"  # --users column: the users of the log


@dataclass(frozen=True, slots=True)
class Planned:
    """One run: its name and its configuration."""

    name: str
    config: Config


def plan(config: Config, plugins: Sequence[str]) -> Iterator[Planned]:
    """Yield a run for each of `plugins`, or without any, one run with the configured plugins.

    If the configuration loads a compared plugin, that directive gives its `conf`, and only the
    plugin's own run loads it. Runs of files with the same name are named by their paths.
    """
    if not plugins:
        loads = [each.load for each in config.job_manager.plugins if each.load]
        yield Planned(", ".join(Path(each).stem for each in loads) or "builtin plugins", config)
        return
    directives = config.job_manager.plugins
    shared = [each for each in directives if not _is_one_of(each, plugins)]
    for plugin in plugins:
        own = [each for each in directives if _is_one_of(each, [plugin])]
        conf = own[-1].conf if own else {}
        loaded = [*shared, PluginDirective(load=plugin, conf=conf)]
        job_manager = msgspec.structs.replace(config.job_manager, plugins=loaded)
        stem = Path(plugin).stem
        name = plugin if [Path(each).stem for each in plugins].count(stem) > 1 else stem
        yield Planned(name, msgspec.structs.replace(config, job_manager=job_manager))


@contextmanager
def expected_failures() -> Iterator[None]:
    """Report a run that cannot begin or never ends as a CommandError with its text."""
    try:
        yield
    except (SimulationStalled, BaseExceptionGroup) as raised:
        error = sole_error(raised, (SimulationStalled, ModuleNotStarted))
        if error is None:
            raise
        raise CommandError(str(error)) from None


def _is_one_of(directive: PluginDirective, plugins: Iterable[str]) -> bool:
    return directive.load is not None and Path(directive.load).stem in {
        Path(each).stem for each in plugins
    }


def read_config_file(path: Path | None) -> Config:
    """Return the configuration of a simulation; without a file, the defaults."""
    if path is None:
        return Config()
    try:
        return parse_config(path.read_text(encoding="utf-8"), str(path), warn=remark)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: expected text in UTF-8: {error}") from None
    except FormatError as error:
        raise CommandError(str(error)) from None


def read_jobs(
    workload: Path, limit: int | None, users: str | None, seed: int, cores_per_node: int
) -> list[WorkloadJob]:
    """Return the first `limit` jobs of a log, without users, with the log's, or with made-up ones.

    If the log has no core counts, each job has all `cores_per_node` of its nodes.
    """
    try:
        with workload.open(encoding="utf-8") as lines:
            jobs = read_workload(lines, str(workload), cores_per_node)[:limit]
    except OSError as error:
        raise CommandError(f"{workload}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{workload}: expected text in UTF-8: {error}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None
    if users is None:
        return [replace(job, user=None) for job in jobs]
    if users != COLUMN:
        return deal_users(jobs, int(users), seed)
    if any(job.user is None for job in jobs):
        raise CommandError(f"{workload}: --users column: expected a column User, or an SWF log")
    return jobs
