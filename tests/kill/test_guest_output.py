"""SIGKILL of an instance while a job writes: its guest namespace has every byte once.

Somebody reads the output as Flux's own programs do, so that it is stored while the job runs. What
he has seen says when the end comes: no moment depends on how quick the machine is.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from flux_trio.client import Client
from flux_trio.editions import rfc24
from flux_trio.formats import format_fluid, job_key, parse_event, parse_eventlog, parse_fluid
from flux_trio.messages import topics
from tests.kill.lives import connected
from tests.support.instance import DEADLINE_S, TWO_NODES, running_instance
from tests.support.shell import no_process_left

CONFIG = f'edition = "current"\n{TWO_NODES}'
LINES = 60
TASK = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; echo $i >&2; i=$((i+1)); sleep 0.01; done"
EXPECTED = {
    "stdout": "".join(f"line {i}\n" for i in range(LINES)),
    "stderr": "".join(f"{i}\n" for i in range(LINES)),
}


async def see(directory: Path, jobid: int, count: int) -> None:
    """Read the output of a job until so many lines of it have come; all of it if it ends before."""
    wanted = {"id": jobid, "path": "guest.output", "flags": 0}
    with trio.fail_after(DEADLINE_S):
        async with (
            connected(directory) as client,
            client.stream(topics.INFO_WATCH, wanted) as lines,
        ):
            async for each in lines:
                count -= parse_event(each["event"].rstrip("\n")).name == rfc24.DATA
                if count <= 0:
                    return


async def stored(client: Client, jobid: int, name: str) -> str:
    """A log of the job's guest namespace, as it was left in the kvs."""
    found = await client.call(topics.INFO_LOOKUP, {"id": jobid, "keys": [name]})
    text: str = found[name]
    return text


async def left(directory: Path, jobid: int) -> tuple[dict[str, str], Counter[str], list[str]]:
    """What is left when the job is over: output by stream, events, and namespaces."""
    with trio.fail_after(DEADLINE_S):
        async with connected(directory) as client:
            async with client.stream(topics.INFO_WATCH, {"id": jobid, "path": "eventlog"}) as lines:
                async for _ in lines:
                    pass
            output = dict.fromkeys(EXPECTED, "")
            for event in parse_eventlog(await stored(client, jobid, "guest.output")):
                if event.name == rfc24.DATA and "data" in (event.context or {}):
                    stream, _ = rfc24.place_in(event.context or {})
                    output[stream] += rfc24.bytes_of(event.context or {}).decode()
            log = parse_eventlog(await stored(client, jobid, "guest.exec.eventlog"))
            listed = await client.call(topics.KVS_NAMESPACE_LIST)
            names = [each["namespace"] for each in listed["namespaces"]]
            place = job_key(jobid, "guest")
            keys = (await client.call("store.dir", {"prefix": place}))["keys"]
            assert not [key for key in keys if "written" in key]
            return output, Counter(each.name for each in log), names


@pytest.mark.real
@pytest.mark.parametrize("moments", [(1, LINES), (0, 2 * LINES - 1)])
def test_output_is_whole_and_once_though_the_instance_is_killed(
    tmp_path: Path, moments: tuple[int, ...]
) -> None:
    with no_process_left(tmp_path / "shell"):
        name = ""
        for seen in moments:
            with running_instance(tmp_path, CONFIG, judged=False) as instance:
                name = name or instance.submitted("/bin/sh", "-c", TASK)
                jobid = parse_fluid(name)
                if seen:
                    trio.run(see, tmp_path, jobid, seen)
                instance.process.kill()
                instance.process.wait(DEADLINE_S)
        with running_instance(tmp_path, CONFIG, judged=False):
            output, events, names = trio.run(left, tmp_path, jobid)
    assert output == EXPECTED
    assert events.pop("reattach", 0) <= len(moments)
    assert events == dict.fromkeys(
        ["init", "starting", "shell.init", "shell.start", "shell-exit", "complete", "done"], 1
    ), format_fluid(jobid, "f58")
    assert names == ["primary"]
