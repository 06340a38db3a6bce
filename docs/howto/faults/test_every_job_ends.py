"""The property holds in a world without plugins, and finds a job that a plugin holds for ever."""

from pathlib import Path

import pytest
from every_job_ends import every_job_ends

from flux_trio.testing import PropertyBroken, WorldHarness

STARVES = """
from flux_trio import jobtap


@jobtap.on("job.state.priority", "job.priority.get")
def starve(job):
    return jobtap.UNAVAILABLE
"""


@pytest.mark.flux_seeds(5)
def test_every_job_ends(world: WorldHarness) -> None:
    world.draw()
    world.play(every_job_ends)


def test_starved_job_is_found(world: WorldHarness, tmp_path: Path) -> None:
    plugin = tmp_path / "starves.py"
    plugin.write_text(STARVES)
    world.configure(plugins=[str(plugin)])
    world.submit()
    world.play()
    with pytest.raises(PropertyBroken, match="every-job-ends"):
        world.play(every_job_ends)
