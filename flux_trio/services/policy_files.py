"""Scheduling policies of users: a class in a file, which the configuration names FILE.py:Class."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from flux_trio.config import Config, SchedConfig, is_policy_of_file
from flux_trio.cores.sched.tables import policies_by_queue
from flux_trio.jobtap import PluginError
from flux_trio.jobtap.loading import run_file
from flux_trio.policies import POLICIES, Policy

_METHODS: Final = ("arrived", "left", "freed", "reshaped", "decide")
_PACKAGE: Final = "flux_trio.policy_files."
"""Begins the name of a file's module: the state of a core may hold objects of this package only."""


def scheduler_policies(
    config: Config, policy: str | None = None
) -> tuple[SchedConfig, dict[str, str]]:
    """Return `[sched]` with the general policy, and the policy of each named queue.

    `policy` overrides both. The files of users' policies are run, if they have changed since then.
    Raises FormatError for an unknown policy, and PluginError for a file that is none.
    """
    for name in _names(config, policy):
        if is_policy_of_file(name):
            load_policy(name)
    return policies_by_queue(config, policy)


def load_policy(name: str) -> None:
    """Make the policy FILE.py:Class known under this name. Raises PluginError.

    An edited file is another module: objects of the class that it had before keep theirs.
    """
    file, _, cls = name.rpartition(":")
    path = Path(file).resolve()
    try:
        prefix = f"{_PACKAGE}{crc32(bytes(path) + path.read_bytes()):08x}_"
    except OSError as error:
        raise PluginError(f"no policy {path}: {error.strerror}") from None
    module = sys.modules.get(prefix + path.stem) or run_file(path, prefix, "policy")
    found = getattr(module, cls, None)
    if not isinstance(found, type):
        names = ", ".join(
            each.__name__
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__
        )
        raise PluginError(f"no policy {path}: expected one of its classes ({names}), got {cls}")
    if missing := [each for each in _METHODS if not callable(getattr(found, each, None))]:
        lacks = ", ".join(missing)
        raise PluginError(f"{path}: expected a policy, got a class {cls} without {lacks}")
    made: type[Policy] = found
    POLICIES[name] = made


def _names(config: Config, policy: str | None) -> Iterator[str]:
    """Yield the policies that the configuration names; each may be of another type than text."""
    if policy is not None:
        yield policy
        return
    yield config.sched.policy
    for queue in (None, *config.queues):
        name = config.policy_for(queue).scheduler.get("policy")
        if isinstance(name, str):
            yield name
