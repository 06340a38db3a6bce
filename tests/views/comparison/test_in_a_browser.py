"""The comparison of runs in headless Chromium: what is drawn is compared with the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flux_trio.views import FailedRun, Served, ServedRun, Waited, comparison_page
from flux_trio.views.comparison.charts import HUES, priorities
from tests.support.browser import Browser

T = 1_000_000_000.0
ONE = "a{0}<b>"

ANN = Served("ann & co", 3, 3600.0, 7200.0, 0.25, 0.5, [(T, 10.0), (T + 50, None), (T + 90, 4.0)])
BOB = Served("</script>bob", 1, None, None, 0.0, 0.5, [])


def run(name: str, wait_s: float) -> ServedRun:
    ann = Served("ann & co", 3, wait_s, 2 * wait_s, 0.25, 0.5, ANN.priority)
    used = [(T, 0.5), (T + 60, 1.0), (T + 100, 0.0)]
    waited = [Waited("j1", "ann & co", 4, wait_s, "fewer than 4 cores were free")]
    return ServedRun(
        *(name, 4, [ann, BOB], [BOB], T, T + 7200.0, wait_s, 2 * wait_s, 1.5, 0.375),
        *(used, [(T, 2.0), (T + 60, 0.0)], waited),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything; a name may have any characters."""
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    runs = [run(ONE, 3600.0), run("{", 1800.0)]
    path.write_text(
        comparison_page("t & t", {"--seed": "7"}, runs, [FailedRun("three", "it <b>stalled</b>")])
    )
    return path


@pytest.fixture
def page(browser: Browser, whole: Path) -> Browser:
    """The browser that shows it: to load the library of its charts takes a second."""
    if browser.driver.current_url != whole.as_uri():
        browser.open(whole)
    return browser


DRAWN = """
const div = document.getElementById(arguments[0]);
return div._fullData.map(trace => [trace.name, Array.from(trace.y)]);
"""


def test_bars_are_the_figures(page: Browser) -> None:
    assert page.run(DRAWN, "waits-user") == [[ONE, [1, None]], ["{", [0.5, None]]]
    assert page.run(DRAWN, "changes-user") == [["{", [-50, None]]]
    heights = page.run(
        "return [...document.querySelectorAll('#waits-user .barlayer .point path')]"
        ".map(each => each.getBBox().height)"
    )
    drawn = {round(each / max(heights), 2) for each in heights}
    assert drawn == {0, 0.5, 1}  # a user without a wait, 0.5 h and 1 h


def test_lines_are_the_figures_on_one_axis_and_have_gaps(page: Browser) -> None:
    lines = page.run(DRAWN, "over-time")
    assert [name for name, _ in lines] == [ONE, "{", ONE, "{"]
    assert lines[0][1] == [0.5, 1, 0]
    users = page.run(DRAWN, "priorities")
    assert [name for name, _ in users] == ["ann & co", "ann & co"]
    assert users[0][1] == [10, 10, None, 4]
    for chart in ("over-time", "priorities"):
        axes = f"return document.getElementById('{chart}')._fullData.map(each => each.xaxis)"
        assert set(page.run(axes)) == {"x"}


def test_every_user_is_drawn_and_none_like_a_run_or_another_user() -> None:
    users = [Served(f"u{n}", 100 - n, 1.0, 1.0, 0.01, 0.01, [(1.0, float(n))]) for n in range(30)]
    chart = priorities([replace(run("one", 1.0), users=users)])
    assert chart is not None
    looks = {(line["line"]["color"], line["line"]["dash"]) for line in chart["data"]}
    assert len(looks) == 30
    assert not {colour for colour, _ in looks} & set(HUES)


def test_users_whose_priorities_are_the_same_share_a_line_with_their_names() -> None:
    alike = [Served(f"u{n}", 9 - n, 1.0, 1.0, 0.01, 0.01, [(1.0, 16.0)]) for n in range(4)]
    other = Served("u4", 1, 1.0, 1.0, 0.01, 0.01, [(1.0, 16.0), (2.0, 5.0)])
    chart = priorities([replace(run("one", 1.0), users=[*alike, other])])
    assert chart is not None
    assert [line["name"] for line in chart["data"]] == ["u0, u1, u2, u3", "u4"]


def test_results_come_before_the_options() -> None:
    text = comparison_page("t", {"--seed": "1"}, [run("one", 1.0)])
    assert text.index("<h2>Runs</h2>") < text.index("<h2>Options</h2>")


def test_zoom_of_one_row_is_that_of_all(page: Browser) -> None:
    page.run(
        "return Plotly.relayout('over-time', {'xaxis.range':"
        " ['2001-09-09 01:46:40', '2001-09-09 01:47:00']}).then(() => 1)"
    )
    layout = "return Object.keys(document.getElementById('over-time')._fullLayout)"
    assert [key for key in page.run(layout) if key.startswith("xaxis")] == ["xaxis"]


def test_names_are_text_and_nothing_is_fetched(page: Browser) -> None:
    body = page.run("return document.body.innerText")
    for text in (
        "baseline",
        "</script>bob",
        "ann & co",
        "it <b>stalled</b>",
        "--seed",
        "-50.0 %",
        f"against {ONE}",
    ):
        assert text in body
    fetched = page.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert fetched == []
    assert page.complaints() == []
    assert page.run("return document.documentElement.scrollWidth") <= 1400


def test_page_is_no_wider_than_a_narrow_window(browser: Browser, whole: Path) -> None:
    browser.open(whole, 400)
    assert browser.run("return document.documentElement.scrollWidth") <= 400
    browser.driver.get("about:blank")  # the next test opens the page anew, and wide


def test_no_run_at_all_is_a_page_too(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "none.html"
    path.write_text(comparison_page("t", {}, [], [FailedRun("one", "no room")]))
    browser.open(path)
    assert "no room" in browser.run("return document.body.innerText")
    assert browser.complaints() == []
