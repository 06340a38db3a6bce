"""RFC 34 task maps: the node of each task of a job.

A map is a list of node indexes in the order of tasks; nodes count from 0 in the order of the job's
nodes. A map can be read from and written to three forms: the RFC's array of blocks (or the object
around it), PMI's `(vector,(0,4,2))` and the raw form `0-1;2-3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.idset import Idset

TASKS_MAX: Final = 1 << 20  # of one map: a short block can describe very many tasks

_COUNT: Final = r"\d{1,9}"  # more than TASKS_MAX
_PMI: Final = re.compile(rf"\(vector((?:,\({_COUNT},{_COUNT},{_COUNT}\))*)\)", re.ASCII)
_PMI_BLOCK: Final = re.compile(rf"\(({_COUNT}),({_COUNT}),({_COUNT})\)", re.ASCII)
_EXPECTED: Final = 'a task map such as [[0,4,2,1]], (vector,(0,4,2)) or "0-1;2-3"'

Block = tuple[int, int, int, int]  # nodeid, nnodes, ppn, repeat


class _Wrapped(msgspec.Struct):
    version: int
    map: list[Block]


_decode_blocks = msgspec.json.Decoder(_Wrapped | list[Block]).decode


def parse_taskmap(text: str, most: int = TASKS_MAX) -> list[int]:
    """Return the node of each task, from any form; [] if the mapping is unknown.

    FormatError, also for more than `most` tasks or nodes.
    """
    if text[:1] in ("[", "{"):
        try:
            decoded = _decode_blocks(text)
        except msgspec.DecodeError as error:
            raise FormatError.of_msgspec(error).at("taskmap") from None
        return _expanded(decoded.map if isinstance(decoded, _Wrapped) else decoded, most)
    if match := _PMI.fullmatch(text.replace(" ", "")):
        found = _PMI_BLOCK.findall(match[1])
        return _expanded([(int(node), int(n), int(ppn), 1) for node, n, ppn in found], most)
    return _parse_raw(text, most)


def taskmap_blocks(nodes: Sequence[int]) -> list[Block]:
    """Return the RFC's blocks; equal neighbours become one block with a `repeat`."""
    found: list[Block] = []
    for nodeid, nnodes, ppn in _vector(nodes):
        if found and found[-1][:3] == (nodeid, nnodes, ppn):
            found[-1] = (nodeid, nnodes, ppn, found[-1][3] + 1)
        else:
            found.append((nodeid, nnodes, ppn, 1))
    return found


def format_pmi_taskmap(nodes: Sequence[int]) -> str:
    """Return PMI-1's `PMI_process_mapping` (RFC 13)."""
    blocks = "".join(f",({node},{count},{ppn})" for node, count, ppn in _vector(nodes))
    return f"(vector{blocks})"


def format_raw_taskmap(nodes: Sequence[int]) -> str:
    """Return the tasks of each node, as idsets separated by semicolons."""
    return ";".join(str(tasks) for tasks in tasks_by_node(nodes))


def tasks_by_node(nodes: Sequence[int]) -> list[Idset]:
    """Return the tasks of each node, up to the last node that has a task."""
    found: list[list[int]] = [[] for _ in range(max(nodes, default=-1) + 1)]
    for taskid, node in enumerate(nodes):
        found[node].append(taskid)
    return [Idset.of(taskids) for taskids in found]


def _vector(nodes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (nodeid, nnodes, ppn): `ppn` tasks on each of `nnodes` nodes, from nodeid on."""
    start, count, per_node = 0, 0, 0
    for node, tasks in groupby(nodes):
        ppn = sum(1 for _ in tasks)
        if count and (node, ppn) == (start + count, per_node):
            count += 1
            continue
        if count:
            yield start, count, per_node
        start, count, per_node = node, 1, ppn
    if count:
        yield start, count, per_node


def _expanded(blocks: Sequence[Block], most: int) -> list[int]:
    for block in blocks:
        if min(block) < 0 or 0 in block[1:]:
            raise FormatError("blocks of nodeid, nnodes, ppn and repeat", list(block), "taskmap")
    ntasks = sum(nnodes * ppn * repeat for _, nnodes, ppn, repeat in blocks)
    _check_size(max([ntasks, *(node + nnodes for node, nnodes, *_ in blocks)]), most)
    nodes: list[int] = []
    for nodeid, nnodes, ppn, repeat in blocks:
        once = [node for node in range(nodeid, nodeid + nnodes) for _ in range(ppn)]
        nodes += once * repeat
    return nodes


def _parse_raw(text: str, most: int) -> list[int]:
    found: dict[int, int] = {}
    _check_size(text.count(";") + 1, most)
    for node, idset in enumerate(text.split(";")):
        try:
            tasks = Idset.parse(idset)
        except FormatError:
            raise FormatError(_EXPECTED, text) from None
        _check_size(len(found) + len(tasks), most)
        if any(taskid in found for taskid in tasks):
            raise FormatError("a task map with each task on one node", text)
        found |= dict.fromkeys(tasks, node)
    if not found or max(found) != len(found) - 1:
        raise FormatError("a task map with every task from 0 to the last", text)
    return [found[taskid] for taskid in range(len(found))]


def _check_size(ntasks: int, most: int) -> None:
    if ntasks > most:
        got = Words(f"{ntasks}")
        raise FormatError(f"a task map of at most {most} tasks and nodes", got)
