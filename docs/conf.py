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
html_static_path = ["_static"]
html_css_files = ["pages.css"]
smartquotes = False  # they would turn `--statedir` in prose into a dash and a word
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
