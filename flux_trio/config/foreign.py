"""Tables and keys of flux-core's configuration that mean nothing to this project.

A site's own file is taken as it is: what concerns an overlay network, systemd, the IMP, or another
scheduler is left out, and named in a warning. The names are those of flux-config(5) and its
pages, and of the schedulers and services that the framework's other projects add.
"""

from __future__ import annotations

from typing import Any, Final

TABLES: Final = frozenset(
    {
        "accounting",
        "archive",
        "bootstrap",
        "content",
        "content-sqlite",
        "cron",
        "fluxion",
        "fluxion-qmanager",
        "fluxion-resource",
        "heartbeat",
        "ingest",
        "job-list",
        "sched-fluxion-feasibility",
        "sched-fluxion-qmanager",
        "sched-fluxion-resource",
        "sched-simple",
        "systemd",
        "tbon",
    }
)
KEYS: Final = {
    "exec": frozenset(
        {
            "barrier-timeout",
            "imp",
            "job-shell",
            "kill-signal",
            "max-kill-count",
            "max-kill-timeout",
            "max-start-delay-percent",
            "sdexec-properties",
            "sdexec-stop-timer-sec",
            "sdexec-stop-timer-signal",
            "service",
            "service-override",
            "term-signal",
            "testexec",
        }
    ),
    "job-manager": frozenset({"housekeeping", "journal-size-limit"}),
    "kvs": frozenset({"checkpoint-period", "gc-threshold"}),
    "resource": frozenset({"norestrict", "path", "rediscover", "reserve", "scheduling"}),
}
"""Of tables that this project has as well: the keys that only flux-core has."""


def without_foreign(raw: object) -> tuple[object, list[str]]:
    """A configuration without what is flux-core's alone, and the names of that.

    The names are such as `[tbon]` and `exec.imp`. What is no table is returned as it is, to be
    refused.
    """
    if not isinstance(raw, dict):
        return raw, []
    kept: dict[str, Any] = {}
    ignored = []
    for name, table in raw.items():
        if name in TABLES and isinstance(table, dict):
            ignored.append(f"[{name}]")
        elif name in KEYS and isinstance(table, dict):
            foreign = KEYS[name] & set(table)
            ignored += [f"{name}.{key}" for key in sorted(foreign)]
            kept[name] = {key: value for key, value in table.items() if key not in foreign}
        else:
            kept[name] = table
    return kept, ignored
