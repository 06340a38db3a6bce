"""The files of a story, as `flux-trio fuzz` and `flux-trio explore` write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flux_trio.cli.errors import CommandError, write_text
from flux_trio.faults.plan import Plan, plan_to_toml
from flux_trio.views import Story, story_page, story_text


def write_story_files(
    directory: Path, plan: Plan, story: Story, more: Mapping[str, str] | None = None
) -> None:
    """Write plan.toml, story.txt, story.html and `more` files, by name. Raises CommandError."""
    files = {
        "plan.toml": plan_to_toml(plan),
        "story.txt": story_text(story),
        "story.html": story_page(story),
        **(more or {}),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    for name, text in files.items():
        write_text(directory / name, text)
