"""The comparison of simulated runs: their figures, charts, and the page."""

from flux_trio.views.comparison.figures import FailedRun, Served, ServedRun, Waited
from flux_trio.views.comparison.page import comparison_page

__all__ = ["FailedRun", "Points", "Served", "ServedRun", "Waited", "comparison_page"]
