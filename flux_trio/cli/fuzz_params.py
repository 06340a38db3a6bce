"""Click types of the options of `flux-trio fuzz`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from concurrent.futures import Executor

_SEEDS: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})?")


class Seeds(NamedTuple):
    """The seeds from `first` up to `end`, which is not one of them; without `end` all of them."""

    first: int
    end: int | None

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.end is None else self.end}"


class SeedsParam(click.ParamType[Seeds]):
    """`A:B` or `A:`."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Seeds:
        """Return the seeds; other text is a usage error."""
        if isinstance(value, Seeds):
            return value
        found = _SEEDS.fullmatch(value)
        if found is None:
            self.fail(f"expected A:B, two numbers from 0, or A:, got {value}", param, ctx)
        seeds = Seeds(int(found[1]), int(found[2]) if found[2] else None)
        if seeds.end is not None and seeds.end <= seeds.first:
            self.fail(f"expected A:B with A below B, got {value}", param, ctx)
        return seeds


class ExecutorParam(click.ParamType[Any]):
    """`module:callable`; the value is the callable, which returns an Executor."""

    name = "executor"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[], Executor]:
        """Import the callable; whatever cannot be imported is a usage error."""
        module, colon, name = value.partition(":")
        if not (module and colon and name):
            self.fail(f"expected module:callable, got {value}", param, ctx)
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not callable(found):
            self.fail(f"{value}: expected a callable that returns an Executor", param, ctx)
        make: Callable[[], Executor] = found
        return make
