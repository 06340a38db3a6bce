"""Sphinx configuration; `make docs` builds the pages into docs/_build."""

from docs import make_judge
from flux_trio import __version__

make_judge.write()

project = "flux-trio"
author = "the flux-trio authors"
release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"flux-trio {__version__}"
exclude_patterns = ["_build", "reference/tables/*.md", "reference/jobtap/*.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
