"""`flux-trio demo`, in an instance and with one of its own."""

from __future__ import annotations

import pytest

from tests.support.instance import FLUX_TRIO, flux_trio

pytestmark = [pytest.mark.real, pytest.mark.gate]

CHECKED = (
    "every job is in the table; {n} tasks on {n} nodes wrote output; its eventlog is in order; "
    "each job ended as it should; a job runs on while the scheduler is reloaded; and ends well"
)


def test_instance_is_shown_from_inside() -> None:
    done = flux_trio("start", "-s", "1", *FLUX_TRIO, "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"\nChecked: {CHECKED.format(n=1)}.\n")


def test_instance_of_its_own_is_restarted() -> None:
    done = flux_trio("demo")
    assert (done.returncode, done.stderr) == (0, "")
    stopped = "the instance stops in good order"
    ends = f"{stopped}; after a restart every job is still there; {stopped}.\n"
    assert done.stdout.endswith(f"\nChecked: {CHECKED.format(n=4)}; {ends}")
