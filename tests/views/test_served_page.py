"""The page that shows whom a policy served."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from flux_trio.views import Served, ServedRun, served_page

ANN = Served("ann & co", 3, 60.0, 120.0, 0.25, 0.5, [(0.0, 10.0), (50.0, 0.0)])
BOB = Served("bob", 1, None, None, 0.0, 0.5, [])


def run(name: str) -> ServedRun:
    return ServedRun(name, [ANN, BOB], [BOB], 0.0, 7200.0, 0.375)


def test_every_run_has_its_column_with_users_and_banks() -> None:
    page = served_page("one against two", [run("one"), run("two")])
    assert re.findall("<h2>(.*?)</h2>", page) == ["one", "two"]
    assert re.findall("<h3>(.*?)</h3>", page) == ["By bank", "By user"] * 2
    assert page.count("4 jobs in 2.0 hours, utilisation 37.5%") == 2


def test_the_table_has_the_figures_of_all() -> None:
    page = served_page("t", [run("one")])
    rows = re.findall("<tr>(.*?)</tr>", page)
    cells = [re.findall("<td>(.*?)</td>", row) for row in rows]
    assert ["ann &amp; co", "3", "1.0", "2.0", "25.0%", "50.0%"] in cells
    assert ["bob", "1", "-", "-", "0.0%", "50.0%"] in cells


def test_drawings_are_well_formed_and_self_contained() -> None:
    page = served_page("t", [run("one")])
    pictures = re.findall("<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 6
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_nobody_at_all_is_a_page_too() -> None:
    assert "0 jobs" in served_page("t", [ServedRun("one", [], [], 0.0, 0.0, 0.0)])
