from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accounts
import click.testing
import pytest
from multifactor import Multifactor

from flux_trio import jobtap
from flux_trio.testing import PluginHarness
from flux_trio.testing.pytest_plugin import StartHarness

Edit = Callable[..., None]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Where the accounts of the test are."""
    return str(tmp_path / "site.db")


@pytest.fixture
def run(database: str) -> Edit:
    """Any subcommand of the command that edits accounts."""

    def invoke(*args: str) -> None:
        result = click.testing.CliRunner().invoke(accounts.main, [database, *args])
        assert result.exit_code == 0, result.output

    return invoke


@pytest.fixture
def edit(run: Edit) -> Edit:
    """Sets a row."""
    return lambda *args: run("set", *args)


@pytest.fixture
def start(database: str, edit: Edit, plugin_harness: StartHarness) -> Callable[..., PluginHarness]:
    """A harness with a bank of two users; `conf` goes to the plugin."""
    edit("bank", "physics")
    edit("user", "ann", "bank=physics", "userid=1001")
    edit("user", "bob", "bank=physics", "userid=1002")

    def load(*others: jobtap.Plugin, **conf: Any) -> PluginHarness:
        plugin = Multifactor()
        plugin.conf = {"database": database, "record-usage": False, "interval": 60.0} | conf
        return plugin_harness(plugin, *others)

    return load


@pytest.fixture
def load_again(database: str) -> Callable[[PluginHarness], None]:
    """The plugin goes, and comes from its file."""

    def load(harness: PluginHarness) -> None:
        harness.remove("multifactor")
        conf = {"database": database, "record-usage": False}
        again = {"load": "plugins/multifactor.py", "conf": conf}
        harness.request("job-manager.jobtap", again)

    return load
