"""The viewer: a trace in a browser, with lanes, arrows and bars that are drawn as one scrolls.

`Rows` makes a row of each record, `trace_page` the page of a judged trace. The files beside this
one are the page's style and script.
"""

from flux_trio.views.viewer.page import Broken, Data, broken_at, live_page, trace_page, viewer_page
from flux_trio.views.viewer.rows import Row, Rows

__all__ = ["Broken", "Data", "Row", "Rows", "broken_at", "live_page", "trace_page", "viewer_page"]
