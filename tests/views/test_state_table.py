"""State tables for a reader: nothing is left out, and the pages in the tree are current."""

from __future__ import annotations

from enum import Enum
from typing import Any
from xml.etree import ElementTree

import pytest

from docs.make_tables import DIRECTORY, TABLES, diagrams
from flux_trio.protocols import Table
from flux_trio.views import draw_states, table_markdown

SVG = "{http://www.w3.org/2000/svg}"


class Light(Enum):
    RED = "stop"
    GREEN = "go"


class Turn(Enum):
    NEVER = "in no row"
    WAIT = "wait"
    SWITCH = "switch"
    BREAK = "break & burn"


LIGHTS: Table[Light, Turn] = Table(
    "lights",
    Light.RED,
    {
        Light.RED: {Turn.SWITCH: Light.GREEN, Turn.WAIT: Light.RED},
        Light.GREEN: {Turn.SWITCH: Light.RED, Turn.BREAK: Light.RED},
    },
)


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_a_table_has_a_row_for_each_event_that_is_allowed_somewhere() -> None:
    assert table_markdown(LIGHTS).splitlines() == [
        "| event | RED | GREEN |",
        "| --- | --- | --- |",
        "| wait | stays |  |",
        "| switch | **GREEN** | **RED** |",
        "| break & burn |  | **RED** |",
    ]


def test_a_diagram_shows_states_what_they_mean_and_what_moves_them() -> None:
    title, *shown = texts(draw_states(LIGHTS))
    assert title == "lights: what changes the state"
    assert sorted(shown) == sorted(
        ["RED", "stop", "GREEN", "go", "switch", "switch", "break & burn"]
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_change_of_state_is_in_the_diagram(name: str) -> None:
    table: Table[Any, Any] = TABLES[name]
    shown = texts(draw_states(table))
    for state, event, after in table:
        assert state.name in shown
        assert state == after or event.value in shown


@pytest.mark.parametrize("name", TABLES)
def test_all_text_is_inside_of_the_picture(name: str) -> None:
    root = ElementTree.fromstring(draw_states(TABLES[name]))
    for element in root.iter(f"{SVG}text"):
        width = 5.6 * len(element.text or "")  # of an average character of the small text
        x = float(element.attrib["x"])
        before = {"end": 1.0, "middle": 0.5}.get(element.attrib.get("text-anchor", ""), 0.0)
        assert x - before * width >= 0
        assert x + (1 - before) * width <= float(root.attrib["width"])


def test_the_diagrams_in_the_tree_are_those_that_make_tables_writes() -> None:
    written = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert written == diagrams(), "run: python -m docs.make_tables"
