"""What holds for all tests of a process."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Let no collection look through what was imported, and the tests: they are there to the end.

    A plugin that is removed is collected at once, and many tests remove some.
    """
    gc.collect()
    gc.freeze()
