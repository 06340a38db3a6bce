from __future__ import annotations

import sys

import pytest

from tests.support.instance import RunningInstance

pytestmark = pytest.mark.real


def test_commands_in_a_job_reach_its_instance(instance: RunningInstance) -> None:
    inner = '"$0" -m flux_trio jobs -n -o {id.f58}; echo $FLUX_JOB_ID'
    listed, own = instance.ok("run", "sh", "-c", inner, sys.executable).splitlines()[-2:]
    assert listed == own
