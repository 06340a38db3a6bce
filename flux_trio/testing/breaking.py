"""The names of what a test may break on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Final

from flux_trio.lab.properties.plugin_failures import no_plugin_fails
from flux_trio.lab.stories.telling import clause_names, property_names

PLUGIN: Final = no_plugin_fails.name
"""The property that no handler of a plugin fails."""


def unknown_text(breaking: Collection[str], more: Collection[str] = ()) -> str:
    """Return what is wrong with the first name of no clause or property; "" if each one is known.

    `more` are the names of the user's own properties.
    """
    if not breaking:
        return ""
    clauses, properties = clause_names(), property_names().union(more)
    for name in sorted(set(breaking) - clauses - properties):
        close = difflib.get_close_matches(name, sorted(clauses | properties), n=1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return (
            "what the test breaks: expected clauses, such as 27.alloc.1, or properties "
            f"({', '.join(sorted(properties))}), got {name}{meant}"
        )
    return ""
