"""An instance in a Trio program: a job meets a scheduler that dies, and a node that is lost."""

import trio

from flux_trio.client import command_jobspec
from flux_trio.embedding import open_instance


async def main():
    async with open_instance(nodes=2, policy="easy") as instance, instance.connect() as client:
        await instance.crash("sched")
        job = await client.submit(command_jobspec(["hostname"], nnodes=2))
        await instance.load("sched")
        print("exit code", await job.result())

        job = await client.submit(command_jobspec(["sleep", "1000"], nnodes=2))
        async for event in job.events():
            if event.name == "start":
                await instance.take_down("1", "lost")
        print((await job.wait()).text)


if __name__ == "__main__":
    trio.run(main)
