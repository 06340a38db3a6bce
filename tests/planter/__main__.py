"""`python -m tests.planter KIND`: plant what is wrong, and say what nobody notices.

Findings are kept in .mutants/: a run that was stopped goes on where it was. The exit code is 0 if
enough is noticed; the page docs/how-we-know/planted.md says what is enough.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import signal
import sys
import time
from typing import Any, Final

from tests.planter.mistakes.families import MISTAKES, NEEDS

KINDS: Final = {
    "tables": "mutating",
    "clauses": "clauses.proving",
    "edits": "edits.judging",
    MISTAKES: "mistakes.playing",
    NEEDS: "mistakes.playing",
    "explored": "mistakes.exploring",
}
"""By kind: the module that plants. It has `run`, and `add_options` if there are more options."""


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    begin = time.monotonic()
    code: int = _module(asked.kind).run(asked)
    if not asked.report:
        print(f"this run: {(time.monotonic() - begin) / 60:.1f} min, {_cpu_min():.1f} min of CPU")
    return code


def _module(kind: str) -> Any:
    return importlib.import_module(f"tests.planter.{KINDS[kind]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.planter", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in KINDS:
        module = _module(kind)
        each = kinds.add_parser(kind, description=module.__doc__)
        add = each.add_argument
        add("--only", type=_names, default=(), metavar="NAME,...", help="these alone")
        add("--processes", type=int, default=2)
        add("--report", action="store_true", help="plant nothing, print or write what was found")
        if hasattr(module, "add_options"):
            module.add_options(each)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _stop(_number: int, _frame: object) -> None:
    """End the run as Control-C does."""
    raise KeyboardInterrupt


def _cpu_min() -> float:
    """Processor time of this process and of those that it has waited for, in minutes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) / 60


if __name__ == "__main__":
    sys.exit(main())
