"""What both harnesses do with plugins: make them, and raise their errors in the test."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from flux_trio.jobtap import HandlerFailed, Plugin, PluginSource, made


class GivenPlugins:
    """The plugins that an instance under test is given.

    Each job manager has new ones. A plugin that was made already cannot be made anew: that object
    is in all job managers.
    """

    def __init__(self, sources: Iterable[PluginSource]) -> None:
        sources = list(sources)
        self.present = [made(each) for each in sources]
        """Those of the last job manager, in the order of `sources`."""
        self._unused = set(range(len(sources)))  # places in `present`: no job manager has these
        self.makers = [partial(self._make, place, each) for place, each in enumerate(sources)]
        """By place, the function that returns the plugin of the next job manager."""

    def _make(self, place: int, source: PluginSource) -> Plugin:
        if place in self._unused:
            self._unused.discard(place)
        else:
            self.present[place] = made(source)
        return self.present[place]


class PluginErrors:
    """The errors of plugins so far, in order; each is raised in the test once."""

    def __init__(self) -> None:
        self.found: list[BaseException] = []
        self._nraised = 0

    def raise_news(self) -> None:
        """Raise the first error since the last call, if there is one.

        Raises HandlerFailed in place of an error that is no Exception: it would end pytest.
        """
        __tracebackhide__ = True
        first, self._nraised = self._nraised, len(self.found)
        for error in self.found[first:]:
            if isinstance(error, Exception):
                raise error from error.__cause__
            raise HandlerFailed("\n".join(error.__notes__)) from error
