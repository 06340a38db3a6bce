"""The check that every event of a test is in its table, or listed as an error made on purpose."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flux_trio.editions.rfc27 import AllocType
from tests.planter.tables import TABLES
from tests.support.instance import environment
from tests.support.manager_script import ManagerScript
from tests.support.refusals import EXPECTED, none_but_expected, take_refused


@pytest.fixture
def freeing() -> ManagerScript:
    """The resources of job 1 are being freed."""
    m = ManagerScript(peers=True)
    m.running(1)
    m.execute(1, "finish", "release final")
    return m


def test_pair_without_a_row_fails_the_test_in_which_it_occurs(freeing: ManagerScript) -> None:
    """The job manager answers it by suspending the scheduler, as it does with other errors."""
    expected = pytest.raises(AssertionError, match="ALLOC FREEING DENY: occurred")
    with expected, none_but_expected():
        freeing.alloc(1, AllocType.DENY)


def test_listed_pair_fails_no_test(freeing: ManagerScript) -> None:
    freeing.freed(1)
    with none_but_expected():
        freeing.freed(1)


def test_no_pair_that_has_a_row_is_listed() -> None:
    for pair in EXPECTED:
        name, state, event = pair.split()
        row = next(row for each, row in TABLES[name].rows.items() if each.name == state)
        assert event not in [each.name for each in row], pair


@pytest.mark.real
def test_pair_in_an_instance_that_the_test_starts_is_reported_to_it() -> None:
    program = (
        "from tests.support.manager_script import ManagerScript\n"
        "m = ManagerScript(peers=True)\n"
        "m.running(1)\n"
        "m.execute(1, 'finish', 'release final')\n"
        "m.alloc(1)\n"
    )
    take_refused()
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True)
    assert take_refused() == {"ALLOC FREEING SUCCESS"}
    assert take_refused() == set()
