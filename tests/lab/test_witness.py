"""The witness of a job leaves no task behind that nobody ends."""

from __future__ import annotations

import subprocess

import pytest

from flux_trio.lab.exercise.witness import Witness
from tests.support.instance import DEADLINE_S


@pytest.mark.parametrize("method", ["ends_when_let", "does_not_heed"])
def test_task_ends_when_its_witness_is_gone(method: str) -> None:
    with Witness() as witness:
        task = subprocess.Popen(getattr(witness, method)())
        while not witness.nstarts:
            assert task.poll() is None
    try:
        assert task.wait(DEADLINE_S) == 0
    finally:
        task.kill()
