"""Flux's job manager, scheduler, execution and resource protocols, made executable on Trio."""

from flux_trio._version import __version__

__all__ = ["__version__"]
