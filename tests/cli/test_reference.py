from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from docs import make_cli
from docs.make_cli import DIRECTORY, man_pages, pages

GROFF = shutil.which("groff")


def test_the_pages_in_the_tree_are_those_of_the_command() -> None:
    found = [DIRECTORY / "cli.md", *(DIRECTORY / "cli").iterdir()]
    written = {str(path.relative_to(DIRECTORY)): path.read_text() for path in found}
    assert written == pages(), "run: python -m docs.make_cli"


def test_every_command_has_a_man_page() -> None:
    found = man_pages()
    assert {"flux-trio.1", "flux-trio-run.1", "flux-trio-queue-list.1"} < found.keys()
    for name, page in found.items():
        assert page.startswith(f'.TH "{name.removesuffix(".1").upper()}" 1 ')
        assert "\n.SH SYNOPSIS\n" in page
        assert "\n.SH DESCRIPTION\n" in page


@pytest.mark.skipif(GROFF is None, reason="groff is not installed")
def test_man_pages_are_correct_roff(tmp_path: Path) -> None:
    assert GROFF is not None
    paths = []
    for name, page in man_pages().items():
        path = tmp_path / name
        path.write_text(page)
        paths.append(path)
    done = subprocess.run(
        [GROFF, "-man", "-k", "-Tutf8", "-P-cbu", "-ww", *paths],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "limit MIN|FSD" in done.stdout


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--nosuch", 2)])
def test_an_option_is_not_taken_for_a_directory(
    word: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["make_cli", word])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(make_cli.__file__, run_name="__main__")
    assert ended.value.code == code
