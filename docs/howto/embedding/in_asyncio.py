"""An instance in an asyncio program: a thousand nodes without processes."""

import asyncio

from flux_trio.client import command_jobspec
from flux_trio.embedding import InstanceFailed, open_instance


async def main():
    async with (
        open_instance(nodes=1000, simulate=True) as instance,
        instance.connect() as client,
        client.subscribe("resource-*") as events,
    ):
        job = await client.submit(command_jobspec(["solve"], nnodes=500, duration=0.2))
        await instance.take_down("999")
        print((await anext(events)).topic)
        print("success", (await job.wait()).success)
        print((await client.call("resource.status"))["offline"])
    try:
        async with open_instance(config="[sched]\npolicy = 'easy'\n[exec]\nkill-timeout = 'soon'"):
            pass
    except (InstanceFailed, ValueError) as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(main())
