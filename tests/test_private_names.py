"""Private names of Trio and of trio-websocket: which are used, and where.

Each is used in one function, and a test of that function fails when a new release has renamed it or
has given it another meaning.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import trio
import trio_websocket

from flux_trio.transports.door import limit_frames

ROOT: Final = Path(__file__).parents[1] / "flux_trio"
USED: Final = {
    "sim/world.py": {
        "trio._core",
        "scheduler._r",
        "scheduler._ALLOW_DETERMINISTIC_SCHEDULING",
    },  # tests/sim/test_world.py
    # tests/transports/test_websocket.py
    "transports/door.py": {"socket._max_message_size"},
}
PRIVATE: Final = re.compile(r"\b(?:trio(?:_websocket)?|socket|scheduler)\._[A-Za-z]\w*")


def test_private_names_are_used_where_this_list_says() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in ROOT.rglob("*.py")
        if (names := set(PRIVATE.findall(path.read_text())))
    }
    assert found == USED


def test_trio_has_the_names_of_the_list() -> None:
    assert hasattr(trio._core._run._r, "seed")
    assert trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert "_max_message_size" in limit_frames.__code__.co_names
    names = trio_websocket.WebSocketConnection.__init__.__code__.co_names
    assert "_max_message_size" in names
