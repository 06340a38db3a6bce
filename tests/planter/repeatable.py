"""Hypothesis without chance: each run of a test draws the same examples."""

from __future__ import annotations


def draw_the_same_examples() -> None:
    """Make hypothesis draw the same examples in every run, and keep them nowhere.

    To be called after pytest has imported it, or its assertions are not rewritten.
    """
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "planted", settings.default, derandomize=True, database=None, phases=phases
    )
    settings.load_profile("planted")
