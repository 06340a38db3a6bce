"""The page on our scheduler, typed in a live flux-core."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from docs.make_typed import ROOT, commands
from tests.support.real_flux import NEEDS_FLUX, told

pytestmark = NEEDS_FLUX

PAGE: Final = ROOT / "docs" / "howto" / "our-scheduler-in-flux-core.md"
SHOWN: Final = re.compile(r"```console\n(.*?)```", re.DOTALL)


def test_what_the_page_shows_is_printed_when_it_is_typed() -> None:
    text = PAGE.read_text()
    start, *words = commands(text)
    assert start.startswith("flux start -s 4 ")
    script = [f"export PATH={Path(sys.executable).parent}:$PATH", "set -um; exec 2>&1", *words]
    printed = told(["bash", "-c", "\n".join(script)], brokers=4).splitlines()
    shown = [line for block in SHOWN.findall(text) for line in block.splitlines()]
    assert [line for line in shown if not line.startswith("$ ") and line not in printed] == []
