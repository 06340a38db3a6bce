"""An instance without async code: each part may be a cell of a notebook."""

from flux_trio.client import command_jobspec
from flux_trio.embedding import start_instance

instance = start_instance(nodes=2)

client = instance.connect()
job = client.submit(command_jobspec(["hostname"], nnodes=2))
print("exit code", job.result())

instance.reload("sched")

client.close()
instance.stop()
