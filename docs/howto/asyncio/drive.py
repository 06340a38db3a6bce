"""Submit jobs, follow each to its end at the same time, and cancel one that takes too long."""

import asyncio
import json
import os

import anyio

from flux_trio.client import Client, find_instance, open_client
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.messages import FluxError

COMMANDS = (["true"], ["false"], ["sleep", "1000"])
PATIENCE_S = 2.0


async def wait_status(client: Client, jobid: int) -> int | None:
    """The job's wait status, None if it ended without having run."""
    watch = client.stream(
        "job-info.eventlog-watch",
        {"id": jobid},
        cancel_topic="job-info.eventlog-watch-cancel",
    )
    async with watch as lines:
        async for line in lines:
            event = json.loads(line["event"])
            if event["name"] == "finish":
                return event["context"]["status"]
    return None


async def follow(client: Client, jobid: int, command: list[str]) -> None:
    name = " ".join(command)
    with anyio.move_on_after(PATIENCE_S):
        print(f"{name}: status {await wait_status(client, jobid)}")
        return
    cancel = {"id": jobid, "severity": 0, "type": "cancel", "note": "that takes too long"}
    await client.call("job-manager.raise", cancel)
    print(f"{name}: canceled")


async def main() -> None:
    jobspecs = [Jobspec.from_command(command).to_json() for command in COMMANDS]
    async with open_client(*find_instance(os.environ)) as client:
        jobs = await client.submit_many(jobspecs)
        async with anyio.create_task_group() as tasks:
            for job, command in zip(jobs, COMMANDS, strict=True):
                if isinstance(job, FluxError):
                    print(f"{command} was refused: {job.text} (errno {job.errnum})")
                else:
                    print(f"{' '.join(command)}: job {format_fluid(job, 'f58')}")
                    tasks.start_soon(follow, client, job, command)
        try:
            await client.submit({"version": 1})
        except FluxError as refused:
            print(f"refused with errno {refused.errnum}: {refused.text}")


if __name__ == "__main__":
    asyncio.run(main())
