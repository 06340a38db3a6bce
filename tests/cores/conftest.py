"""What most tests of the job manager begin with; a module that begins otherwise has its own `m`."""

from __future__ import annotations

import pytest

from tests.support.manager_script import ManagerScript


@pytest.fixture
def m() -> ManagerScript:
    """A job manager with a scheduler and an execution service."""
    return ManagerScript(peers=True)
