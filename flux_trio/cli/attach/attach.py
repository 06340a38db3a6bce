"""`flux-trio attach`: the commands that join a live flux-core; each is a module of this package."""

from __future__ import annotations

import click


@click.group()
def attach() -> None:
    """Join a live flux-core: the instance at --to URI, else the one that FLUX_URI names."""
