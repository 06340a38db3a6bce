"""Submit jobs, follow each to its end at the same time, and cancel the one that is left."""

import asyncio
import json
import os

import anyio

from flux_trio.client import Client, find_instance, open_client
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.messages import FluxError

COMMANDS = (["true"], ["false"], ["sleep", "1000"])
LEFT = 1  # so many jobs are canceled when the others have ended


async def wait_status(client: Client, jobid: int) -> int | None:
    """The job's wait status, None if it ended without having run."""
    watch = client.stream(
        "job-info.eventlog-watch", {"id": jobid}, cancel_topic="job-info.eventlog-watch-cancel"
    )
    async with watch as lines:
        async for line in lines:
            event = json.loads(line["event"])
            if event["name"] == "finish":
                return event["context"]["status"]
    return None


async def follow(client: Client, jobid: int, active: dict[int, str]) -> None:
    status = await wait_status(client, jobid)
    print(f"{active.pop(jobid)}: status {status}")
    if len(active) == LEFT:
        for other in active:
            cancel = {"id": other, "severity": 0, "type": "cancel", "note": "the others are done"}
            await client.call("job-manager.raise", cancel)


async def main() -> None:
    jobspecs = [Jobspec.from_command(command).to_json() for command in COMMANDS]
    active: dict[int, str] = {}  # by job id: the command
    async with open_client(*find_instance(os.environ)) as client:
        jobs = await client.submit_many(jobspecs)
        for job, command in zip(jobs, COMMANDS, strict=True):
            if isinstance(job, FluxError):
                print(f"{command} was refused: {job.text} (errno {job.errnum})")
            else:
                active[job] = " ".join(command)
                print(f"{active[job]}: job {format_fluid(job, 'f58')}")
        async with anyio.create_task_group() as tasks:
            for jobid in active:
                tasks.start_soon(follow, client, jobid, active)
        try:
            await client.submit({"version": 1})
        except FluxError as refused:
            print(f"refused with errno {refused.errnum}: {refused.text}")


if __name__ == "__main__":
    asyncio.run(main())
