"""What the package index gets: README, metadata, and the files that the README's lines need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from flux_trio.cli.lab.simulating import find_workload

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_classifiers_name_each_python_that_is_supported() -> None:
    """That each classifier exists is checked by hatchling, which builds no wheel otherwise."""
    told = PROJECT["project"]["classifiers"]
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert {each for each in told if re.search(r"3\.\d+$", each)} == {
        f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)
    }


def test_page_of_the_package_index_has_no_relative_link_and_no_picture() -> None:
    """There is nothing behind them. The text of each link stays, which names the file."""
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"(!?)\[([^]]*)\]\(([^)]*)\)", text)
    assert any(is_picture for is_picture, _, _ in links)
    for each in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert not re.search(r"\]\((?!https?://)", text)
    for is_picture, words, _ in links:
        assert (words in text) != bool(is_picture)


def test_logs_that_the_readme_names_are_in_the_wheel() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    named = set(re.findall(r"simulate (\S+\.csv)", (ROOT / "README.md").read_text()))
    assert named == {"lassen-busy.csv"}
    for name in (*named, "lassen-100.csv"):
        assert included[f"tests/data/workloads/{name}"] == f"flux_trio/workloads/{name}"
        assert find_workload(Path(name)) == ROOT / "tests" / "data" / "workloads" / name


def test_file_of_the_user_comes_before_a_log_of_the_package(tmp_path: Path) -> None:
    own = tmp_path / "lassen-100.csv"
    assert find_workload(own) == own  # it names a directory
    assert find_workload(Path("no-such-log.csv")) == Path("no-such-log.csv")


def test_readme_counts_the_planted_mistakes() -> None:
    found = (ROOT / "docs" / "how-we-know" / "mistakes-found.md").read_text()
    (number,) = re.findall(r"^\d+ of (\d+) found;", found, re.MULTILINE)
    assert f"plants {number} mistakes" in (ROOT / "README.md").read_text()
