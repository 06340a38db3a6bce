"""A test with an instance: a fixture starts one for the module, and stops it at the end."""

import pytest

from flux_trio.client import command_jobspec
from flux_trio.embedding import start_instance


@pytest.fixture(scope="module")
def client():
    with start_instance(nodes=2, simulate=True) as instance, instance.connect() as client:
        yield client


def test_a_job_gets_both_nodes(client):
    job = client.submit(command_jobspec(["solve"], nnodes=2, duration=0.1))
    assert job.result() == 0
    assert job.info()["nnodes"] == 2
