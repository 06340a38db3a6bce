"""Jobs of all shapes, from hypothesis, in an instance each."""

from hypothesis import given, settings

from flux_trio.testing import InstanceHarness
from flux_trio.testing.strategies import jobspecs


@settings(max_examples=10, deadline=None)
@given(jobspecs())
def test_every_job_ends(jobspec):
    with InstanceHarness() as instance:
        job = instance.submit(jobspec)
        instance.wait(job)
        assert job.state.name == "INACTIVE"
