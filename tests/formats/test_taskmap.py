"""RFC 34: its test vectors, and round trips."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import (
    FormatError,
    format_pmi_taskmap,
    format_raw_taskmap,
    parse_taskmap,
    taskmap_blocks,
)

VECTORS = [
    ("0", "[[0,1,1,1]]"),
    ("0;1", "[[0,2,1,1]]"),
    ("0-1", "[[0,1,2,1]]"),
    ("0-1;2-3", "[[0,2,2,1]]"),
    ("0,2;1,3", "[[0,2,1,2]]"),
    ("1;0", "[[1,1,1,1],[0,1,1,1]]"),
    ("0-3;4-7;8-11;12-15", "[[0,4,4,1]]"),
    ("0,4,8,12;1,5,9,13;2,6,10,14;3,7,11,15", "[[0,4,1,4]]"),
    ("0-1,8-9;2-3,10-11;4-5,12-13;6-7,14-15", "[[0,4,2,2]]"),
    ("0-1;2-3;4-5;6-7;8-11;12-15", "[[0,4,2,1],[4,2,4,1]]"),
    ("0,6;1,7;2,8;3,9;4,10,12,14;5,11,13,15", "[[0,6,1,2],[4,2,1,2]]"),
    ("0-1;2-3;4-5;6-7;8-9;12-13;10-11;14-15", "[[0,5,2,1],[6,1,2,1],[5,1,2,1],[7,1,2,1]]"),
    ("12-15;8-11;4-7;0-3", "[[3,1,4,1],[2,1,4,1],[1,1,4,1],[0,1,4,1]]"),
]


@pytest.mark.parametrize(("raw", "blocks"), VECTORS)
def test_vectors_of_the_rfc(raw: str, blocks: str) -> None:
    nodes = parse_taskmap(raw)
    assert parse_taskmap(blocks) == nodes
    assert parse_taskmap(f'{{"version":1,"map":{blocks}}}') == nodes
    assert json.dumps(taskmap_blocks(nodes), separators=(",", ":")) == blocks
    assert format_raw_taskmap(nodes) == raw


def test_pmi_repeats_its_blocks() -> None:
    """The table in RFC 34, Existing Implementations."""
    cyclic = parse_taskmap("[[0,6,1,2],[4,2,1,2]]")
    assert format_pmi_taskmap(cyclic) == "(vector,(0,6,1),(0,6,1),(4,2,1),(4,2,1))"
    assert parse_taskmap("(vector, (0,4,2), (4,2,4))") == parse_taskmap("[[0,4,2,1],[4,2,4,1]]")
    assert (parse_taskmap("[]"), parse_taskmap("(vector)")) == ([], [])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_what_is_written_reads_back(nodes: list[int]) -> None:
    assert parse_taskmap(json.dumps(taskmap_blocks(nodes))) == nodes
    assert parse_taskmap(format_pmi_taskmap(nodes)) == nodes
    assert parse_taskmap(format_raw_taskmap(nodes)) == nodes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "with every task"),
        ("x", "a task map such as"),
        ("0;2", "with every task"),
        ("0-1;1", "each task on one node"),
        ("[[0,1,1]]", "taskmap"),
        ("[[0,1,0,1]]", "blocks of nodeid"),
        ("[[-1,1,1,1]]", "blocks of nodeid"),
        ("{}", "taskmap: expected the key version"),
        ("[[0,1000000,1000000,1000000]]", "at most 1048576 tasks"),
        ("[[9000000,1,1,1]]", "at most 1048576 tasks"),
        ("(vector,(0,1))", "a task map such as"),
    ],
)
def test_errors_say_what_is_wrong(text: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        parse_taskmap(text)
