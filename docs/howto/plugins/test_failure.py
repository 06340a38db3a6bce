"""A plugin that fails, and a test about its failure."""

import pytest

from flux_trio import jobtap

PRIORITIES = {"physics": 300}


class ByBank(jobtap.Plugin):
    @jobtap.on("job.state.priority")
    def priority(self, job):
        return PRIORITIES[job.jobspec.system["bank"]]


@pytest.mark.flux_breaks("plugin")
def test_a_job_without_a_bank_is_held(plugin_harness):
    harness = plugin_harness(ByBank())
    assert harness.submit().state.name == "PRIORITY"
    (error,) = harness.plugin_errors
    assert repr(error) == "KeyError('bank')"


def test_a_job_with_a_bank_goes_on(plugin_harness):
    job = plugin_harness(ByBank()).submit(attributes={"system.bank": "physics"})
    assert job.priority == 300
