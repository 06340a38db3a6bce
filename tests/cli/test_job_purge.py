"""`flux-trio job purge` on a real instance."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.store.state_directory import STATE_FILE
from tests.support.instance import invoked, running_instance

pytestmark = pytest.mark.real

OUTPUT_BYTES = 4_000_000


def test_state_file_shrinks_when_the_jobs_are_gone(tmp_path: Path) -> None:
    state = tmp_path / STATE_FILE
    with running_instance(tmp_path) as instance:
        instance.ok("submit", "--wait", "sh", "-c", f"yes | head -c {OUTPUT_BYTES}")
        full = state.stat().st_size
        told = instance.ok("job", "purge", "--num-limit=0", "--force")
        assert told == "purged 1 inactive jobs, 0 remaining\n"
    assert full > OUTPUT_BYTES
    assert state.stat().st_size < OUTPUT_BYTES / 10
    assert not list((tmp_path / "shell" / "jobs").iterdir())
    assert "nothing is damaged" in invoked("fsck", "--statedir", tmp_path).stdout
