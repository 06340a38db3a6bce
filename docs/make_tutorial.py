"""Type the tutorial's commands and write what they print into it: `python -m docs.make_tutorial`.

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
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "tutorial.md"
DEADLINE_S: Final = 600  # only a command that hangs takes so long, however busy the machine is
USER: Final = "alice"  # the reader sees this name and this host, whoever made the page
HOST: Final = "laptop"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_ACTIVATE = "activate"  # this command is skipped, since the environment is active already
_MARK = "end-of-command"
_READY = re.compile(r"^flux-trio: instance at .*\n", re.MULTILINE)
_SHELL_SAYS = re.compile(r"^\[1\]\+? .*\n", re.MULTILINE)  # a job of the shell has ended

_VARIES = (
    (re.compile(r"ƒ\w+"), "JOBID"),
    (re.compile(r"\b\d{10}\.\d+"), "TIMESTAMP"),
    (re.compile(r"\b\d+\.\d+(s|m|h)\b"), "DURATION"),
    (re.compile(r"ws://[\d.:]+"), "URI"),
    (re.compile(r"/\S*/tmp\.\w+"), "DIRECTORY"),
    (re.compile(r"[ \t]+"), " "),  # columns are as wide as what is in them
)


def commands(text: str) -> list[str]:
    """Return the commands of a page, in order."""
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT)]


def typed(words: list[str], directory: Path, cwd: Path = ROOT) -> list[str]:
    """Type commands into one shell; return what each printed, on both standard streams.

    Temporary files go to `directory`. That an instance is ready is printed with the command that
    started it, whenever it comes.
    """
    script = ["set -um"]  # -m: job control, so that %1 is the instance
    for word in words:
        skipped = _ACTIVATE in word
        script += ["true" if skipped else word, f"code=$?; echo {_MARK}; (exit $code)"]
    environment = {name: value for name, value in os.environ.items() if "FLUX" not in name}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(directory),
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
        check=False,
    )
    ready = _READY.findall(done.stdout)
    outputs = _READY.sub("", _SHELL_SAYS.sub("", done.stdout)).split(f"{_MARK}\n")[:-1]
    for place, word in enumerate(words):
        if word.startswith("flux-trio start ") and ready:
            outputs[place] += ready.pop(0)
    return [_anonymous(output, directory) for output in outputs]


def filled(text: str, outputs: list[str]) -> str:
    """Return the page with what each command printed below it."""
    left = iter(outputs)

    def block(found: re.Match[str]) -> str:
        lines = [line for line in found[1].splitlines() if line.startswith(_PROMPT)]
        return "```console\n" + "".join(f"{line}\n{next(left)}" for line in lines) + "```"

    return _BLOCK.sub(block, text)


def normal(text: str) -> str:
    """Return a page without what differs from one moment or machine to the next."""
    for pattern, name in _VARIES:
        text = pattern.sub(name, text)
    return text


def _anonymous(text: str, directory: Path) -> str:
    """Return what a command printed, with the names of the reader's user, host and directory."""
    user = re.compile(rf"\b{re.escape(getpass.getuser()[:8])}\w*( +)")  # a column of 8
    text = user.sub(lambda found: USER.ljust(len(found[0])), text)
    text = re.sub(rf"^{re.escape(socket.gethostname())}$", HOST, text, flags=re.MULTILINE)
    return text.replace(f"userid={os.getuid()} ", "userid=1000 ").replace(str(directory), "/tmp")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        page = PAGE.read_text()
        PAGE.write_text(filled(page, typed(commands(page), Path(temporary))))
