"""`flux-trio view --live` in headless Chromium, beside a real instance."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.instance import RunningInstance, running_instance

pytestmark = pytest.mark.real

COMES = """
return new Promise(done => {{
  const look = () => {claim} ? done(true) : setTimeout(look, 20);
  look();
}});
"""
STATUS = "return document.getElementById('live').textContent"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    with running_instance(tmp_path_factory.mktemp("instance")) as running:
        yield running


@contextmanager
def viewing(instance: RunningInstance) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command beside the instance, and the address that it prints."""
    process = instance.popen("view", "--live")
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.communicate()


def comes(browser: Browser, claim: str) -> None:
    """Wait until a claim in JavaScript holds in the page."""
    assert browser.run(COMES.format(claim=claim))


def test_rows_of_a_job_come_and_a_reload_keeps_them(
    browser: Browser, instance: RunningInstance
) -> None:
    with viewing(instance) as (process, url):
        browser.open(url)
        jobid = instance.submitted("true")
        comes(browser, f"viewer.trace.jobs.get('{jobid}')?.bars.at(-1)?.state === 'INACTIVE'")
        assert browser.run("return location.hash") == ""
        parties = browser.run("return [...viewer.trace.parties.keys()]")
        assert {"kvs", "sched", "job-exec", "job-ingest", "job-list"} <= set(parties)
        comes(browser, "document.querySelector('.job .bar.RUN')")
        title = browser.run("return document.querySelector('#broken h2').textContent")
        assert title == "No clause is broken so far"
        browser.driver.refresh()
        comes(browser, f"viewer.trace.jobs.get('{jobid}')?.bars.at(-1)?.state === 'INACTIVE'")
        browser.open(url)
        comes(browser, "document.getElementById('live').textContent.includes('has been used')")
        process.terminate()
        process.wait()
        assert instance.ok("jobs", "-a", "-n", "-o", "{result}").split() == ["COMPLETED"]


def test_end_of_the_instance_is_told(browser: Browser, tmp_path: Path) -> None:
    with running_instance(tmp_path / "instance") as instance, viewing(instance) as (process, url):
        browser.open(url)
        comes(browser, "document.getElementById('live').textContent === 'live'")
        instance.ok("submit", "true")
        comes(browser, "viewer.trace.rows.length")
        assert instance.stop() == 0
        assert process.wait() == 1
        comes(browser, "document.getElementById('live').textContent !== 'live'")
        assert browser.run(STATUS)


def test_port_that_is_in_use(instance: RunningInstance) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = instance.call("view", "--live", "--port", str(port))
        assert (result.returncode, result.stdout) == (1, "")
        assert f"flux-trio view: ERROR: port {port}: " in result.stderr
