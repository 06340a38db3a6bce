"""The picture of a run: what it says, where its curves are, and that it stays in its frame."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from flux_trio.views import draw_simulation
from flux_trio.views.simulation_plot import LEFT, PANEL, RIGHT, TOP, WIDTH, nice_step

SVG = "{http://www.w3.org/2000/svg}"
DAY = 86400.0
PICTURE = draw_simulation(
    "a < b",
    [(1000.0, 0.5), (1000.0 + 5 * DAY, 1.0)],
    [(1000.0, 0.0), (1000.0 + DAY, 7.0)],
    1000.0,
    1000.0 + 10 * DAY,
)


def root() -> ElementTree.Element:
    return ElementTree.fromstring(PICTURE)


def texts() -> list[str]:
    return [element.text or "" for element in root().iter(f"{SVG}text")]


def curve(class_: str) -> list[tuple[float, float]]:
    drawn = next(p.attrib["d"] for p in root().iter(f"{SVG}path") if p.attrib["class"] == class_)
    return [(float(x), float(y)) for x, y in re.findall(r"([0-9.]+) ([0-9.]+)", drawn)]


def test_axes_have_names_units_and_ticks() -> None:
    shown = texts()
    assert "a < b" in shown
    assert "time since the first submit [days]" in shown
    assert [text for text in shown if text.endswith("%")] == ["0%", "25%", "50%", "75%", "100%"]
    assert shown[shown.index("jobs in queue") - 5 : shown.index("jobs in queue")] == [
        "0", "2", "4", "6", "8",
    ]  # fmt: skip
    assert [text for text in shown if text in {"0", "2", "4", "6", "8", "10"}].count("10") == 1


def test_a_step_goes_across_and_then_up() -> None:
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    half, top = TOP + PANEL / 2, float(TOP)
    assert curve("first") == [(LEFT, half), (middle, half), (middle, top), (WIDTH - RIGHT, top)]


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    assert "href" not in PICTURE
    assert "url(" not in PICTURE
    assert "prefers-color-scheme: dark" in PICTURE


@pytest.mark.parametrize(
    ("span", "unit"), [(30.0, "seconds"), (600.0, "minutes"), (5 * 3600.0, "hours")]
)
def test_the_time_axis_takes_a_unit_that_fits(span: float, unit: str) -> None:
    picture = draw_simulation("t", [(0.0, 0.1)], [(0.0, 1.0)], 0.0, span)
    assert f"time since the first submit [{unit}]" in picture


def test_a_run_of_nothing_is_an_empty_frame() -> None:
    picture = draw_simulation("nothing", [], [], 0.0, 0.0)
    assert 'class="first"' not in picture
    assert "jobs in queue" in picture


def test_steps_between_ticks_are_round() -> None:
    assert [nice_step(value) for value in (0.2, 1, 1.1, 4, 6, 11, 230)] == [
        1, 1, 2, 5, 10, 20, 500,
    ]  # fmt: skip
