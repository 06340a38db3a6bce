"""What the judge says of a running instance, in the page of `flux-trio view --live`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
import trio

from flux_trio.cli.judge.live_view import LiveRows
from flux_trio.cli.judge.view_server import Feed, ViewServer
from flux_trio.client import find_instance, open_client
from flux_trio.judge import load_clauses
from flux_trio.messages import FluxError, topics
from flux_trio.trace import record_to_json
from flux_trio.views.viewer import live_page
from tests.support.browser import Browser
from tests.support.instance import running_instance
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of
from tests.views.viewer.test_live import comes, viewing


@contextmanager
def serving(feed: Feed) -> Iterator[str]:
    """Serve the page of a feed in a thread of its own; yields the address."""
    page, policy = live_page("a running instance", load_clauses(), [], ["6.response.1"])
    server = ViewServer(page, policy, feed)
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []
    started = threading.Event()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            stop.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            await nursery.start(partial(server.serve, 0))
            started.set()

    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield server.url
    finally:
        token, scope = stop[0]
        token.run_sync_soon(scope.cancel)
        thread.join(60)


@pytest.mark.real
def test_what_a_client_breaks_is_told_while_the_instance_runs(
    browser: Browser, tmp_path: Path
) -> None:
    async def break_a_clause() -> None:
        async with open_client(*find_instance(instance.env)) as client:
            with suppress(FluxError):
                await client.call(topics.EXEC_HELLO, {"service": 5})

    with running_instance(tmp_path / "instance") as instance, viewing(instance) as (_, url):
        browser.open(url)
        comes(browser, "document.getElementById('live').textContent === 'live'")
        anyio.run(break_a_clause)
        comes(browser, "document.querySelector('#broken li b')")
        browser.click("#broken li button")
        text = browser.run("return viewer.trace.rows[viewer.chosen].text")
        assert text.startswith("request job-manager.exec-hello")
        instance.stop(signal.SIGKILL)  # else what is broken would fail the test


def test_broken_clause_is_listed_and_leads_to_its_record(browser: Browser) -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[-1]
    feed = Feed()
    rows = LiveRows(feed.put, feed.keep)
    for record in edit_payload(trace, alloc, id="seven")[60:]:
        rows.add({"record": record_to_json(record).decode()})
    with serving(feed) as url:
        browser.open(url)
        comes(browser, "document.querySelector('#broken li b')")
        texts = browser.run(
            "return [...document.querySelectorAll('#broken h2, #broken li b, #head p')]"
            ".map(each => each.textContent)"
        )
        assert texts[1].endswith("need the beginning of the trace: 6.response.1.")
        assert texts[2:] == ["1 broken", "27.alloc.2 by job-manager"]
        browser.click("#broken li button")
        chosen = browser.run("return viewer.trace.rows[viewer.chosen].n")
        assert chosen == alloc.n
        assert browser.run("return document.querySelector('.row.selected.broken') !== null")
        browser.driver.refresh()
        comes(browser, "document.querySelector('#broken li b')")
