"""Tests of bank-shares."""

import pytest
from bank_shares import BankShares

from flux_trio import jobtap


@pytest.fixture
def file(tmp_path):
    return tmp_path / "shares.json"


def start(plugin_harness, file):
    plugin = BankShares()
    plugin.conf = {"file": str(file)}
    return plugin_harness(plugin)


def submit(harness, bank):
    return harness.submit(attributes={"system.bank": bank})


def test_larger_share_comes_first_then_urgency(plugin_harness, file):
    file.write_text('{"physics": 3, "biology": 1}')
    harness = start(plugin_harness, file)
    harness.wait_until(lambda: submit(harness, "biology").priority == 100_000)
    assert submit(harness, "physics").priority == 300_000
    urgent = submit(harness, "physics")
    urgent.set_urgency(18)
    assert urgent.priority == 302_000
    assert submit(harness, "nobody").priority == 0


def test_jobs_wait_until_shares_are_known_and_follow_them(plugin_harness, file):
    harness = start(plugin_harness, file)
    job = submit(harness, "physics")
    assert job.state == jobtap.State.PRIORITY
    harness.wait_until(lambda: any("shares as before" in line for line in harness.log))
    file.write_text('{"physics": 2}')
    harness.advance(60)
    harness.wait_until(lambda: job.priority == 200_000)
    assert job.state == jobtap.State.SCHED
    assert not any(call.error for call in harness.calls_of("bank-shares"))


def test_users_are_told_the_share(plugin_harness, file):
    def said(job):
        return harness.request("job-manager.explain", {"id": job.id})["said"][-1]["text"]

    harness = start(plugin_harness, file)
    job = submit(harness, "physics")
    assert said(job) == "the shares are not known yet"
    file.write_text('{"physics": 2}')
    harness.advance(60)
    harness.wait_until(lambda: job.priority == 200_000)
    assert said(job) == "bank physics has the share 2"


def test_conf_without_a_file_is_refused(plugin_harness):
    with pytest.raises(jobtap.PluginError, match="which file"):
        plugin_harness(BankShares())
