"""The planted mistakes, and the edits that make them.

An edit is exact text that is there once and becomes other text. It survives changes elsewhere in
the file, and a test fails as soon as the place itself changes; a patch with lines of context would
fail more often, or move to a wrong place unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.planter.coding import Edit, edited

HERE: Final = Path(__file__).parent


class Mistake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake, made by its edits together.

    `source` is the public bug that it is like (flux-core, flux-sched or flux-accounting and a
    number), the clause that it breaks, a bug that this program had ("our own: "), or what often
    goes wrong in such code ("usual: "). `needs` says whether it does harm only after a fault, or in
    an unusual order of messages; "" if in many plain runs. `depth` is that of the worlds in which
    the edited code runs.
    """

    id: str
    wrong: str
    source: str
    needs: Literal["fault", "order", ""]
    edit: tuple[Edit, ...]
    depth: Literal["cores", "stack"] = "cores"
    same: str = ""
    """Why no behaviour depends on it, if that was found out."""

    def edited(self) -> dict[str, str]:
        """Return the text of each changed file, by its path from the root.

        Raises ValueError for an edit whose old text is not there exactly once.
        """
        return edited(self.edit)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mistake: tuple[Mistake, ...]


def mistakes() -> Iterator[Mistake]:
    """Yield all planted mistakes. Raises msgspec.ValidationError for a wrong key."""
    for path in sorted(HERE.glob("*.toml")):
        yield from msgspec.toml.decode(path.read_bytes(), type=_File).mistake
