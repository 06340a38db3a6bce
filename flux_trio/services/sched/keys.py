"""RFC 16: where in the KVS a job's R is."""

from __future__ import annotations

from flux_trio.formats import format_fluid


def resource_key(jobid: int) -> str:
    """The key of R."""
    return f"{format_fluid(jobid, 'kvs')}.R"
