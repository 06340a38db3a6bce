"""Routers at the native door: what is behind a `flux proxy` is served as if it had come itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.attach.handle import FluxHandle, open_flux
from flux_trio.messages import FluxError, Request, respond_stream, topics
from flux_trio.transports import TransportError
from tests.support.instance import FLUX_TRIO, environment
from tests.support.real_flux import NEEDS_FLUX

pytestmark = NEEDS_FLUX

WAIT_S = 120.0  # only what hangs takes so long
SERVICE = "foreign"
SHELL_LINE = "echo $FLUX_URI; read line"


def flux(uri: str, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Flux's own programs against the instance at `uri`."""
    return subprocess.run(
        ["flux", *args],
        env={**os.environ, "FLUX_URI": uri},
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def said(uri: str, *args: str) -> str:
    done = flux(uri, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An instance of four nodes in edition current."""
    statedir = tmp_path_factory.mktemp("instance") / "s"
    command = [*FLUX_TRIO, "start", "--edition", "current", "-s", "4", "--statedir", str(statedir)]
    ready = [sys.executable, "-c", "print('ready', flush=True); input()"]
    with subprocess.Popen(
        [*command, *ready],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield f"local://{statedir}/local-0"
        running.communicate("\n", timeout=WAIT_S)


@contextmanager
def proxy(uri: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A `flux proxy`, and the address that programs behind it have."""
    with subprocess.Popen(
        ["flux", "proxy", uri, SHELL_LINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip(), running
        running.kill()


async def serve_one(service: FluxHandle) -> int:
    """Be the execution service for one job; return its id."""
    while True:
        for message in await service.receive():
            if isinstance(message, Request) and message.topic == f"{SERVICE}.start":
                assert isinstance(message.payload, dict)
                jobid = int(message.payload["id"])
                for kind, data in (
                    ("start", {}),
                    ("finish", {"status": 0}),
                    ("release", {"ranks": "all", "final": True}),
                ):
                    answer = {"id": jobid, "type": kind, "data": data}
                    service.answer(respond_stream(message, answer))
                return jobid


async def serve_until_killed(uri: str, behind: str, running: subprocess.Popen[str]) -> None:
    async with open_flux(behind, "foreign") as service:
        service.register(SERVICE)
        await service.wait_settled()
        await service.call(topics.EXEC_HELLO, {"service": SERVICE})
        jobid = said(uri, "submit", "true")
        assert await serve_one(service) == int(said(uri, "job", "id", "--to=dec", jobid))
        wait = ("job", "wait-event", "-t", "60", jobid, "clean")
        await trio.to_thread.run_sync(said, uri, *wait)
        running.kill()
        await trio.sleep_forever()  # the end of the connection ends the block


async def test_an_execution_service_behind_a_proxy_runs_jobs_until_the_proxy_is_killed(
    uri: str,
) -> None:
    refused = pytest.raises(TransportError)
    with proxy(uri) as (behind, running), trio.fail_after(WAIT_S), refused:
        await serve_until_killed(uri, behind, running)
    # The instance has heard of it: the next job is not sent there.
    assert flux(uri, "run", "echo", "here").stdout == "here\n"
    assert said(uri, "jobs", "-a", "-c1", "-no", "{status}") == "COMPLETED"


async def test_two_children_of_a_proxy_stream_at_once_on_one_matchtag(uri: str) -> None:
    jobid = said(uri, "submit", "sleep", "60")
    number = int(said(uri, "job", "id", "--to=dec", jobid))
    watch = {"id": number, "path": "eventlog", "flags": 0}
    with proxy(uri) as (behind, _), trio.fail_after(WAIT_S):
        async with (
            open_flux(behind, "stays") as stays,
            stays.stream(topics.INFO_WATCH, watch) as lines,
        ):
            async with (
                open_flux(behind, "leaves") as leaves,
                leaves.stream(topics.INFO_WATCH, watch) as others,
            ):
                assert name_of(await anext(aiter(others))) == "submit"
            said(uri, "cancel", jobid)  # one has left; the other goes on to the end
            names = [name_of(line) async for line in lines]
    assert (names[0], names[-1]) == ("submit", "clean")


async def test_a_child_that_asks_wrongly_is_refused_and_its_sibling_is_served(uri: str) -> None:
    with proxy(uri) as (behind, _), trio.fail_after(WAIT_S):
        async with open_flux(behind, "wrong") as wrong, open_flux(behind, "right") as right:
            with pytest.raises(FluxError, match="No service matching nosuch"):
                await wrong.call("nosuch.thing", {})
            assert await right.attribute("size") == "4"


def name_of(line: dict[str, Any]) -> str:
    name: str = json.loads(line["event"])["name"]
    return name


async def test_a_flux_core_in_a_job_has_a_broker_for_each_node_and_a_job_of_its_own(
    uri: str,
) -> None:
    inside = (
        "flux getattr size; flux getattr instance-level; flux getattr jobid-path;"
        " flux getattr parent-uri; flux run -N2 hostname"
    )
    done = flux(uri, "alloc", "-N2", "sh", "-c", inside)
    assert done.returncode == 0, done.stderr
    size, level, path, parent, *hosts = done.stdout.splitlines()
    assert (size, level, parent, len(hosts)) == ("2", "1", uri, 2)
    jobid = path.removeprefix("/")
    eventlog = said(uri, "job", "eventlog", "-f", "json", jobid).splitlines()
    memos = [json.loads(line)["context"] for line in eventlog if '"memo"' in line]
    assert any("uri" in memo for memo in memos)


async def test_a_batch_script_travels_with_its_job(uri: str, tmp_path: Path) -> None:
    output, script = tmp_path / "out", tmp_path / "script.sh"
    script.write_text("#!/bin/sh\nflux getattr instance-level\nflux run echo from the batch\n")
    jobid = said(uri, "batch", "-n1", f"--output={output}", str(script))
    script.unlink()
    said(uri, "job", "wait-event", "-t", "100", jobid, "clean")
    assert output.read_text() == "1\nfrom the batch\n"
