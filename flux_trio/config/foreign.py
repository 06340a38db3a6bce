"""Tables and keys of flux-core's configuration that have no meaning in this project.

A site can use its existing file. Settings of the overlay network, systemd, the IMP or another
scheduler are ignored, and a warning names them. The names come from flux-config(5) and its pages,
and from the schedulers and services of the framework's other projects.
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
"""Keys that only flux-core has, by table, in tables that this project also has."""


def without_foreign(raw: object) -> tuple[object, list[str]]:
    """Return the configuration without flux-core's own parts, and the names of those parts.

    The names have the form `[tbon]` or `exec.imp`. A value that is not a table stays unchanged; the
    caller refuses it.
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
