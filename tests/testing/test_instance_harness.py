"""What the calls of an instance under test do where nothing usual can happen."""

from __future__ import annotations

import pytest

from flux_trio.broker import ModuleCrashed
from flux_trio.testing import InstanceHarness


@pytest.mark.parametrize("seed", range(3))
def test_crash_of_the_kvs_is_the_error_of_that_call_and_of_those_after_it(seed: int) -> None:
    with InstanceHarness(seed=seed) as instance:
        for call in (lambda: instance.crash("kvs"), instance.submit):
            with pytest.raises(ModuleCrashed, match="module kvs: ModuleKilled: killed on request"):
                call()


def test_call_after_the_end_of_the_block_is_refused() -> None:
    with InstanceHarness() as instance:
        pass
    with pytest.raises(RuntimeError, match="expected a call before the end of the instance harn"):
        instance.submit()
