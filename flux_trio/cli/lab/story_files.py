"""The files of a story, as `flux-trio fuzz` writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from flux_trio.cli.terminal.errors import CommandError, write_text
from flux_trio.lab.plans.files import plan_to_toml, with_files
from flux_trio.lab.plans.plan import Plan
from flux_trio.views import Story, story_page, story_text


def write_story_files(
    directory: Path, plan: Plan, story: Story, more: Mapping[str, str] | None = None
) -> None:
    """Write plan.toml, story.txt, story.html and `more` files, by name. Raises CommandError.

    The plan names files of plugins from `directory`, so that all may be moved together.
    """
    near = with_files(plan, lambda files: near_to(directory, files))
    files = {
        "plan.toml": plan_to_toml(near),
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


def near_to(directory: Path, paths: Iterable[str | Path]) -> Iterator[str]:
    """Yield the paths as they are seen from `directory`."""
    begin = directory.resolve()
    for path in paths:
        yield os.path.relpath(Path(path).resolve(), begin)
