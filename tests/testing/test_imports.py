"""What pytest imports wherever flux-trio is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flux_trio.testing

_IMPORTED = """
import importlib.metadata, sys
(found,) = importlib.metadata.entry_points(group="pytest11", name="flux-trio")
found.load()
print(*(name for name in sys.modules if name.partition(".")[0] in ("flux_trio", "msgspec", "trio")))
"""


def test_plugin_of_pytest_imports_nothing_of_the_package_but_itself() -> None:
    ended = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, check=True)
    names = {"flux_trio", "flux_trio._version", "flux_trio.testing"}
    assert set(ended.stdout.decode().split()) == names | {"flux_trio.testing.pytest_plugin"}


def test_every_name_is_found_where_it_is_used_first() -> None:
    for name in flux_trio.testing.__all__:
        assert getattr(flux_trio.testing, name) is not None
        assert name in dir(flux_trio.testing)


def test_unknown_name_is_an_attribute_error() -> None:
    name = "watcher"
    with pytest.raises(AttributeError, match=r"module flux_trio\.testing has no attribute watcher"):
        getattr(flux_trio.testing, name)
