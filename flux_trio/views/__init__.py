"""Views: what happened, and what is allowed, as pages and pictures for a reader.

Each picture is one self-contained text (SVG, HTML or Markdown) made from a trace, from plain
numbers, or from the protocols' own tables. Nothing here runs or decides anything.
"""

from flux_trio.views.simulation_plot import Steps, draw_simulation
from flux_trio.views.state_table import draw_states, table_markdown

__all__ = ["Steps", "draw_simulation", "draw_states", "table_markdown"]
