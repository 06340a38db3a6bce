"""The files that `flux-trio jobtap new` writes: a working plugin and a passing test of it."""

from __future__ import annotations

from typing import Final

PLUGIN: Final = '''\
"""NAME: one sentence on what this plugin is for."""

from flux_trio import jobtap


class CLASS(jobtap.Plugin):
    """Rejects jobs of more than `max-nodes` nodes, and gives small jobs a higher priority."""

    name = "NAME"

    @jobtap.on("conf.update")
    def configure(self, config: jobtap.Config) -> None:
        """Reject a conf with a wrong value; the plugin is then not loaded."""
        if not isinstance(self.conf.get("max-nodes", 0), int):
            raise jobtap.Reject("max-nodes: expected a number of nodes")

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Reject a job with one sentence for the user."""
        limit = self.conf.get("max-nodes", 0)
        nnodes = job.jobspec.nnodes or 1
        if limit and nnodes > limit:
            raise jobtap.Reject(f"{nnodes} nodes are more than {limit}")

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        """Return the priority: 0 holds the job, 4294967295 is the highest."""
        return 1000 * job.urgency // (job.jobspec.nnodes or 1)

    running = jobtap.counter(jobtap.State.RUN, key=lambda job: job.userid)

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, object]:
        """Return data that `flux-trio jobtap query NAME` shows in addition to its own."""
        return {"max-nodes": self.conf.get("max-nodes", 0)}
'''

TEST: Final = '''\
"""NAME, driven job by job without a running instance."""

from pathlib import Path

import pytest

from flux_trio import jobtap
from flux_trio.testing import Rejected

PLUGIN = Path(__file__).with_name("FILE")


def load(**conf):
    plugin = jobtap.load_file(PLUGIN)
    plugin.conf = conf
    return plugin


def test_small_jobs_come_first(plugin_harness):
    harness = plugin_harness(load())
    small, large = harness.submit(nnodes=1), harness.submit(nnodes=4)
    assert small.priority > large.priority > 0
    small.run()
    assert small.state == jobtap.State.INACTIVE


def test_job_of_too_many_nodes_is_rejected_with_the_limit(plugin_harness):
    harness = plugin_harness(load(**{"max-nodes": 2}))
    harness.submit(nnodes=2)
    with pytest.raises(Rejected, match="4 nodes are more than 2"):
        harness.submit(nnodes=4)


def test_running_jobs_are_counted_until_they_end(plugin_harness):
    plugin = load()
    harness = plugin_harness(plugin)
    job = harness.submit(nnodes=1)
    assert plugin.running.total == 0
    job.grant()
    assert plugin.running.total == 1
    job.start()
    job.finish()
    assert plugin.running.total == 0


def test_limit_that_is_no_number_is_refused(plugin_harness):
    with pytest.raises(jobtap.PluginError, match="max-nodes: expected a number"):
        plugin_harness(load(**{"max-nodes": "two"}))
'''


def skeleton(name: str) -> dict[str, str]:
    """Return the texts of the files of a plugin `name`, by file name."""
    stem = name.replace("-", "_")
    words = {
        "CLASS": "".join(word.capitalize() for word in stem.split("_")),
        "FILE": f"{stem}.py",
        "NAME": name,
    }
    return {f"{stem}.py": _filled(PLUGIN, words), f"test_{stem}.py": _filled(TEST, words)}


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
