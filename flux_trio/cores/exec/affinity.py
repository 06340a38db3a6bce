"""Which cores and gpus a task may use: the shell options `cpu-affinity` and `gpu-affinity`. Pure.

With `on`, the default, a task may use all that R has on its rank; with `per-task` it may use its
share of that; with `off` cores are not bound and gpus are not named. CUDA_VISIBLE_DEVICES names the
gpus, as in flux-core; -1 stands for no gpu. Left out: `map:` and the other forms of flux-core's
`cpu-affinity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from flux_trio.formats import Jobspec

Affinity: TypeAlias = Literal["on", "off", "per-task"]

CPU_AFFINITY: Final = "system.shell.options.cpu-affinity"
GPU_AFFINITY: Final = "system.shell.options.gpu-affinity"
GPU_ORDER: Final = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # what the numbers of R's gpus mean


class Affinities(NamedTuple):
    """How the tasks of a job are bound."""

    cores: Affinity
    gpus: Affinity


def affinities_of(jobspec: Jobspec) -> Affinities:
    """Return the affinities that a jobspec asks for. Raises ValueError."""
    return Affinities(_affinity(jobspec, CPU_AFFINITY), _affinity(jobspec, GPU_AFFINITY))


def bound_cores(affinity: Affinity, cores: Sequence[int], local_id: int, ntasks: int) -> list[int]:
    """Return the cores of one of `ntasks` tasks on a rank; an empty list means no binding.

    Tasks share cores if there are more tasks than cores.
    """
    if affinity == "off":
        return []
    if affinity == "on" or not cores:
        return list(cores)
    if ntasks > len(cores):
        return [cores[local_id * len(cores) // ntasks]]
    return _share(cores, local_id, ntasks)


def gpu_environment(
    affinity: Affinity, gpus: Sequence[int], local_id: int, ntasks: int
) -> dict[str, str]:
    """Return the environment variables that tell a task its gpus."""
    if affinity == "off":
        return {}
    if affinity == "per-task":  # gpus that cannot be divided evenly are left over, as in flux-core
        each = len(gpus) // ntasks
        gpus = gpus[local_id * each : (local_id + 1) * each]
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)) or "-1"}


def _affinity(jobspec: Jobspec, option: str) -> Affinity:
    value = jobspec.attribute(option)
    if value is None:
        return "on"
    if value not in get_args(Affinity):
        known = ", ".join(get_args(Affinity))
        raise ValueError(f"{option}: expected one of {known}, got {value!r}")
    return cast(Affinity, value)


def _share(cores: Sequence[int], local_id: int, ntasks: int) -> list[int]:
    share, more = divmod(len(cores), ntasks)
    begin = local_id * share + min(local_id, more)
    return list(cores[begin : begin + share + (local_id < more)])
