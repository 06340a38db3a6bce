"""docs/reference/wire.md says what the code does."""

import json
import re
from pathlib import Path

import pytest

from flux_trio.messages import codec, values
from flux_trio.messages.codec import decode

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "wire.md").read_text()
SCHEMA = (REFERENCE / "wire.cddl").read_text()

EXAMPLES = [
    (" ".join(fields.replace("# ", "").split("\n")), bytes_)
    for fields, bytes_ in re.findall(
        r"((?:^# \S.*\n)+)((?:^(?:[0-9a-f]{2} ?)+\n)+)", PAGE, re.MULTILINE
    )
]


@pytest.mark.parametrize(("fields", "bytes_"), EXAMPLES)
def test_an_example_decodes_to_what_is_written_above_it(fields: str, bytes_: str) -> None:
    data = bytes.fromhex(bytes_)
    assert codec._to_fields(decode(data))[4:6] == json.loads(fields)[4:6]
    assert codec.cbor2.loads(data) == json.loads(fields)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(
    "row",
    [
        f"| bytes in a frame | {codec.FRAME_BYTES_MAX} |",
        f"| CBOR items in a frame | {codec.FRAME_ITEMS_MAX} |",
        f"| maps and arrays within one another in a payload | {values.DEPTH_MAX} |",
        f"| characters in a topic | 1 to {codec.TOPIC_CHARS_MAX} |",
        f"| routes, and characters in each | {codec.ROUTES_MAX}, 1 to {codec.ROUTE_CHARS_MAX} |",
    ],
)
def test_the_bounds_of_the_page_are_those_of_the_code(row: str) -> None:
    assert row in PAGE


def test_the_bounds_of_the_schema_are_those_of_the_code() -> None:
    assert f"1 to {codec.FRAME_BYTES_MAX} bytes" in SCHEMA
    assert f"integer = {values.INT_MIN}..{values.INT_MAX}" in SCHEMA
    assert f"[*{codec.ROUTES_MAX} hop]" in SCHEMA
    assert f"nested at most {values.DEPTH_MAX} deep" in SCHEMA
