"""Workers of `flux-trio fuzz`: a Dask cluster on this machine."""

from distributed import Client, LocalCluster
from distributed.cfexecutor import ClientExecutor


def executor() -> ClientExecutor:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return Client(cluster).get_executor()
