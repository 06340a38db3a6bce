"""Type the commands of pages and write what they print into them: `python -m docs.make_typed`.

A page that shows what a command prints is typed, each page in a shell of its own, whose directory
has links to `docs`, `plugins` and `tests`. In a page,

- `<!-- typed: COMMAND -->` is typed as well, and not shown: what the reader has, or does elsewhere.
  `instance ARGS` is `flux-trio start ARGS` in the background, for all later commands, in place of
  the one before;
- `<!-- not typed: REASON -->` before a block leaves that block as it is;
- `<!-- typed elsewhere: HOW -->` leaves the whole page as it is.

A test does the same and compares: what depends on the moment or the machine (ids of jobs, times,
names, directories) may differ.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
DEADLINE_S: Final = 600  # only a command that hangs takes so long, however busy the machine is
USER: Final = "alice"  # the reader sees this name and this host, whoever made the page
HOST: Final = "laptop"

_TYPED = re.compile(
    r"<!-- sample .*?<!-- end of sample -->"
    r"|<!-- not typed: [^>]*-->\n+```console\n.*?^```$"
    r"|<!-- typed: (?P<hidden>.*?) -->"
    r"|^```console\n(?P<block>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_ELSEWHERE = "<!-- typed elsewhere: "
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.MULTILINE)
_ACTIVATE = "activate"  # this command is skipped, since the environment is active already
_PRELUDE = """set -um  # -m: job control, so that %1 is the instance
instance() {
    [ -z "$(jobs -p)" ] || { kill %1; wait %1; }
    export FLUX_TRIO_STATEDIR=$(mktemp -d)
    flux-trio start --statedir $FLUX_TRIO_STATEDIR "$@" >&2 &
    until flux-trio resource list >$FLUX_TRIO_STATEDIR/list 2>&1; do sleep 0.1; done
}"""
_MARK = "end-of-command"
_READY = re.compile(r"^flux-trio: instance at .*\n", re.MULTILINE)
_SHELL_SAYS = re.compile(r"^\[\d\]\+? .*\n", re.MULTILINE)  # a job of the shell has ended

_VARIES = (
    (re.compile(r"ƒ\w+"), "JOBID"),
    (re.compile(r"\b\d{10}\.\d+"), "TIMESTAMP"),
    (re.compile(r"\b\d+\.\d+ ?(s|m|h)\b"), "DURATION"),
    (re.compile(r"\[ *\+\d+\.\d+\]|\[\w+ \d\d:\d\d\]|^\d\.\d{6}\b", re.MULTILINE), "TIME"),
    (re.compile(r'"(total|max)": [\d.e-]+'), "SECONDS"),
    (re.compile(r"\b\d+ turns|record \d+|^ +\d+ +\+", re.MULTILINE), "PLACE"),
    (re.compile(r"ws://[\d.:]+"), "URI"),
    (re.compile(r"/\S*/tmp\.\w+"), "DIRECTORY"),
    (re.compile(r"[ \t]+"), " "),  # columns are as wide as what is in them
)


def typed_pages() -> Iterator[Path]:
    """Yield the pages that show what a command prints, outside of blocks that are left alone."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        found = () if "_build" in path.parts or _ELSEWHERE in text else _TYPED.finditer(text)
        if any(each["block"] and _COMMAND.sub("", each["block"]) for each in found):
            yield path


def commands(text: str) -> list[str]:
    """Return the commands of a page, in order, with those that it does not show."""
    found = _TYPED.finditer(text)
    return [word for each in found for word in _words(each)]


def typed(words: list[str], directory: Path) -> list[str]:
    """Type commands into one shell in `directory`; return what each printed, on both streams.

    Temporary files go to `directory`. That an instance is ready is printed with the command that
    started it, whenever it comes.
    """
    for name in ("docs", "plugins", "tests"):
        (directory / name).symlink_to(ROOT / name)
    script = [_PRELUDE]
    for word in words:
        skipped = _ACTIVATE in word
        script += ["true" if skipped else word, f"code=$?; echo {_MARK}; (exit $code)"]
    script += ["kill $(jobs -p) 2>/dev/null; wait"]
    environment = {name: value for name, value in os.environ.items() if "FLUX" not in name}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(directory),
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=directory,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
        check=False,
    )
    ready = _READY.findall(done.stdout)
    outputs = _READY.sub("", _SHELL_SAYS.sub("", done.stdout)).split(f"{_MARK}\n")[: len(words)]
    for place, word in enumerate(words):
        if word.startswith("flux-trio start ") and word.endswith("&") and ready:
            outputs[place] += ready.pop(0)
    return [_anonymous(output, directory) for output in outputs]


def filled(text: str, outputs: list[str]) -> str:
    """Return the page with what each command printed below it."""
    left = iter(outputs)

    def block(found: re.Match[str]) -> str:
        if found["block"] is None:
            for _ in _words(found):
                next(left)
            return found[0]
        shown = (f"{line[0]}{next(left)}" for line in _COMMAND.finditer(found["block"]))
        return "```console\n" + "".join(shown) + "```"

    return _TYPED.sub(block, text)


def normal(text: str) -> str:
    """Return a page without what differs from one moment or machine to the next."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


def _words(found: re.Match[str]) -> list[str]:
    if found["hidden"]:
        return [found["hidden"]]
    return _COMMAND.findall(found["block"] or "")


def _anonymous(text: str, directory: Path) -> str:
    """Return what a command printed, with the names of the reader's user, host and directory."""
    user = re.compile(rf"\b{re.escape(getpass.getuser()[:8])}\w*( +)")  # a column of 8
    text = user.sub(lambda found: USER.ljust(len(found[0])), text)
    text = re.sub(rf"^{re.escape(socket.gethostname())}$", HOST, text, flags=re.MULTILINE)
    text = re.sub(rf"\buserid={os.getuid()}\b", "userid=1000", text)
    return text.replace(str(directory), "/tmp")


if __name__ == "__main__":
    import tempfile

    for path in [DOCS / name for name in sys.argv[1:]] or typed_pages():
        with tempfile.TemporaryDirectory() as temporary:
            page = path.read_text()
            path.write_text(filled(page, typed(commands(page), Path(temporary))))
